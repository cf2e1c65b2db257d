// Which runs are shown, and how they are grouped: by method, by run, or by any setting.
import { el, menu } from "./elements.js";
import { parseList, remember, remembered, formatList } from "./address.js";
import { AXES } from "./quantities.js";
import { averaged } from "./statistics.js";

const MAX_VALUES = 12; // values of a setting that are offered one by one

/** Return a setting's value as text. */
export function settingText(value) {
  if (value == null) return "not set";
  return typeof value === "number" ? String(Number(value.toPrecision(6))) : String(value);
}

/** Return the settings by which runs can be grouped: method, seed, and those that differ. */
export function groupings(content) {
  const seeds = content.runs.map((run) => run.seed);
  const labels = content.runs.map((run) => run.label);
  const all = [{ name: "method", values: labels }, ...content.settings];
  if (new Set(seeds).size > 1) all.push({ name: "seed", values: seeds });
  if (content.runs.length > content.curves.length)
    all.push({ name: "run", values: content.runs.map((run) => run.name) });
  return all.filter(({ values }) => new Set(values).size > 1);
}

/** Return the groups of the runs that are on, in the order of the page: label, runs and number. */
export function groupsOf(content, by, off) {
  const known = groupings(content).find(({ name }) => name === by);
  const values = known?.values ?? content.runs.map((run) => run.label);
  const plain = !known || by === "method" || by === "run";
  const numbers = new Map([...new Set(values)].map((value, number) => [value, number]));
  const groups = new Map();
  values.forEach((value, k) => {
    if (off.has(content.runs[k].name) || !content.runs[k].rows) return;
    const label = plain ? String(value) : `${by} ${settingText(value)}`;
    const number = numbers.get(value);
    const group = groups.get(value) ?? { label, number, runs: [] };
    group.runs.push(k);
    groups.set(value, group);
  });
  return [...groups.values()].sort((a, b) => a.number - b.number);
}

/** Return the colour and the dash of line number k, as the palette of the project has them. */
export function lineStyle(k, dashes) {
  const count = dashes.length;
  return { colour: k % count, dash: dashes[(k + Math.floor(k / count)) % count] };
}

/** Return the columns of a run that have one value per row, as lists of numbers. */
export function plainColumns(table) {
  const plain = new Map();
  for (const { name, devices, values } of table.values())
    if (!devices) plain.set(name, Array.from(values, Number));
  return plain;
}

/** Return a line per group, with the columns of `names` by all axes. */
export function groupLines(content, groups, tables, names) {
  const axes = Object.fromEntries(Object.entries(AXES).map(([name, { scale }]) => [name, scale]));
  return groups.map(({ label, number, runs }) => {
    const finished = runs.filter((k) => content.runs[k].finished);
    const main = finished.length ? finished : runs;
    const style = lineStyle(number, content.dashes);
    const line = (list) =>
      averaged(
        list.map((k) => tables.get(k)),
        axes,
        names,
      );
    const early = runs
      .filter((k) => !main.includes(k))
      .map((k) => {
        const { label: method, seed, state } = content.runs[k];
        return { ...style, label: `${method}, seed ${seed}`, ended: state, ...line([k]) };
      });
    return { ...style, label, ended: "", early, ...line(main), runs: main };
  });
}

/**
 * Create the controls that select and group runs. `onChange` is called when the reader changes
 * them; `off` is a set of names of runs that are not shown.
 */
export function runSelection(onChange) {
  const off = new Set(parseList(remembered("off")));
  const state = { by: remembered("group") ?? "method", off };
  const controls = el("div", { class: "controls" });
  const filters = el("div", { class: "filters" });
  const node = el("details", {}, el("summary", {}, "Select and group runs"), controls, filters);
  node.open = off.size > 0 || state.by !== "method";
  let content = null;

  function changed() {
    remember({
      off: formatList([...off]),
      group: state.by === "method" ? null : state.by,
    });
    showFilters();
    onChange();
  }

  function showFilters() {
    for (const box of filters.querySelectorAll("input")) {
      const on = box.runs.filter((name) => !off.has(name)).length;
      box.checked = on > 0;
      box.indeterminate = on > 0 && on < box.runs.length;
    }
  }

  function set(names, on) {
    for (const name of names) {
      if (on) off.delete(name);
      else off.add(name);
    }
    changed();
  }

  function checkbox(text, runs) {
    const box = el("input", { type: "checkbox", change: () => set(runs, box.checked) });
    box.runs = runs;
    return el("label", {}, box, el("span", {}, text));
  }

  function filter({ name, values }) {
    const runsBy = new Map();
    values.forEach((value, k) => {
      runsBy.set(value, [...(runsBy.get(value) ?? []), content.runs[k].name]);
    });
    if (runsBy.size > MAX_VALUES && name !== "run") return null;
    const boxes = [...runsBy].map(([value, runs]) => checkbox(settingText(value), runs));
    return el("fieldset", { class: "choices" }, el("legend", {}, name), ...boxes);
  }

  let shown = "";
  /** Take new content; the controls are only replaced if their runs or settings have changed. */
  function update(next) {
    content = next;
    const offered = groupings(content);
    const key = JSON.stringify(offered);
    node.hidden = !offered.length;
    if (key === shown) return;
    shown = key;
    if (!offered.some(({ name }) => name === state.by)) state.by = "method";
    const options = offered.map(({ name }) => [name, name]);
    if (!options.some(([name]) => name === "method")) options.unshift(["method", "method"]);
    const all = () => (off.clear(), changed());
    controls.replaceChildren(
      menu("Group by", options, state.by, (by) => ((state.by = by), changed())),
      el("button", { type: "button", click: all }, "Show all runs"),
    );
    filters.replaceChildren(...offered.map(filter).filter(Boolean));
    showFilters();
  }

  /** Show only the runs of some names; null shows all. */
  function only(names) {
    off.clear();
    if (names) for (const { name } of content.runs) if (!names.has(name)) off.add(name);
    changed();
  }
  return { node, state, update, only };
}
