// Small multiples: the curve of every device in a picture of its own.
import { el, svg } from "./elements.js";
import { formatNumber } from "./numbers.js";
import { linePath } from "./scale.js";

const MAX_DEVICES = 120;
const WIDTH = 120;
const HEIGHT = 52;

const isMeasured = (value) => value != null && !Number.isNaN(value);

/**
 * Create the pictures of all devices.
 * `show({ rounds, devices, mean, range, quantity, colour, order, selected })` draws them: `devices`
 * is a list of { device, values }, and all pictures share their axes. `onSelect` is called with the
 * device that the reader selects.
 */
export function smallMultiples(onSelect) {
  const about = el("p", { class: "facts" });
  const grid = el("div", { class: "multiples" });
  const node = el("div", {}, about, grid);

  function show({ rounds, devices, mean, range, quantity, colour, order, selected }) {
    const [low, high] = range;
    const px = (x) => 1 + ((x - rounds[0]) / (rounds.at(-1) - rounds[0] || 1)) * (WIDTH - 2);
    const py = (v) => HEIGHT - 2 - ((v - low) / (high - low || 1)) * (HEIGHT - 4);
    const last = ({ values }) => values.findLast(isMeasured) ?? NaN;
    const sign = quantity.rising ? 1 : -1;
    const sorted = [...devices].sort((a, b) =>
      order === "number" ? a.device - b.device : sign * (last(a) - last(b)) || a.device - b.device,
    );
    const drawn = sorted.slice(0, MAX_DEVICES);
    const average = linePath(rounds, mean, px, py, isMeasured);
    const lowest = formatNumber(low * quantity.scale);
    const highest = formatNumber(high * quantity.scale) + quantity.unit;
    about.textContent =
      `${quantity.label}, from ${lowest} to ${highest}, rounds ${formatNumber(rounds[0])} to ` +
      `${formatNumber(rounds.at(-1))}. Grey: mean of all devices. Number: last value.`;
    if (drawn.length < sorted.length) {
      const which = order === "number" ? "first" : "worst";
      const count = `${drawn.length} of ${sorted.length}`;
      about.textContent += ` ${count} devices are drawn, the ${which} ones.`;
    }
    const focused = grid.contains(document.activeElement)
      ? document.activeElement.dataset.device
      : null;
    grid.replaceChildren(
      ...drawn.map((entry) =>
        el(
          "button",
          {
            type: "button",
            class: "multiple",
            "data-device": entry.device,
            "aria-pressed": String(entry.device === selected),
            click: () => onSelect(entry.device),
          },
          el(
            "span",
            {},
            `device ${entry.device}`,
            el("b", {}, `${formatNumber(last(entry) * quantity.scale, 3)}${quantity.unit}`),
          ),
          svg(
            "svg",
            {
              viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
              preserveAspectRatio: "none",
              "aria-hidden": "true",
            },
            svg("path", { d: average, class: "line mean" }),
            svg("path", {
              d: linePath(rounds, entry.values, px, py, isMeasured),
              class: `line c${colour}`,
            }),
          ),
        ),
      ),
    );
    if (focused != null)
      grid.querySelector(`[data-device="${focused}"]`)?.focus({ preventScroll: true });
  }
  return { node, show };
}
