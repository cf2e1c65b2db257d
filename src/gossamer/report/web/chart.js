// A chart of curves with bands, as SVG that fits the width of its container.
import { el, svg, whenSized } from "./elements.js";
import { extent, logTicks, formatNumber, ticks } from "./numbers.js";

// One marker per colour of the palette, in its order.
const MARKS = [
  "M-3 0a3 3 0 1 0 6 0a3 3 0 1 0 -6 0z",
  "M-2.7 -2.7h5.4v5.4h-5.4z",
  "M0 -3.4L3.3 2.6H-3.3z",
  "M0 -3.8L3.8 0L0 3.8L-3.8 0z",
  "M0 3.4L3.3 -2.6H-3.3z",
  "M-1.2 -3.6h2.4v2.4h2.4v2.4h-2.4v2.4h-2.4v-2.4h-2.4v-2.4h2.4z",
  "M-3.4 -2L-2 -3.4L0 -1.4L2 -3.4L3.4 -2L1.4 0L3.4 2L2 3.4L0 1.4L-2 3.4L-3.4 2L-1.4 0z",
];
const TOP = 12;
const BOTTOM = 45;
const RIGHT = 14;
let chartCount = 0; // makes the names of clip paths unique

const stroke = (line) => ({ class: `line c${line.colour}`, "stroke-dasharray": line.dash || null });

/** Return the path of a line through the points that `isDrawn`, with gaps at the others. */
export function linePath(xs, ys, px, py, isDrawn) {
  let d = "";
  let connected = false;
  xs.forEach((x, k) => {
    const drawn = isDrawn(ys[k]);
    if (drawn) d += `${connected ? "L" : "M"}${px(x).toFixed(1)} ${py(ys[k]).toFixed(1)}`;
    connected = drawn;
  });
  return d;
}

/** Create a sample of a line for legends. */
export function sample(line) {
  return svg(
    "svg",
    { class: "sample", width: 34, height: 12, viewBox: "0 0 34 12", "aria-hidden": "true" },
    svg("path", { d: "M1 6H33", ...stroke(line) }),
    svg("path", {
      d: MARKS[line.colour],
      transform: "translate(17 6)",
      class: `mark c${line.colour}`,
    }),
  );
}

/**
 * Create a chart. `update({ lines, x, y, targets })` draws it. A line has colour, dash, label, x,
 * mean, half (or null), ended (or "") and early, a list of lines that ended before the others.
 * `y` has label and scale, and perhaps log, zero (the axis begins at zero) and most (the largest
 * value).
 */
export function chart(title) {
  let content = null;
  let width = 0;
  let pointed = null; // the value of x that the reader points at
  const clip = `clip-${++chartCount}`;
  const picture = el("div", { class: "picture", role: "img", tabindex: "0", "aria-label": title });
  const readout = el("div", { class: "readout", hidden: true });
  const node = el(
    "figure",
    { class: "chart" },
    el("figcaption", {}, title),
    el("div", { class: "frame" }, picture, readout),
  );

  function scales() {
    const { lines, y } = content;
    const main = lines.some((line) => line.mean.length)
      ? lines
      : lines.flatMap((line) => line.early);
    const across = extent(main.map((line) => line.x)) ?? [0, 1];
    const means = main.flatMap(({ mean, half }) =>
      half
        ? [
            mean,
            mean.map((v, k) => (v == null ? null : v + half[k])),
            mean.map((v, k) => (v == null ? null : v - half[k])),
          ]
        : [mean],
    );
    let [low, high] = extent(y.log ? means.map((list) => list.filter((v) => v > 0)) : means) ?? [
      y.log ? 0.1 : 0,
      1,
    ];
    // Where no mean is negative, an interval may still be.
    if (low < 0 && !main.some(({ mean }) => mean.some((v) => v < 0))) low = 0;
    if (y.zero && !y.log) low = 0;
    if (y.most != null) [low, high] = [Math.max(0, low), Math.min(y.most, high)];
    if (low === high)
      [low, high] = y.log
        ? [low / 2, high * 2]
        : [low - (Math.abs(low) || 1) / 2, high + (Math.abs(high) || 1) / 2];
    return { across, low, high };
  }

  function draw() {
    if (!content || !width) return;
    const { lines, x, y, targets = [] } = content;
    const height = Math.max(220, Math.min(300, Math.round(width * 0.62)));
    let { across, low, high } = scales();
    const inner = height - TOP - BOTTOM;
    const axis = y.log
      ? logTicks(low, high, inner / 40)
      : ticks(low * y.scale, high * y.scale, inner / 36);
    let marks = axis.values;
    if (!y.log) {
      // Extend the axis to the next ticks, so that both of its ends have a number.
      const from = Math.floor((low * y.scale) / axis.step + 1e-9) * axis.step;
      const to = Math.min(
        Math.ceil((high * y.scale) / axis.step - 1e-9) * axis.step,
        (y.most ?? Infinity) * y.scale,
      );
      [low, high] = [from / y.scale, to / y.scale];
      marks = ticks(from, to, Math.round((to - from) / axis.step)).values.filter(
        (v) => v <= to * (1 + 1e-9) || v === 0,
      );
    }
    const texts = marks.map(axis.text);
    const left = 12 + 7 * Math.max(2, ...texts.map((text) => text.length));
    const right = width - RIGHT;
    const project = y.log ? Math.log10 : (v) => v;
    const py = (v) =>
      TOP + inner * (1 - (project(v) - project(low)) / (project(high) - project(low)));
    const px = (v) => left + ((v - across[0]) / (across[1] - across[0] || 1)) * (right - left);
    const isDrawn = (v) => v != null && (!y.log || v > 0);

    const path = (xs, ys) => linePath(xs, ys, px, py, isDrawn);
    const band = ({ x: xs, mean, half }) => {
      const known = xs.map((_, k) => k).filter((k) => isDrawn(mean[k]) && half[k] != null);
      if (!known.length) return "";
      const lowest = y.log ? low / 10 : -Infinity;
      const edge = (k, sign) => {
        const value = Math.max(mean[k] + sign * half[k], lowest);
        return `${px(xs[k]).toFixed(1)} ${py(value).toFixed(1)}`;
      };
      const upper = known.map((k) => edge(k, 1));
      const lower = known.map((k) => edge(k, -1)).reverse();
      return `M${[...upper, ...lower].join("L")}Z`;
    };
    const marksOn = (line, k) => {
      const step = Math.max(1, Math.floor(line.x.length / 6));
      // Lines have their markers at different places.
      const first = Math.floor((step * ((k % lines.length) + 0.5)) / lines.length);
      const places = line.x
        .map((_, i) => i)
        .filter((i) => i % step === first && isDrawn(line.mean[i]));
      return places.map((i) =>
        svg("path", {
          d: MARKS[line.colour],
          class: `mark c${line.colour}`,
          transform: `translate(${px(line.x[i]).toFixed(1)} ${py(line.mean[i]).toFixed(1)})`,
        }),
      );
    };
    const end = (line) => {
      const last = line.mean.findLastIndex(isDrawn);
      if (last < 0 || !line.ended) return null;
      const place = Math.min(Math.max(py(line.mean[last]), TOP), TOP + inner);
      return svg(
        "path",
        {
          d: "M-5 -5L5 5M-5 5L5 -5",
          class: `end c${line.colour}`,
          transform: `translate(${px(line.x[last]).toFixed(1)} ${place.toFixed(1)})`,
        },
        svg("title", {}, `${line.label}: ${line.ended}`),
      );
    };

    const rows = marks.map((v, k) => {
      const h = py(y.log ? v : v / y.scale);
      return svg(
        "g",
        {},
        svg("path", { d: `M${left} ${h.toFixed(1)}H${right}`, class: "grid" }),
        svg("text", { x: left - 7, y: h + 4, "text-anchor": "end" }, texts[k]),
      );
    });
    const below = ticks(across[0], across[1], (right - left) / 80);
    const columns = below.values.map((v) => {
      const text = below.text(v);
      const half = 3.5 * text.length;
      const anchor = px(v) + half > width ? "end" : "middle"; // the last one does not stick out
      return svg(
        "g",
        {},
        svg("path", { d: `M${px(v).toFixed(1)} ${TOP + inner}v4`, class: "axis" }),
        svg(
          "text",
          { x: anchor === "end" ? width - 1 : px(v), y: TOP + inner + 20, "text-anchor": anchor },
          text,
        ),
      );
    });
    const wanted = targets
      .filter((t) => t > low && t < high)
      .map((t) =>
        svg(
          "path",
          { d: `M${left} ${py(t).toFixed(1)}H${right}`, class: "target" },
          svg("title", {}, `target ${formatNumber(t * y.scale)}`),
        ),
      );
    picture.replaceChildren(
      svg(
        "svg",
        { viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" },
        svg(
          "clipPath",
          { id: clip },
          svg("rect", { x: left, y: TOP - 3, width: right - left + 4, height: inner + 6 }),
        ),
        ...rows,
        ...columns,
        svg("path", { d: `M${left} ${TOP + inner}H${right}`, class: "axis" }),
        svg(
          "text",
          { x: (left + right) / 2, y: height - 6, "text-anchor": "middle", class: "title" },
          x.label,
        ),
        ...wanted,
        svg(
          "g",
          { "clip-path": `url(#${clip})` },
          ...lines
            .filter((line) => line.half)
            .map((line) => svg("path", { d: band(line), class: `band c${line.colour}` })),
          ...lines
            .flatMap((line) => line.early)
            .map((line) =>
              svg("path", { d: path(line.x, line.mean), class: `line early c${line.colour}` }),
            ),
          ...lines.map((line) => svg("path", { d: path(line.x, line.mean), ...stroke(line) })),
          ...lines.flatMap(marksOn),
        ),
        ...lines.flatMap((line) => [line, ...line.early]).map(end),
        svg("path", {
          class: "cross",
          d: pointed == null ? "" : `M${px(pointed).toFixed(1)} ${TOP}V${TOP + inner}`,
        }),
      ),
    );
    picture.toValue = (pixel) =>
      across[0] + ((pixel - left) / (right - left)) * (across[1] - across[0]);
    picture.toPixel = px;
    picture.range = across;
    updateReadout();
  }

  function meanText(line, k) {
    const mean = line.mean[k];
    return formatNumber(mean == null ? null : mean * content.y.scale);
  }

  function updateReadout() {
    const cross = picture.querySelector(".cross");
    readout.hidden = pointed == null;
    if (pointed == null) return cross?.setAttribute("d", "");
    const { lines, x, y } = content;
    const found = lines
      .filter((line) => line.x.length)
      .map((line) => [
        line,
        line.x.reduce(
          (best, v, k) => (Math.abs(v - pointed) < Math.abs(line.x[best] - pointed) ? k : best),
          0,
        ),
      ])
      .sort(([a, i], [b, j]) => (b.mean[j] ?? -Infinity) - (a.mean[i] ?? -Infinity));
    const valueText = (line, k) => {
      const half = line.half?.[k];
      const interval = half != null ? ` ± ${formatNumber(half * y.scale, 2)}` : "";
      return meanText(line, k) + interval;
    };
    readout.replaceChildren(
      el("div", {}, `${x.label}: ${formatNumber(pointed)}`),
      ...found
        .slice(0, 10)
        .map(([line, k]) =>
          el(
            "div",
            { class: "value" },
            sample(line),
            el("span", {}, line.label),
            el("b", {}, valueText(line, k)),
          ),
        ),
    );
    const pixel = picture.toPixel(pointed);
    cross.setAttribute(
      "d",
      `M${pixel.toFixed(1)} ${TOP}V${picture.firstChild.viewBox.baseVal.height - BOTTOM}`,
    );
    const isLeftOfPointer = pixel > width / 2;
    readout.style.left = isLeftOfPointer ? "auto" : `${pixel + 12}px`;
    readout.style.right = isLeftOfPointer ? `${width - pixel + 12}px` : "auto";
  }

  function pointAt(value) {
    const [low, high] = picture.range;
    pointed = value == null ? null : Math.min(Math.max(value, low), high);
    updateReadout();
  }

  picture.addEventListener(
    "pointermove",
    (event) => content && pointAt(picture.toValue(event.offsetX)),
  );
  picture.addEventListener("pointerleave", () => content && pointAt(null));
  picture.addEventListener("blur", () => content && pointAt(null));
  picture.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[event.key];
    if (event.key === "Escape") return pointAt(null);
    if (!step || !content) return;
    event.preventDefault();
    const [low, high] = picture.range;
    pointAt((pointed ?? (step > 0 ? low : high)) + (step * (high - low)) / 40);
  });
  whenSized(picture, (now) => {
    width = now;
    draw();
  });

  function update(next) {
    content = next;
    picture.setAttribute("aria-label", describe());
    node.querySelector("figcaption").textContent = content.y.label;
    draw();
  }

  function describe() {
    const { lines, x, y } = content;
    const last = lines
      .filter((line) => line.mean.length)
      .map((line) => `${line.label} ends at ${meanText(line, line.mean.length - 1)}`);
    return `${y.label}, by ${x.label}. ${last.join("; ")}. The arrow keys read values.`;
  }
  return { node, update };
}
