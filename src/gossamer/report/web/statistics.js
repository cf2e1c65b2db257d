// Means over runs with 95 % intervals, for the groups that a reader makes. No DOM.

// 97.5 % quantiles of Student's t for 1, 2, … degrees of freedom.
const QUANTILES = [
  12.7062, 4.30265, 3.18245, 2.77645, 2.57058, 2.44691, 2.36462, 2.306, 2.26216, 2.22814, 2.20099,
  2.17881, 2.16037, 2.14479, 2.13145, 2.11991, 2.10982, 2.10092, 2.09302, 2.08596, 2.07961, 2.07387,
  2.06866, 2.0639, 2.05954, 2.05553, 2.05183, 2.04841, 2.04523, 2.04227,
];

/** Return the 97.5 % quantile of Student's t. */
export function tQuantile(freedom) {
  if (freedom <= QUANTILES.length) return QUANTILES[freedom - 1];
  const z = 1.959964; // Fisher's expansion in 1 / freedom
  return (
    z + (z ** 3 + z) / (4 * freedom) + (5 * z ** 5 + 16 * z ** 3 + 3 * z) / (96 * freedom ** 2)
  );
}

/** Return the mean of some numbers and the half-width of its 95 % interval; null for one number. */
export function meanInterval(values) {
  const n = values.length;
  if (!n) return { mean: null, half: null, count: 0 };
  const mean = values.reduce((sum, v) => sum + v, 0) / n;
  if (n === 1) return { mean, half: null, count: 1 };
  const square = values.reduce((sum, v) => sum + (v - mean) ** 2, 0) / (n - 1);
  return { mean, half: tQuantile(n - 1) * Math.sqrt(square / n), count: n };
}

/**
 * Return one line for some runs: at every x that all of them have measured, means with intervals.
 * A run is a Map of columns, each a list by row; `axes` and `names` are the columns of x and y,
 * with a factor each.
 */
export function averaged(runs, axes, names) {
  const rounds = commonRounds(runs);
  const rows = runs.map((run) => {
    const rowOf = new Map(run.get("round").map((t, row) => [t, row]));
    return rounds.map((t) => rowOf.get(t));
  });
  const x = {};
  const y = {};
  const has = (name) => runs.every((run) => run.has(name));
  const at = (name, k) =>
    runs.map((run, r) => run.get(name)[rows[r][k]]).filter((v) => Number.isFinite(v));
  for (const [name, scale] of Object.entries(axes))
    if (has(name)) x[name] = rounds.map((_, k) => scaled(meanInterval(at(name, k)).mean, scale));
  for (const name of names) {
    if (!has(name)) continue;
    const means = rounds.map((_, k) => meanInterval(at(name, k)));
    const half = runs.length > 1 ? means.map((m) => m.half) : null;
    y[name] = { mean: means.map((m) => m.mean), half };
  }
  return { x, y };
}

const scaled = (value, scale) => (value == null ? null : value * scale);

/** Return the rounds that all runs have measured, ascending. */
export function commonRounds(runs) {
  if (!runs.length) return [];
  const [first, ...others] = runs.map((run) => run.get("round"));
  const sets = others.map((list) => new Set(list));
  return first.filter((t) => sets.every((set) => set.has(t)));
}
