// The section with the curves: which runs, by what, and how they are drawn.
import { choices, el, menu } from "./elements.js";
import { chart } from "./chart.js";
import { formatList, formatRange, parseList, parseRange, remember, remembered } from "./address.js";
import { parallelCoordinates } from "./parallel.js";
import { sample } from "./plot.js";
import { AXES, leastOf, quantitiesOf } from "./quantities.js";
import { acrossRange, valueRange } from "./scale.js";
import { section } from "./sections.js";
import { groupLines, groupsOf, plainColumns, runSelection } from "./selection.js";
import { sortable } from "./table.js";
import { formatNumber } from "./numbers.js";
import { extent } from "./numbers.js";

const SPREADS = [
  ["band", "bands"],
  ["seeds", "single seeds"],
  ["none", "none"],
];

/** Return a check box with a label; `change` is called with its state. */
function checkbox(text, on, change) {
  const box = el("input", { type: "checkbox", change: () => change(box.checked) });
  box.checked = on;
  return el("label", { class: "field" }, box, el("span", {}, text));
}

/**
 * Create the section with the curves. `table(k)` is a promise of the exact columns of run k, which
 * are needed only where the reader groups runs, or looks at single seeds.
 */
export function curvesSection(table) {
  const state = {
    across: remembered("x") ?? "round",
    log: remembered("log") === "1",
    logAcross: remembered("logx") === "1",
    same: remembered("same") === "1",
    spread: remembered("spread") ?? "band",
    smooth: Math.min(Math.max(Number(remembered("smooth")) || 0, 0), 0.99),
    zoom: parseRange(remembered("zoom")),
    hidden: new Set(parseList(remembered("hide"))),
    metric: remembered("metric") ?? null,
  };
  let content = null;
  let drawing = 0; // counts the drawings: a later one replaces one that still waits for its data
  let shownParts = ""; // the axes and charts that are shown
  const legend = el("div", {
    class: "legend",
    role: "group",
    "aria-label": "lines: show or hide",
  });
  const controls = el("div", { class: "controls" });
  const grid = el("div", { class: "charts" });
  const charts = {};
  const about = el("p", { class: "about" });
  const selection = runSelection(() => draw());
  const parallel = parallelCoordinates((names) => selection.only(names));
  const selected = sortable("Newest values of the selected groups");
  const selectedPart = el("div", { hidden: true }, el("h3", {}, "Selected groups"), selected.node);
  const node = section(
    "curves",
    "Curves",
    about,
    selection.node,
    controls,
    legend,
    grid,
    selectedPart,
    parallel.node,
  );

  const isDefault = () =>
    selection.state.by === "method" &&
    !content.runs.some(({ name }) => selection.state.off.has(name));

  const lineOf = (line, name) => {
    const y = line.y[name] ?? { mean: [], half: null };
    const x = y.mean.length ? line.x[state.across] : null;
    const half = state.spread === "band" ? y.half : null;
    return { ...line, x: x ?? [], mean: x ? y.mean : [], half: x ? half : null };
  };

  /** Return the lines of all groups, with their seeds where they are shown. */
  async function allLines(names) {
    const plain = isDefault();
    if (plain && state.spread !== "seeds") return content.curves;
    const groups = groupsOf(content, selection.state.by, selection.state.off);
    const tables = new Map();
    for (const k of groups.flatMap(({ runs }) => runs)) tables.set(k, plainColumns(await table(k)));
    const grouped = groupLines(content, groups, tables, names);
    const lines = plain ? content.curves : grouped;
    if (state.spread !== "seeds") return lines;
    const byLabel = new Map(grouped.map((line) => [line.label, line]));
    return lines.map((line) => {
      const runs = byLabel.get(line.label)?.runs ?? [];
      const alone = groups.filter(({ label }) => label === line.label);
      const single = (k) => groupLines(content, [{ ...alone[0], runs: [k] }], tables, names)[0];
      const seedLine = (k) => ({
        ...single(k),
        label: `${line.label}, seed ${content.runs[k].seed}`,
      });
      return { ...line, seeds: runs.length > 1 ? runs.map(seedLine) : [] };
    });
  }

  /** Draw all charts; the default lines are drawn at once, others when their data are unpacked. */
  function draw() {
    const own = ++drawing;
    const quantities = quantitiesOf(content.metrics, state.metric);
    const names = Object.keys(quantities);
    if (isDefault() && state.spread !== "seeds") {
      show(content.curves, quantities);
      return;
    }
    allLines(names).then((lines) => own === drawing && show(lines, quantities));
  }

  function show(lines, quantities) {
    const shown = lines.filter((line) => !state.hidden.has(line.label));
    const drawn = {};
    for (const [name, quantity] of Object.entries(quantities)) {
      if (!charts[name]) continue;
      const own = (line) => lineOf(line, name);
      const parts = (line) => ({ early: line.early.map(own), seeds: (line.seeds ?? []).map(own) });
      const all = shown.map((line) => ({ ...own(line), ...parts(line) }));
      const log = quantity.log && state.log;
      drawn[name] = { lines: all, y: { ...quantity, log, least: leastOf(quantity, all) } };
    }
    if (state.same) shareRange(drawn);
    const x = { label: AXES[state.across].label, log: state.logAcross };
    const { zoom, smooth } = state;
    for (const [name, { lines: own, y }] of Object.entries(drawn))
      charts[name].update({ lines: own, x, y, targets: y.targets, zoom, smooth });
    replaceIfChanged(
      legend,
      lines.map(({ label, colour, dash }) => [label, colour, dash]),
      () => el("div", { class: "part" }, ...lines.map(legendButton)),
    );
    showSelected(lines, quantities);
  }

  /** Give all charts of the chosen metric the same axis. */
  function shareRange(drawn) {
    const own = Object.values(drawn).filter(({ y }) => y.of === state.metric);
    const ranges = own.map(({ lines, y }) => {
      const all = lines.flatMap((line) => [line, ...line.seeds]);
      const across = state.zoom ?? acrossRange(all, state.logAcross);
      return all.some(({ mean }) => mean.length) ? valueRange(all, y, across) : [];
    });
    const range = extent(ranges);
    if (range) for (const one of own) one.y.range = range;
  }

  /** Show the newest values of groups that are not those of the table of results. */
  function showSelected(lines, quantities) {
    selectedPart.hidden = isDefault();
    if (isDefault()) return;
    const names = Object.keys(quantities).filter((name) => lines.some((line) => name in line.y));
    const cell = ({ mean, half }, scale) => {
      const last = mean.findLastIndex((v) => v != null);
      if (last < 0) return { text: "–", value: null };
      const interval = half?.[last] != null ? ` ± ${formatNumber(half[last] * scale, 2)}` : "";
      return { text: formatNumber(mean[last] * scale) + interval, value: mean[last] };
    };
    selected.update({
      columns: [
        { label: "group" },
        { label: "runs", number: true },
        ...names.map((name) => ({ label: quantities[name].label, number: true })),
      ],
      rows: lines.map((line) => [
        { text: line.label, value: line.label },
        { text: String(line.runs.length), value: line.runs.length },
        ...names.map((name) => cell(line.y[name] ?? { mean: [] }, quantities[name].scale)),
      ]),
    });
  }

  function setZoom(range) {
    state.zoom = range;
    remember({ zoom: formatRange(range) });
    draw();
  }

  /** Set a part of the state, write it into the address, and draw. */
  function set(entries, address) {
    Object.assign(state, entries);
    remember(address);
    draw();
  }

  function showControls(axes, measured) {
    const smooth = el("input", {
      type: "range",
      min: 0,
      max: 0.99,
      step: 0.01,
      input: () => set({ smooth: Number(smooth.value) }, { smooth: Number(smooth.value) || null }),
    });
    smooth.value = state.smooth;
    const chooseMetric = (metric) => {
      Object.assign(state, { metric });
      remember({ metric });
      update(content);
    };
    const chooseAxis = (across) =>
      set({ across, zoom: null }, { x: across === "round" ? null : across, zoom: null });
    const flag = (key, name) => (on) => set({ [key]: on }, { [name]: on ? "1" : null });
    const named = axes.map((name) => [name, AXES[name].choice]);
    const metrics = measured.map((name) => [name, name]);
    const onlyOne = !content.curves.some((line) => Object.values(line.y).some((y) => y.half));
    controls.replaceChildren(
      ...[
        metrics.length > 1 ? choices("Metric", "metric", metrics, state.metric, chooseMetric) : "",
        named.length > 1 ? choices("Across", "across", named, state.across, chooseAxis) : "",
        checkbox("logarithmic losses, errors and distances", state.log, flag("log", "log")),
        checkbox("log x", state.logAcross, (on) =>
          set({ logAcross: on, zoom: null }, { logx: on ? "1" : null, zoom: null }),
        ),
        checkbox("one scale for mean, merged, worst and best", state.same, flag("same", "same")),
        el("label", { class: "field" }, el("span", {}, "Smoothing"), smooth),
        onlyOne
          ? ""
          : menu("Seeds as", SPREADS, state.spread, (spread) =>
              set({ spread }, { spread: spread === "band" ? null : spread }),
            ),
      ],
    );
  }

  function update(next) {
    content = next;
    const all = content.curves.flatMap((line) => [line, ...line.early]);
    const has = (part, name) => all.some((line) => name in line[part]);
    const axes = Object.keys(AXES).filter((name) => has("x", name));
    if (!axes.includes(state.across)) state.across = "round";
    const measured = content.metrics.map(({ name }) => name).filter((name) => has("y", name));
    if (!measured.includes(state.metric)) state.metric = measured[0] ?? content.metrics[0].name;
    const quantities = quantitiesOf(content.metrics, state.metric);
    const panels = Object.keys(quantities).filter((name) => has("y", name));
    const hasBands = content.curves.some((line) => Object.values(line.y).some((y) => y.half));
    const early = all.some((line) => line.ended);
    const hasTargets = Object.values(quantities).some(({ targets }) => targets.length > 0);
    about.textContent = [
      hasBands
        ? "Lines are means over the seeds, bands their 95 % intervals at each round, as far as " +
          "such values are possible."
        : "One seed each: there are no bands.",
      hasTargets ? "Dotted: the targets." : "",
      early ? "A cross: here a run ended before its time." : "",
      "Drag over a chart to zoom in, double-click to reset.",
    ].join(" ");
    const key = JSON.stringify([axes, panels, measured, hasBands]);
    if (key !== shownParts) {
      shownParts = key;
      showControls(axes, measured);
      for (const name of Object.keys(charts)) if (!panels.includes(name)) delete charts[name];
      for (const name of panels) charts[name] ??= chart(quantities[name].label, setZoom);
      grid.replaceChildren(...panels.map((name) => charts[name].node));
    }
    selection.update(content);
    parallel.update(content);
    draw();
  }

  function legendButton(line) {
    const toggle = (event) => {
      const hide = !state.hidden.has(line.label);
      if (hide) state.hidden.add(line.label);
      else state.hidden.delete(line.label);
      event.currentTarget.setAttribute("aria-pressed", String(!hide));
      remember({ hide: formatList([...state.hidden]) });
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
export function replaceIfChanged(element, source, make) {
  const key = JSON.stringify(source);
  if (element.sourceKey === key) return;
  element.sourceKey = key;
  element.replaceChildren(make());
}
