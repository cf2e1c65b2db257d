// The drawing of a chart: axes, bands, lines and markers as SVG.
import { svg } from "./elements.js";
import { formatNumber, logTicks, ticks } from "./numbers.js";
import { acrossRange, band, inverse, linePath, projection, smoothed, valueRange } from "./scale.js";

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
let plotCount = 0; // makes the names of clip paths unique

const stroke = (line) => ({ class: `line c${line.colour}`, "stroke-dasharray": line.dash || null });

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

/** Return the lines whose measurements give the axes their ranges. */
function ranging(lines) {
  const seeds = lines.flatMap((line) => line.seeds ?? []);
  const main = [...lines, ...seeds].filter((line) => line.mean.length);
  return main.length ? main : lines.flatMap((line) => line.early);
}

/**
 * Return where a chart of some width draws what: `px` and `py` project values, `left`, `right`,
 * `top` and `bottom` are the edges, `across` and `whole` the drawn and the whole range of x.
 */
export function layout({ lines, x, y, zoom, smooth }, width) {
  const height = Math.max(220, Math.min(300, Math.round(width * 0.62)));
  const main = ranging(lines).map((line) => ({
    ...line,
    mean: smoothed(line.mean, smooth),
    half: smooth ? null : line.half,
  }));
  const whole = acrossRange(main, x.log);
  const across = zoom ? [Math.max(zoom[0], whole[0]), Math.min(zoom[1], whole[1])] : whole;
  if (across[0] >= across[1]) [across[0], across[1]] = whole;
  let [low, high] = y.range ?? valueRange(main, y, across);
  const inner = height - TOP - BOTTOM;
  const axis = y.log
    ? logTicks(low, high, inner / 40)
    : ticks(low * y.scale, high * y.scale, inner / 36);
  let marks = axis.values;
  if (!y.log) {
    // Extend the axis to the next ticks, so that both of its ends have a number.
    const from = Math.floor((low * y.scale) / axis.step + 1e-9) * axis.step;
    const most = (y.most ?? Infinity) * y.scale;
    const to = Math.min(Math.ceil((high * y.scale) / axis.step - 1e-9) * axis.step, most);
    [low, high] = [from / y.scale, to / y.scale];
    const inside = (v) => v <= to * (1 + 1e-9) || v === 0;
    marks = ticks(from, to, Math.round((to - from) / axis.step)).values.filter(inside);
  }
  const texts = marks.map(axis.text);
  const left = 12 + 7 * Math.max(2, ...texts.map((text) => text.length));
  const right = width - RIGHT;
  const bottom = TOP + inner;
  return {
    width,
    height,
    left,
    right,
    top: TOP,
    bottom,
    whole,
    across,
    low,
    high,
    marks,
    texts,
    px: projection(across, [left, right], x.log),
    py: projection([low, high], [bottom, TOP], y.log),
    toValue: inverse(across, [left, right], x.log),
  };
}

/** Return the axes with their grid and numbers, and the dotted lines of the targets. */
function axes({ x, y, targets = [] }, at) {
  const { left, right, top, bottom, width, height, px, py, low, high } = at;
  const rows = at.marks.map((v, k) => {
    const h = py(y.log ? v : v / y.scale);
    return svg(
      "g",
      {},
      svg("path", { d: `M${left} ${h.toFixed(1)}H${right}`, class: "grid" }),
      svg("text", { x: left - 7, y: h + 4, "text-anchor": "end" }, at.texts[k]),
    );
  });
  const count = (right - left) / 80;
  const below = x.log ? logTicks(...at.across, count) : ticks(...at.across, count);
  let free = -Infinity; // texts of a logarithmic axis must not overlap
  const columns = below.values.map((v) => {
    const text = below.text(v);
    const half = 3.5 * text.length;
    const end = px(v) + half > width; // the last one does not stick out
    const from = end ? width - 1 - 2 * half : px(v) - half;
    const fits = from > free;
    if (fits) free = from + 2 * half + 4;
    const place = { x: end ? width - 1 : px(v), y: bottom + 20 };
    return svg(
      "g",
      {},
      svg("path", { d: `M${px(v).toFixed(1)} ${bottom}v4`, class: "axis" }),
      fits ? svg("text", { ...place, "text-anchor": end ? "end" : "middle" }, text) : null,
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
  const title = { x: (left + right) / 2, y: height - 6, "text-anchor": "middle", class: "title" };
  return [
    ...rows,
    ...columns,
    svg("path", { d: `M${left} ${bottom}H${right}`, class: "axis" }),
    svg("text", title, x.label),
    ...wanted,
  ];
}

/** Return the picture of a chart: `content` as `chart` takes it, `at` as `layout` returns it. */
export function plot(content, at) {
  const { lines, x, y, smooth } = content;
  const { left, right, top, bottom, px, py, low } = at;
  const clip = `clip-${++plotCount}`;
  const isDrawn = (v, across) =>
    v != null && !Number.isNaN(v) && (!y.log || v > 0) && (!x.log || across > 0);
  const path = (line, values) => linePath(line.x, values, px, py, isDrawn);
  const bandPath = ({ x: xs, mean, half }) => {
    const { lower, upper } = band(mean, half, y.log ? low / 10 : y.least, y.most);
    const known = xs.map((_, k) => k).filter((k) => isDrawn(mean[k], xs[k]) && half[k] != null);
    if (!known.length) return "";
    const edge = (values) =>
      known.map((k) => `${px(xs[k]).toFixed(1)} ${py(values[k]).toFixed(1)}`);
    return `M${[...edge(upper), ...edge(lower).reverse()].join("L")}Z`;
  };
  const marksOn = (line, k) => {
    const step = Math.max(1, Math.floor(line.x.length / 6));
    // Lines have their markers at different places.
    const first = Math.floor((step * ((k % lines.length) + 0.5)) / lines.length);
    const values = smoothed(line.mean, smooth);
    const places = line.x.map((_, i) => i);
    return places
      .filter((i) => i % step === first && isDrawn(values[i], line.x[i]))
      .map((i) =>
        svg("path", {
          d: MARKS[line.colour],
          class: `mark c${line.colour}`,
          transform: `translate(${px(line.x[i]).toFixed(1)} ${py(values[i]).toFixed(1)})`,
        }),
      );
  };
  const end = (line) => {
    const last = line.mean.findLastIndex((v, k) => isDrawn(v, line.x[k]));
    if (last < 0 || !line.ended) return null;
    const across = px(line.x[last]);
    if (across < left - 1 || across > right + 1) return null;
    const place = Math.min(Math.max(py(line.mean[last]), top), bottom);
    return svg(
      "path",
      {
        d: "M-5 -5L5 5M-5 5L5 -5",
        class: `end c${line.colour}`,
        transform: `translate(${across.toFixed(1)} ${place.toFixed(1)})`,
      },
      svg("title", {}, `${line.label}: ${line.ended}`),
    );
  };
  const early = lines.flatMap((line) => line.early);
  const seeds = lines.flatMap((line) => line.seeds ?? []);
  const thin = (line) =>
    svg("path", { d: path(line, line.mean), class: `line thin c${line.colour}` });
  return svg(
    "svg",
    { viewBox: `0 0 ${at.width} ${at.height}`, "aria-hidden": "true" },
    svg(
      "clipPath",
      { id: clip },
      svg("rect", { x: left, y: top - 3, width: right - left + 4, height: bottom - top + 6 }),
    ),
    ...axes(content, at),
    svg(
      "g",
      { "clip-path": `url(#${clip})` },
      ...lines
        .filter((line) => line.half)
        .map((line) => svg("path", { d: bandPath(line), class: `band c${line.colour}` })),
      ...seeds.map(thin),
      ...early.map((line) =>
        svg("path", { d: path(line, line.mean), class: `line early c${line.colour}` }),
      ),
      ...(smooth ? lines.map(thin) : []),
      ...lines.map((line) =>
        svg("path", { d: path(line, smoothed(line.mean, smooth)), ...stroke(line) }),
      ),
      ...lines.flatMap(marksOn),
    ),
    ...[...lines, ...early].map(end),
    svg("path", { class: "cross", d: "" }),
    svg("g", { class: "dots" }),
    svg("rect", { class: "chosen", y: top, height: bottom - top, width: 0 }),
  );
}
