// Numbers as they are read, and the ticks of axes.

/** At most so many significant digits, thousands apart: 12,345.6 → "12,350". */
export function short(value, digits = 4) {
  if (value == null || Number.isNaN(value)) return "–";
  if (value !== 0 && (Math.abs(value) >= 1e6 || Math.abs(value) < 1e-3)) return power(value, digits);
  return Number(value.toPrecision(digits)).toLocaleString("en-GB", { maximumFractionDigits: 9 });
}

/** 1.2·10⁻⁵, in signs that every font has. */
function power(value, digits) {
  const [mantissa, exponent] = value.toExponential().split("e");
  const raised = [...String(Number(exponent))].map((c) => (c === "-" ? "⁻" : "⁰¹²³⁴⁵⁶⁷⁸⁹"[c])).join("");
  const factor = Number(Number(mantissa).toPrecision(digits));
  return factor === 1 ? `10${raised}` : `${factor}·10${raised}`;
}

/** Seconds as people say them. */
export function duration(seconds) {
  if (seconds == null) return "–";
  if (seconds < 90) return `${short(seconds, seconds < 10 ? 2 : 3)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  return `${short(seconds / 3600, 2)} h`;
}

/** Round numbers from low to high, about so many, and the texts for them. */
export function ticks(low, high, count) {
  const span = high - low || Math.abs(high) || 1;
  const rough = span / Math.max(1, count);
  const size = 10 ** Math.floor(Math.log10(rough));
  const step = size * ([1, 2, 2.5, 5, 10].find((s) => s * size >= rough * 0.999) ?? 10);
  const values = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9; k++) values.push(k * step + 0); // + 0: no -0
  const decimals = Math.max(0, Math.ceil(-Math.log10(step) - 1e-9) + (step / size === 2.5 ? 1 : 0));
  const text = (v) =>
    Math.max(Math.abs(low), Math.abs(high)) >= 1e6 || decimals > 5
      ? v === 0
        ? "0"
        : power(v, 4)
      : v.toLocaleString("en-GB", { minimumFractionDigits: decimals, maximumFractionDigits: decimals });
  return { step, values, text };
}

/** Powers of ten between two positive numbers, with 2 and 5 between them where there is room. */
export function logTicks(low, high, count) {
  const from = Math.floor(Math.log10(low) + 1e-9);
  const to = Math.ceil(Math.log10(high) - 1e-9);
  const marks = to - from <= 1 ? [1, 2, 3, 4, 5, 6, 7, 8, 9] : to - from <= count / 2 ? [1, 2, 5] : [1];
  const every = Math.max(1, Math.ceil(((to - from) * marks.length) / (2 * count)));
  const values = [];
  for (let e = from; e <= to; e += marks.length > 1 ? 1 : every) {
    for (const m of marks) {
      const value = m * 10 ** e;
      if (value >= low * 0.999 && value <= high * 1.001) values.push(value);
    }
  }
  return { values: values.length > 2 * count ? values.filter((_, k) => k % 2 === 0) : values, text: (v) => short(v, 2) };
}

/** The range of numbers in lists, gaps left out; null if there are none. */
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
