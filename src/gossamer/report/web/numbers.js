// Format numbers, and choose the ticks of axes.

/** Format a number with at most so many significant digits: 12345.6 → "12,350". */
export function formatNumber(value, digits = 4) {
  if (value == null || Number.isNaN(value)) return "–";
  if (value !== 0 && (Math.abs(value) >= 1e6 || Math.abs(value) < 1e-3))
    return scientific(value, digits);
  return Number(value.toPrecision(digits)).toLocaleString("en-GB", { maximumFractionDigits: 9 });
}

/** Format a number as 1.2·10⁻⁵. */
function scientific(value, digits) {
  const [mantissa, exponent] = value.toExponential().split("e");
  const superscript = [...String(Number(exponent))]
    .map((c) => (c === "-" ? "⁻" : "⁰¹²³⁴⁵⁶⁷⁸⁹"[c]))
    .join("");
  const factor = Number(Number(mantissa).toPrecision(digits));
  return factor === 1 ? `10${superscript}` : `${factor}·10${superscript}`;
}

/** Format seconds in seconds, minutes or hours. */
export function duration(seconds) {
  if (seconds == null) return "–";
  if (seconds < 90) return `${formatNumber(seconds, seconds < 10 ? 2 : 3)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  return `${formatNumber(seconds / 3600, 2)} h`;
}

/**
 * Return about `count` round numbers from low to high, their step, and a function that formats
 * them.
 */
export function ticks(low, high, count) {
  const span = high - low || Math.abs(high) || 1;
  const rough = span / Math.max(1, count);
  const size = 10 ** Math.floor(Math.log10(rough));
  const step = size * ([1, 2, 2.5, 5, 10].find((s) => s * size >= rough * 0.999) ?? 10);
  const values = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9; k++)
    values.push(k * step + 0); // + 0: no -0
  const decimals = Math.max(0, Math.ceil(-Math.log10(step) - 1e-9) + (step / size === 2.5 ? 1 : 0));
  const text = (v) =>
    Math.max(Math.abs(low), Math.abs(high)) >= 1e6 || decimals > 5
      ? v === 0
        ? "0"
        : scientific(v, 4)
      : v.toLocaleString("en-GB", {
          minimumFractionDigits: decimals,
          maximumFractionDigits: decimals,
        });
  return { step, values, text };
}

/** Powers of ten between two positive numbers, with 2 and 5 between them where there is room. */
export function logTicks(low, high, count) {
  const from = Math.floor(Math.log10(low) + 1e-9);
  const to = Math.ceil(Math.log10(high) - 1e-9);
  const marks =
    to - from <= 1 ? [1, 2, 3, 4, 5, 6, 7, 8, 9] : to - from <= count / 2 ? [1, 2, 5] : [1];
  const every = Math.max(1, Math.ceil(((to - from) * marks.length) / (2 * count)));
  const values = [];
  for (let e = from; e <= to; e += marks.length > 1 ? 1 : every) {
    for (const m of marks) {
      const value = m * 10 ** e;
      if (value >= low * 0.999 && value <= high * 1.001) values.push(value);
    }
  }
  return {
    values: values.length > 2 * count ? values.filter((_, k) => k % 2 === 0) : values,
    text: (v) => formatNumber(v, 2),
  };
}

/** Return the smallest and the largest number in some lists without gaps; null if there is none. */
export function extent(lists) {
  let low = Infinity;
  let high = -Infinity;
  for (const list of lists) {
    for (const value of list) {
      if (value == null || Number.isNaN(value)) continue;
      if (value < low) low = value;
      if (value > high) high = value;
    }
  }
  return low <= high ? [low, high] : null;
}
