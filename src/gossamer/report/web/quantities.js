// What a page can draw: the columns of the measurements with their labels, units and axes. No DOM.

const DISTANCE = {
  label: "consensus distance ‖w − mean of all w‖, mean of devices",
  scale: 1,
  log: true,
  zero: true,
  targets: [],
};
const DEVICE_DISTANCE = {
  label: "distance from the mean model",
  short: "distance from the mean",
  scale: 1,
  unit: "",
  rising: false,
  zero: true,
};
// The columns of a metric, by what follows its name.
const WHICH = {
  "": "mean test",
  _merged: "merged model’s test",
  _worst: "worst device’s test",
  _best: "best device’s test",
  _merged_power: "power mean’s test",
};
// The columns that a curve can be drawn by: the words of the choice, the label, the factor.
export const AXES = {
  round: { choice: "rounds", label: "round", scale: 1 },
  steps: { choice: "steps", label: "steps of all devices", scale: 1 },
  simulated_seconds: { choice: "simulated seconds", label: "simulated time, s", scale: 1 },
  bytes: { choice: "MB sent", label: "sent by all devices, MB", scale: 1e-6 },
  joules: { choice: "joules", label: "energy, J", scale: 1 },
};

/** Return the name of a metric with its unit. */
const withUnit = (metric) => (metric.unit ? `${metric.name}, ${metric.unit}` : metric.name);

/**
 * Return the charts of a metric by column: mean, merged, worst and best; then loss and distance.
 * `of` is the metric of a chart; charts of the chosen one can share their axis.
 */
export function quantitiesOf(metrics, chosen) {
  const found = {};
  const add = (metric, ending) => {
    found[metric.name + ending] = {
      of: metric.name,
      label: `${WHICH[ending]} ${withUnit(metric)}`,
      scale: metric.scale,
      least: metric.share ? 0 : undefined,
      most: metric.share ? 1 : undefined,
      log: !metric.share && !metric.rising,
      targets: metric.targets,
    };
  };
  const metric = metrics.find(({ name }) => name === chosen);
  for (const ending of Object.keys(WHICH)) add(metric, ending);
  if (chosen !== "loss") add(metrics[metrics.length - 1], "");
  found.distance = DISTANCE;
  return found;
}

/** Return what devices are coloured by: the first metric, the distance, and all other metrics. */
export function deviceQuantities(metrics) {
  const found = {};
  metrics.forEach((metric, k) => {
    found[`device_${metric.name}`] = {
      label: `test ${withUnit(metric)}`,
      short: metric.name,
      scale: metric.scale,
      unit: metric.unit ? ` ${metric.unit}` : "",
      rising: metric.rising,
      least: metric.share ? 0 : undefined,
      most: metric.share ? 1 : undefined,
    };
    if (k === 0) found.device_distance = DEVICE_DISTANCE;
  });
  return found;
}

/** Return the values that a quantity can have at least: 0 where no mean is negative. */
export function leastOf(quantity, lines) {
  if (quantity.least != null) return quantity.least;
  return lines.some(({ mean }) => mean.some((v) => v < 0)) ? undefined : 0;
}
