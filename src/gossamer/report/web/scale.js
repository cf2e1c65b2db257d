// Where a chart draws what: ranges, smoothing, bands, the nearest measurement. No DOM.
import { extent } from "./numbers.js";

const isNumber = (value) => value != null && Number.isFinite(value);

/**
 * Return values smoothed by an exponential mean. `weight` is from 0 (as measured) to below 1; the
 * first values are corrected for their short past, gaps stay gaps.
 */
export function smoothed(values, weight) {
  if (!weight) return values;
  let sum = 0;
  let total = 0;
  return values.map((value) => {
    if (!isNumber(value)) return value;
    sum = weight * sum + (1 - weight) * value;
    total = weight * total + (1 - weight);
    return sum / total;
  });
}

/** Return the edges of a band, clipped to the values that are possible. */
export function band(mean, half, least = -Infinity, most = Infinity) {
  const edge = (sign) =>
    mean.map((value, k) => {
      if (!isNumber(value) || !isNumber(half[k])) return null;
      return Math.min(Math.max(value + sign * half[k], least), most);
    });
  return { lower: edge(-1), upper: edge(1) };
}

/** Return the position of the number in an ascending list that is nearest to a value; -1: none. */
export function nearest(list, value) {
  let best = -1;
  list.forEach((x, k) => {
    if (isNumber(x) && (best < 0 || Math.abs(x - value) < Math.abs(list[best] - value))) best = k;
  });
  return best;
}

/** Return the measured x of all lines within a range, ascending, each once. */
export function measuredPlaces(lines, [from, to]) {
  const found = new Set();
  for (const line of lines)
    for (const x of line.x) if (isNumber(x) && x >= from && x <= to) found.add(x);
  return [...found].sort((a, b) => a - b);
}

/** Return the range of x of some lines; a logarithmic axis starts at the first positive one. */
export function acrossRange(lines, log) {
  const lists = lines.map((line) => (log ? line.x.filter((v) => v > 0) : line.x));
  return extent(lists) ?? (log ? [1, 10] : [0, 1]);
}

/**
 * Return the range of y of some lines between two x. `y` has log, zero (begin at zero), and perhaps
 * least and most, the values that are possible. A logarithmic axis starts at the smallest positive
 * measurement.
 */
export function valueRange(lines, y, [from, to]) {
  const lists = [];
  for (const line of lines) {
    const drawn = (v, k) =>
      isNumber(v) && line.x[k] >= from && line.x[k] <= to && (!y.log || v > 0);
    lists.push(line.mean.filter(drawn));
    if (!line.half) continue;
    const { lower, upper } = band(line.mean, line.half, y.least, y.most);
    lists.push(upper.filter(drawn));
    if (!y.log) lists.push(lower.filter(drawn));
  }
  let [low, high] = extent(lists) ?? (y.log ? [0.1, 1] : [0, 1]);
  if (y.zero && !y.log) low = Math.min(low, 0);
  if (low !== high) return [low, high];
  if (y.log) return [low / 2, high * 2];
  const half = (Math.abs(low) || 1) / 2;
  return [Math.max(low - half, y.least ?? -Infinity), Math.min(high + half, y.most ?? Infinity)];
}

/** Return a function from values to pixels. */
export function projection([low, high], [from, to], log) {
  const project = log ? Math.log10 : (v) => v;
  const span = project(high) - project(low) || 1;
  return (v) => from + ((project(v) - project(low)) / span) * (to - from);
}

/** Return the function from pixels to values that undoes `projection`. */
export function inverse([low, high], [from, to], log) {
  const share = (pixel) => (pixel - from) / (to - from || 1);
  if (!log) return (pixel) => low + share(pixel) * (high - low);
  return (pixel) => low * (high / low) ** share(pixel);
}

/**
 * Return a range that is narrower (factor below 1) or wider around a centre, and inside the whole
 * range; null if it would be the whole range.
 */
export function zoomed([low, high], [first, last], centre, factor) {
  const size = (high - low) * factor;
  if (size >= last - first) return null;
  const share = (centre - low) / (high - low || 1);
  const from = Math.min(Math.max(centre - share * size, first), last - size);
  return [from, from + size];
}

/** Return the path of a line through the points that `isDrawn`, with gaps at the others. */
export function linePath(xs, ys, px, py, isDrawn) {
  let d = "";
  let connected = false;
  xs.forEach((x, k) => {
    const drawn = isDrawn(ys[k], x);
    if (drawn) d += `${connected ? "L" : "M"}${px(x).toFixed(1)} ${py(ys[k]).toFixed(1)}`;
    connected = drawn;
  });
  return d;
}
