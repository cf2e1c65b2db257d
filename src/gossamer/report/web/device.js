// One device: its curve beside all others, its labels, whom it met, and what it confuses.
import { el, svg } from "./elements.js";
import { chart } from "./chart.js";
import { inkOn, viridis } from "./colours.js";
import { formatNumber } from "./numbers.js";
import { sample } from "./plot.js";
import { countContacts } from "./contacts.js";
import { unpack } from "./unpack.js";

const MAX_PARTNERS = 8;
const MAX_CLASSES = 30; // of which a matrix can be read

/** Return the lines of a device's chart: its own, and mean, worst and best of all devices. */
export function deviceLines({ rounds, devices, device, rising, colour }) {
  const own = devices.find((entry) => entry.device === device).values;
  const over = (reduce) =>
    rounds.map((_, k) => {
      const known = devices.map(({ values }) => values[k]).filter((v) => v != null);
      return known.length ? reduce(known) : null;
    });
  const least = over((list) => Math.min(...list));
  const most = over((list) => Math.max(...list));
  const line = (label, mean, style) => ({
    label,
    x: rounds,
    mean,
    half: null,
    ended: "",
    early: [],
    ...style,
  });
  return [
    line(`device ${device}`, own, { colour, dash: "" }),
    line(
      "mean of all",
      over((list) => list.reduce((a, b) => a + b, 0) / list.length),
      {
        colour: 6,
        dash: "6 2",
      },
    ),
    line("best", rising ? most : least, { colour: 2, dash: "1 2" }),
    line("worst", rising ? least : most, { colour: 1, dash: "2 1" }),
  ];
}

/** Return a device's share of right answers in each class, from its confusion matrix. */
export function recalls(matrix, classes) {
  return Array.from({ length: classes }, (_, row) => {
    const own = matrix.slice(row * classes, (row + 1) * classes);
    const sum = own.reduce((a, b) => a + b, 0);
    return sum ? own[row] / sum : null;
  });
}

/** Create the bars of a device's labels. */
function labelBars(names, counts) {
  const most = Math.max(1, ...counts);
  const rows = names.map((name, k) =>
    el(
      "li",
      {},
      el("span", {}, name),
      svg(
        "svg",
        { viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" },
        svg("rect", { width: (100 * counts[k]) / most, height: 10, class: "label-bar" }),
      ),
      el("b", {}, counts[k].toLocaleString("en-GB")),
    ),
  );
  return el("ul", { class: "bars" }, ...rows);
}

/** Create the table of a confusion matrix: a row per true class. */
function confusionTable(names, matrix) {
  const classes = names.length;
  const sums = names.map((_, row) =>
    matrix.slice(row * classes, (row + 1) * classes).reduce((a, b) => a + b, 0),
  );
  const cell = (row, column) => {
    const count = matrix[row * classes + column];
    const share = sums[row] ? count / sums[row] : 0;
    const made = el("td", { class: "number" }, count ? String(count) : "");
    made.style.background = count ? viridis(share) : "";
    made.style.color = count ? inkOn(share) : "";
    return made;
  };
  return el(
    "div",
    { class: "scroll", role: "region", tabindex: "0", "aria-label": "Confusion matrix" },
    el(
      "table",
      { class: "confusion" },
      el("caption", {}, "True class in rows, predicted class in columns"),
      el(
        "thead",
        {},
        el("tr", {}, el("td", {}), ...names.map((name) => el("th", { scope: "col" }, name))),
      ),
      el(
        "tbody",
        {},
        ...names.map((name, row) =>
          el(
            "tr",
            {},
            el("th", { scope: "row" }, name),
            ...names.map((_, column) => cell(row, column)),
          ),
        ),
      ),
    ),
  );
}

/**
 * Create the view of a device. `show(facts)` draws it: device, quantity, rounds, devices (their
 * values), colour, network and frames, labels ({ names, counts }) and confusion, or null for each
 * of the last four where it is not known; null hides the view.
 */
export function deviceView() {
  const heading = el("h3");
  let zoom = null;
  let shown = null;
  const curve = chart("curve of the device", (range) => {
    zoom = range;
    drawCurve();
  });
  const met = el("p", { class: "facts" });
  const labels = el("div");
  const confusion = el("div");
  const legend = el("p", { class: "facts legend" });
  const curvePart = el("div", {}, curve.node, legend);
  const parts = el("div", { class: "device-parts" }, curvePart, labels, confusion);
  const node = el("div", { class: "device-view", hidden: true }, heading, met, parts);
  let drawing = 0;

  function drawCurve() {
    const { quantity } = shown;
    const y = { ...quantity, label: `device ${shown.device}: ${quantity.label}` };
    const lines = deviceLines({ ...shown, rising: quantity.rising });
    legend.replaceChildren(
      ...lines.map((line) => el("span", { class: "whole" }, sample(line), " ", line.label)),
    );
    curve.update({ lines, x: { label: "round", log: false }, y, zoom, smooth: 0 });
  }

  function contactText({ network, frames, device }) {
    if (!network || !network.shown.includes(device)) return "";
    const { rows } = countContacts(network, frames, device);
    if (!rows.length) return `Device ${device} has met nobody.`;
    const first = rows.slice(0, MAX_PARTNERS).map((row) => `${row.device} (${row.sum})`);
    const noun = rows.length === 1 ? "device" : "devices";
    return `It met ${rows.length} other ${noun}, most often ${first.join(", ")}.`;
  }

  async function show(facts) {
    shown = facts;
    node.hidden = !facts;
    if (!facts) return;
    const own = ++drawing;
    const { device } = facts;
    heading.textContent = `Device ${device}`;
    drawCurve();
    met.textContent = contactText(facts);
    const counts = facts.labels?.counts[device];
    labels.replaceChildren(
      ...(counts
        ? [el("h4", {}, "Its training samples by label"), labelBars(facts.labels.names, counts)]
        : []),
    );
    const matrix = await matrixOf(facts);
    if (own !== drawing) return;
    if (!matrix) {
      confusion.replaceChildren();
      return;
    }
    const { names, values } = matrix;
    const classes = names.length;
    const weakest = recalls(values, classes)
      .map((share, k) => [share, names[k]])
      .filter(([share]) => share != null)
      .sort(([a], [b]) => a - b)
      .slice(0, 3)
      .map(([share, name]) => `${name} (${formatNumber(100 * share, 3)} %)`);
    confusion.replaceChildren(
      el("h4", {}, "What its final model predicts"),
      el("p", { class: "about" }, `Recognised least: ${weakest.join(", ")}.`),
      classes <= MAX_CLASSES ? confusionTable(names, values) : "",
    );
  }

  async function matrixOf({ confusion: packed, device }) {
    const row = packed?.devices.indexOf(device) ?? -1;
    if (row < 0) return null;
    const size = packed.names.length ** 2;
    const all = new Uint16Array((await unpack(packed.counts)).buffer);
    return { names: packed.names, values: [...all.slice(row * size, (row + 1) * size)] };
  }
  return { node, show };
}
