// Every device's own curve, small, one beside the other.
import { el, svg } from "./elements.js";
import { short } from "./numbers.js";

const MOST_DEVICES = 120;
const WIDTH = 120;
const HEIGHT = 52;

function path(xs, ys, px, py) {
  let d = "";
  let open = false;
  xs.forEach((x, k) => {
    const known = ys[k] != null && !Number.isNaN(ys[k]);
    if (known) d += `${open ? "L" : "M"}${px(x).toFixed(1)} ${py(ys[k]).toFixed(1)}`;
    open = known;
  });
  return d;
}

/**
 * `show({ rounds, devices, mean, range, quantity, colour, order, selected })`: `devices` is a list of { device, values }; all
 * have the same axes, whose ends are said once. `chosen` is told the device that is pointed at.
 */
export function smallMultiples(chosen) {
  const about = el("p", { class: "facts" });
  const grid = el("div", { class: "multiples" });
  const node = el("div", {}, about, grid);

  function show({ rounds, devices, mean, range, quantity, colour: k, order, selected }) {
    const [low, high] = range;
    const px = (x) => 1 + ((x - rounds[0]) / (rounds.at(-1) - rounds[0] || 1)) * (WIDTH - 2);
    const py = (v) => HEIGHT - 2 - ((v - low) / (high - low || 1)) * (HEIGHT - 4);
    const last = ({ values }) => values.findLast((v) => v != null && !Number.isNaN(v)) ?? NaN;
    const sign = quantity.rising ? 1 : -1;
    const sorted = [...devices].sort((a, b) =>
      order === "number" ? a.device - b.device : sign * (last(a) - last(b)) || a.device - b.device,
    );
    const drawn = sorted.slice(0, MOST_DEVICES);
    const average = path(rounds, mean, px, py);
    about.textContent =
      `${quantity.label}: every picture goes from ${short(low * quantity.scale)} to ${short(high * quantity.scale)}${quantity.unit} upwards and from round ` +
      `${short(rounds[0])} to ${short(rounds.at(-1))} across; the grey line is the mean of all devices, the number the device's last value.` +
      (drawn.length < sorted.length
        ? ` ${drawn.length} of ${sorted.length} devices are drawn, the ${order === "number" ? "first" : "worst"} ones.`
        : "");
    const focused = grid.contains(document.activeElement) ? document.activeElement.dataset.device : null;
    grid.replaceChildren(
      ...drawn.map((entry) =>
        el(
          "button",
          {
            type: "button",
            class: "multiple",
            "data-device": entry.device,
            "aria-pressed": String(entry.device === selected),
            click: () => chosen(entry.device),
          },
          el("span", {}, `device ${entry.device}`, el("b", {}, `${short(last(entry) * quantity.scale, 3)}${quantity.unit}`)),
          svg(
            "svg",
            { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" },
            svg("path", { d: average, class: "line mean" }),
            svg("path", { d: path(rounds, entry.values, px, py), class: `line c${k}` }),
          ),
        ),
      ),
    );
    if (focused != null) grid.querySelector(`[data-device="${focused}"]`)?.focus({ preventScroll: true });
  }
  return { node, show };
}
