// The sections of a page. Each is built once and can be updated: a live page has new content every
// second.
import { choices, download, el, menu } from "./elements.js";
import { duration } from "./numbers.js";
import { csvLines } from "./unpack.js";
import { sortable } from "./table.js";
import { chart, sample } from "./chart.js";
import { colourRange, networkPicture, unpackNetwork } from "./network.js";
import { smallMultiples } from "./devices.js";

const DISTANCE = {
  label: "consensus distance ‖w − mean of all w‖, mean of devices",
  scale: 1,
  log: true,
  zero: true,
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
  _worst: "worst device’s test",
  _best: "best device’s test",
  _merged: "merged model’s test",
  _merged_power: "power mean’s test",
};

/** Return the name of a metric with its unit. */
const withUnit = (metric) => (metric.unit ? `${metric.name}, ${metric.unit}` : metric.name);

/**
 * Return the charts of a metric by column, mean, worst, best and merged; then loss and distance.
 */
function quantitiesOf(metrics, chosen) {
  const found = {};
  const add = (metric, ending) => {
    found[metric.name + ending] = {
      label: `${WHICH[ending]} ${withUnit(metric)}`,
      scale: metric.scale,
      most: metric.share ? 1 : undefined,
      log: !metric.share && !metric.rising,
      targets: metric.targets,
    };
  };
  const metric = metrics.find(({ name }) => name === chosen);
  for (const ending of Object.keys(WHICH)) add(metric, ending);
  if (chosen !== "loss") add(metrics[metrics.length - 1], "");
  found.distance = { ...DISTANCE, targets: [] };
  return found;
}

/** Return what devices are coloured by: the first metric, the distance, and all other metrics. */
function deviceQuantities(metrics) {
  const found = {};
  metrics.forEach((metric, k) => {
    found[`device_${metric.name}`] = {
      label: `test ${withUnit(metric)}`,
      short: metric.name,
      scale: metric.scale,
      unit: metric.unit ? ` ${metric.unit}` : "",
      rising: metric.rising,
    };
    if (k === 0) found.device_distance = DEVICE_DISTANCE;
  });
  return found;
}
const AXES = {
  round: "round",
  bytes: "sent by all devices, MB",
  simulated_seconds: "simulated time, s",
};

/** Create a section with a heading that the list of contents links to. */
export function section(id, title, ...children) {
  return el(
    "section",
    { id, "aria-labelledby": `${id}-title` },
    el("h2", { id: `${id}-title` }, title),
    ...children,
  );
}

/** Create the list of contents. */
export function contents(sections) {
  const links = sections.map((s) =>
    el("li", {}, el("a", { href: `#${s.id}` }, s.querySelector("h2").textContent)),
  );
  return el("nav", { "aria-label": "contents" }, el("ul", {}, ...links));
}

/** Create the notes above the sections; null if there are none. */
export function notes(list) {
  return list.length
    ? el("ul", { class: "notes" }, ...list.map((text) => el("li", {}, text)))
    : null;
}

/** Split a sentence into text and code, which is between backquotes. */
const withCode = (sentence) =>
  sentence.split("`").map((part, k) => (k % 2 ? el("code", {}, part) : part));

/** Create the section that says what was run. */
export function descriptionSection(description) {
  const entries = description.flatMap(({ term, lines }) => [
    el("dt", {}, term),
    ...lines.map(([text, meaning]) =>
      el("dd", {}, text, meaning ? el("small", {}, ...withCode(meaning)) : null),
    ),
  ]);
  return section("run", "What was run", el("dl", {}, ...entries));
}

/** Create the section with the tables of results and targets. */
export function resultsSection() {
  const results = sortable("Result of each method");
  const targets = sortable("What each target took");
  const targetsPart = el(
    "div",
    {},
    el("h3", {}, "To reach a target"),
    el(
      "p",
      { class: "about" },
      "Until the mean over the devices, or the merged model, has reached it. “4 of 5: 131” is " +
        "the mean of the four seeds that have reached it. A dash: not reached.",
    ),
    targets.node,
  );
  const node = section(
    "result",
    "Result",
    el(
      "p",
      { class: "about" },
      "Means over the seeds ± the half-width of their 95 % interval (Student’s t); of a single " +
        "seed there is none. The difference is to the first method, paired by seed. The merged " +
        "model is the mean of all devices’ models. A column’s heading sorts by it.",
    ),
    results.node,
    targetsPart,
  );
  function update(content) {
    results.update(content.results);
    targetsPart.hidden = !content.targets;
    if (content.targets) targets.update(content.targets);
  }
  return { node, update };
}

/** Create the section with the curves. */
export function curvesSection() {
  const state = { across: "round", log: false, hidden: new Set(), metric: null };
  let content = null;
  const legend = el("div", {
    class: "legend",
    role: "group",
    "aria-label": "methods: show or hide",
  });
  const controls = el("div", { class: "controls" });
  const grid = el("div", { class: "charts" });
  const charts = {};
  const about = el("p", { class: "about" });
  const node = section("curves", "Curves", about, controls, legend, grid);
  let shownParts = ""; // the axes and charts that are shown

  const lineOf = (line, name) => {
    const y = line.y[name] ?? { mean: [], half: null };
    return {
      ...line,
      x: y.mean.length ? (line.x[state.across] ?? []) : [],
      mean: line.x[state.across] ? y.mean : [],
      half: line.x[state.across] ? y.half : null,
    };
  };

  function draw() {
    const shown = content.curves.filter((line) => !state.hidden.has(line.label));
    for (const [name, quantity] of Object.entries(quantitiesOf(content.metrics, state.metric))) {
      const drawn = charts[name];
      if (!drawn) continue;
      const lines = shown.map((line) => ({
        ...lineOf(line, name),
        early: line.early.map((l) => lineOf(l, name)),
      }));
      const y = { ...quantity, log: quantity.log && state.log };
      drawn.update({ lines, x: { label: AXES[state.across] }, y, targets: quantity.targets });
    }
  }

  function update(next) {
    content = next;
    const all = content.curves.flatMap((line) => [line, ...line.early]);
    const has = (part, name) => all.some((line) => name in line[part]);
    const axes = Object.keys(AXES).filter((name) => has("x", name));
    const measured = content.metrics.map(({ name }) => name).filter((name) => has("y", name));
    if (!measured.includes(state.metric)) state.metric = measured[0] ?? content.metrics[0].name;
    const quantities = quantitiesOf(content.metrics, state.metric);
    const panels = Object.keys(quantities).filter((name) => has("y", name));
    const hasBands = content.curves.some((line) => Object.values(line.y).some((y) => y.half));
    const early = all.some((line) => line.ended);
    const hasTargets = Object.values(quantities).some(({ targets }) => targets.length > 0);
    about.textContent = [
      hasBands
        ? "Lines are means over the seeds, bands their 95 % intervals at each round."
        : "One seed each: there are no bands.",
      hasTargets ? "Dotted: the targets." : "",
      early ? "A cross: here a run ended before its time." : "",
    ].join(" ");
    const key = JSON.stringify([axes, panels, measured]);
    if (key !== shownParts) {
      shownParts = key;
      const log = el("input", {
        type: "checkbox",
        change: () => ((state.log = log.checked), draw()),
      });
      log.checked = state.log;
      controls.replaceChildren(
        measured.length > 1
          ? choices(
              "Metric",
              "metric",
              measured.map((name) => [name, name]),
              state.metric,
              (value) => ((state.metric = value), update(content)),
            )
          : "",
        axes.length > 1
          ? choices(
              "Across",
              "across",
              axes.map((name) => [
                name,
                { round: "rounds", bytes: "MB sent", simulated_seconds: "simulated seconds" }[name],
              ]),
              state.across,
              (value) => ((state.across = value), draw()),
            )
          : "",
        el(
          "label",
          { class: "field" },
          log,
          el("span", {}, "logarithmic losses, errors and distances"),
        ),
      );
      for (const name of panels) charts[name] ??= chart(quantities[name].label);
      grid.replaceChildren(...panels.map((name) => charts[name].node));
    }
    replaceIfChanged(
      legend,
      content.curves.map((line) => line.label),
      () => el("div", { class: "part" }, ...content.curves.map(legendButton)),
    );
    draw();
  }

  function legendButton(line) {
    const toggle = (event) => {
      const hide = !state.hidden.has(line.label);
      if (hide) state.hidden.add(line.label);
      else state.hidden.delete(line.label);
      event.currentTarget.setAttribute("aria-pressed", String(!hide));
      draw();
    };
    return el(
      "button",
      { type: "button", "aria-pressed": String(!state.hidden.has(line.label)), click: toggle },
      sample(line),
      el("span", {}, line.label),
    );
  }
  return { node, update };
}

/**
 * Replace what is in an element if its source has changed; otherwise the focus stays where it is.
 */
function replaceIfChanged(element, source, make) {
  const key = JSON.stringify(source);
  if (element.sourceKey === key) return;
  element.sourceKey = key;
  element.replaceChildren(make());
}

/**
 * Create the section with the network over time and the curve of every device, for one run at a
 * time. `table(k)` is a promise of the columns of run k. With `follow` the newest round is shown
 * until the reader moves to another one.
 */
export function networkSection(table, follow = false) {
  const state = {
    run: 0,
    quantity: null,
    frame: Infinity,
    device: null,
    order: "worst",
    scale: "all",
    playing: null,
  };
  let content = null;
  let shown = null; // what is drawn: a column of the run, its frames and its range
  const reducedMotion = matchMedia("(prefers-reduced-motion: reduce)");
  const runMenu = el("div", { class: "part" });
  const quantityMenu = el("div", { class: "part" });
  const scaleMenu = menu(
    "Colour scale",
    [
      ["all", "of all rounds"],
      ["one", "of this round"],
    ],
    state.scale,
    (scale) => ((state.scale = scale), draw()),
  );
  const slider = el("input", {
    type: "range",
    min: 0,
    step: 1,
    value: 0,
    input: () => (stop(), showFrame(Number(slider.value))),
  });
  // A screen reader reads the slider's own text.
  const roundText = el("output", { "aria-live": "off" });
  const play = el(
    "button",
    { type: "button", class: "play", click: () => (state.playing ? stop() : start()) },
    "Play",
  );
  const timeline = el(
    "div",
    { class: "timeline" },
    play,
    el("label", { class: "field wide" }, el("span", {}, "Round"), slider),
    roundText,
  );
  const picture = networkPicture(selectDevice);
  const multiples = smallMultiples(selectDevice);
  const about = el("p", { class: "about" });
  const deviceInput = el("input", {
    type: "number",
    min: 0,
    step: 1,
    placeholder: "none",
    input: () => selectDevice(deviceInput.value === "" ? null : Number(deviceInput.value)),
  });
  const controls = el(
    "div",
    { class: "controls" },
    runMenu,
    quantityMenu,
    scaleMenu,
    el("label", { class: "field" }, el("span", {}, "Device"), deviceInput),
  );
  const drawing = el("div", {}, timeline, picture.node);
  const missing = el("p", { class: "about" });
  const order = menu(
    "Order",
    [
      ["worst", "worst first"],
      ["number", "by number"],
    ],
    "worst",
    (value) => ((state.order = value), drawMultiples()),
  );
  const devicesPart = el(
    "div",
    {},
    el("h3", {}, "Each device"),
    el("div", { class: "controls" }, order),
    multiples.node,
  );
  const node = section(
    "network",
    "The network and its devices",
    about,
    controls,
    drawing,
    missing,
    devicesPart,
  );

  function start() {
    if (Number(slider.value) >= Number(slider.max)) showFrame(0);
    state.playing = setInterval(
      () =>
        Number(slider.value) < Number(slider.max) ? showFrame(Number(slider.value) + 1) : stop(),
      reducedMotion.matches ? 1000 : 125,
    );
    play.textContent = "Pause";
  }
  function stop() {
    clearInterval(state.playing);
    state.playing = null;
    play.textContent = "Play";
  }

  function showFrame(frame) {
    state.frame = frame;
    slider.value = frame;
    const round = shown.frames[frame].round;
    const text = `after round ${round} of ${content.runs[state.run].rounds}`;
    slider.setAttribute("aria-valuetext", text);
    roundText.textContent = text;
    picture.frame(shown.frames[frame].place);
  }

  function selectDevice(device) {
    state.device = device;
    deviceInput.value = device ?? "";
    picture.select(device);
    drawMultiples();
  }

  const value = (column, row, device) => {
    const v = row == null || device >= column.devices ? NaN : column.at(row, device);
    return Number.isNaN(v) || !Number.isFinite(v) ? null : v;
  };

  function drawMultiples() {
    if (!shown || !shown.quantity) return;
    const { column, quantity, rows, rounds } = shown;
    const every = Math.max(1, Math.ceil(rows / 80));
    const kept = Array.from({ length: rows }, (_, r) => r).filter(
      (r) => (rows - 1 - r) % every === 0 && value(column, r, 0) != null,
    );
    if (!kept.length) return;
    const devices = Array.from({ length: column.devices }, (_, device) => ({
      device,
      values: kept.map((r) => value(column, r, device)),
    }));
    const mean = kept.map(
      (_, k) => devices.reduce((sum, d) => sum + (d.values[k] ?? 0), 0) / devices.length,
    );
    const colour =
      content.curves.find((line) => line.label === content.runs[state.run].label)?.colour ?? 0;
    multiples.show({
      rounds: kept.map((r) => rounds[r]),
      devices,
      mean,
      range: shown.range,
      quantity,
      colour,
      order: state.order,
      selected: state.device,
    });
  }

  async function draw() {
    const run = content.runs[state.run];
    const runColumns = await table(state.run);
    const rows = run.rows;
    const quantities = deviceQuantities(content.metrics);
    const offered = Object.keys(quantities).filter(
      (name) => runColumns.has(name) && runColumns.get(name).values.some(Number.isFinite),
    );
    if (!offered.includes(state.quantity)) state.quantity = offered[0] ?? null;
    const network = run.network == null ? null : await unpackNetwork(content.networks[run.network]);
    if (run !== content.runs[state.run]) return; // the reader has selected another run meanwhile
    const column = runColumns.get(state.quantity);
    const quantity = quantities[state.quantity];
    const rounds = rows ? Array.from(runColumns.get("round").values, Number) : [];
    const range = column
      ? colourRange([Array.from(column.values).filter(Number.isFinite)], quantity.zero)
      : [0, 1];
    const rowOf = new Map(rounds.map((round, row) => [round, row]));
    const frames = network
      ? network.rounds
          .map((round, place) => ({ round, place }))
          .filter(
            ({ round }) =>
              rowOf.has(round) && (!column || value(column, rowOf.get(round), 0) != null),
          )
      : [];
    const atEnd = follow && (!shown || state.frame >= shown.frames.length - 1);
    shown = { column, quantity, rows, rounds, range, frames };

    drawing.hidden = !frames.length || !column;
    devicesPart.hidden = !column;
    missing.hidden = !drawing.hidden;
    const why = run.why ?? "none of its rounds has been measured yet";
    missing.textContent = !column
      ? "There are no measurements of single devices in this run: " +
        "they are kept of up to 1,000 devices."
      : `The network of this run is not shown: ${why}.`;
    about.textContent = network ? description(network, frames, rounds) : "";
    const options = content.runs.map((r, k) => {
      const state = r.finished || r.state.startsWith("running") ? "" : ` (${r.state})`;
      return [k, `${r.label}, seed ${r.seed}${state}`];
    });
    replaceIfChanged(runMenu, options, () =>
      menu("Run", options, state.run, (k) => (stop(), (state.run = Number(k)), draw())),
    );
    replaceIfChanged(quantityMenu, offered, () => {
      const named = offered.map((name) => [name, quantities[name].short]);
      return named.length > 1
        ? choices(
            "Colour by",
            "quantity",
            named,
            state.quantity,
            (name) => ((state.quantity = name), draw()),
          )
        : "";
    });
    deviceInput.max = (column?.devices ?? 1) - 1;
    if (!drawing.hidden) {
      const values = (round, device) => value(column, rowOf.get(round), device);
      const ofRound = (round) =>
        colourRange([network.shown.map((device) => values(round, device))], false);
      picture.show({
        network,
        values,
        quantity,
        range: state.scale === "one" ? ofRound : () => range,
      });
      picture.select(state.device);
      slider.max = frames.length - 1;
      showFrame(atEnd ? frames.length - 1 : Math.min(state.frame, frames.length - 1));
    }
    drawMultiples();
  }

  function description(network, frames, rounds) {
    const parts = [
      "Links are those of the last round before the measurement; at the start nobody has met.",
    ];
    if (network.moving) parts.push("Devices are drawn where they are.");
    else parts.push("Where a device is drawn means nothing.");
    if (network.here) parts.push("Dashed: away.");
    if (network.shown.length < network.devices)
      parts.push(
        `${network.shown.length} of ${network.devices.toLocaleString("en-GB")} devices ` +
          "are drawn, evenly chosen by number, with the links among them.",
      );
    if (frames.length && frames.length < rounds.length)
      parts.push(`${frames.length} of ${rounds.length} measured rounds are drawn.`);
    return parts.join(" ");
  }

  let drawnKey = "";
  /** Take new content; the network is drawn again only if there is more of it. */
  async function update(next) {
    content = next;
    state.run = Math.min(state.run, content.runs.length - 1);
    const run = content.runs[state.run];
    const key = JSON.stringify([state.run, run.rows, run.network, run.state]);
    if (key === drawnKey) return;
    drawnKey = key;
    await draw();
  }
  return { node, update };
}

/** Create the section with each run's state, its exact data, and how to repeat it. */
export function runsSection(content, table) {
  const file = (run) => `${run.name.replaceAll(/[^\w.-]+/g, "-")}`;
  async function save(list, name) {
    const parts = [];
    for (const [position, k] of list.entries()) {
      const run = content.runs[k];
      const constants = list.length > 1 ? { run: run.name, method: run.label, seed: run.seed } : {};
      parts.push(
        ...csvLines(
          await table(k),
          run.rows,
          constants,
          position === 0 || !sameColumns(content.runs[list[0]], run),
        ),
      );
    }
    download(name, "text/csv", parts);
  }
  const sameColumns = (a, b) =>
    JSON.stringify(a.columns.map((c) => [c.name, c.devices])) ===
    JSON.stringify(b.columns.map((c) => [c.name, c.devices]));
  const all = sortable("Runs");
  const text = (value) => ({ text: String(value), value });
  const number = (value, shown) => ({ text: shown, value });
  all.update({
    columns: [
      { label: "run" },
      { label: "method" },
      { label: "seed", number: true },
      { label: "state" },
      { label: "took", unit: "on the computer", number: true },
      { label: "data", about: "every measurement, exact" },
    ],
    rows: content.runs.map((run, k) => [
      text(run.name),
      text(run.label),
      number(run.seed, String(run.seed)),
      text(run.state),
      number(run.seconds, duration(run.seconds)),
      {
        value: k,
        node: run.rows
          ? el(
              "button",
              {
                type: "button",
                click: () => save([k], `${file(run)}.csv`),
                "aria-label": `CSV of ${run.name}`,
              },
              "CSV",
            )
          : "none yet",
      },
    ]),
  });
  const columnsDiffer = content.runs.some((run) => !sameColumns(run, content.runs[0]));
  const everything = el(
    "button",
    {
      type: "button",
      click: () =>
        save(
          content.runs.map((_, k) => k).filter((k) => content.runs[k].rows),
          "runs.csv",
        ),
    },
    "CSV of all runs",
  );
  const repeat = content.runs.map((run) => {
    const versions = Object.entries(run.versions)
      .map(([name, v]) => `${name} ${v}`)
      .join(", ");
    return el(
      "details",
      {},
      el("summary", {}, `${run.label}, seed ${run.seed}`, el("small", {}, run.name)),
      run.command ? el("p", {}, "It was run by ", el("code", {}, run.command)) : null,
      el(
        "p",
        {},
        "This spec, saved as ",
        el("code", {}, "spec.toml"),
        ", repeats it: ",
        el("code", {}, "gossamer run spec.toml"),
        " ",
        el(
          "button",
          {
            type: "button",
            click: () => download("spec.toml", "application/toml", [run.spec]),
            "aria-label": `spec.toml of ${run.name}`,
          },
          "Save spec.toml",
        ),
      ),
      versions ? el("p", { class: "about" }, `With ${versions}.`) : null,
      el("pre", { tabindex: "0", "aria-label": `spec of ${run.name}` }, run.spec),
    );
  });
  return section(
    "runs",
    "Runs, data, and how to repeat them",
    el(
      "p",
      { class: "about" },
      "The CSV files hold every measurement to the last digit.",
      columnsDiffer ? " Runs with other columns begin with a heading line of their own." : null,
    ),
    all.node,
    content.runs.length > 1 ? el("p", {}, everything) : null,
    el("h3", {}, "Repeat a run"),
    ...repeat,
  );
}
