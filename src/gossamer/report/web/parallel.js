// Parallel coordinates: an axis per setting and one for the result, a line per method.
import { el, svg, whenSized } from "./elements.js";
import { savePng, saveSvg } from "./export.js";
import { extent, formatNumber } from "./numbers.js";
import { viridis } from "./colours.js";
import { settingText } from "./selection.js";

const HEIGHT = 300;
const TOP = 34;
const BOTTOM = 24;
const SIDE = 70;
const AXIS_WIDTH = 120; // pixels from one axis to the next, at least
const LEAST_METHODS = 4;
const LOG_SPAN = 30; // ratio of a setting's values from which its axis is logarithmic

/**
 * Return an axis for the values of a setting: `place(value)` is from 0 to 1, `ends` are its texts.
 * Numbers that span much are placed by their logarithm, texts one above the other.
 */
export function parallelAxis(name, values) {
  const known = values.filter((v) => v != null);
  const numeric = known.length > 0 && known.every((v) => typeof v === "number");
  if (numeric && new Set(known).size > 1) {
    const [low, high] = extent([known]);
    const log = low > 0 && high / low >= LOG_SPAN;
    const into = log ? Math.log : (v) => v;
    const place = (v) => (v == null ? null : (into(v) - into(low)) / (into(high) - into(low)));
    return { name, place, marks: [...new Set(known)], log };
  }
  const texts = [...new Set(values.map(settingText))];
  const place = (v) => (texts.indexOf(settingText(v)) + 0.5) / texts.length;
  return { name, place, marks: [...new Set(values)], log: false };
}

/** Return the entries of a page for at most so many axes: a method's values, result and runs. */
export function parallelEntries(content, most) {
  const settings = content.settings.filter(({ values }) => new Set(values).size > 1);
  const names = settings.slice(0, most).map(({ name }) => name);
  const column = content.results.columns.findIndex(
    ({ label }) => label === content.metrics[0].name,
  );
  const entries = content.results.rows.map((row) => {
    const label = row[0].text;
    const runs = content.runs.map((_, k) => k).filter((k) => content.runs[k].label === label);
    const values = settings.slice(0, most).map((setting) => setting.values[runs[0]] ?? null);
    return { label, runs, values, result: row[column]?.value ?? null };
  });
  const useful = names.length >= 2 && entries.length >= LEAST_METHODS;
  return { names, entries: useful ? entries : [] };
}

/**
 * Create the parallel coordinates of a page, or of a search: `title` and `noun` name what the lines
 * are. `onSelect(runs)` is called with the names of the runs within the
 * ranges that the reader draws on axes, or null for all.
 */
export function parallelCoordinates(
  onSelect,
  title = "Settings and result of each method",
  noun = "methods",
) {
  const picture = el("div", { class: "picture", role: "img", "aria-label": "" });
  const readout = el("p", { class: "facts" });
  const ranges = new Map(); // by axis: the selected part of it
  const all = el(
    "button",
    { type: "button", click: () => (ranges.clear(), draw(), onSelect(null)) },
    `All ${noun}`,
  );
  const save = (text, click) =>
    el("button", { type: "button", "aria-label": `save as ${text}: ${title}`, click }, text);
  const tools = el(
    "div",
    { class: "tools" },
    all,
    save("SVG", () => saveSvg(picture.firstChild, title, [])),
    save("PNG", () => savePng(picture.firstChild, title, [])),
  );
  const node = el(
    "figure",
    { class: "chart parallel", hidden: true },
    el("div", { class: "head" }, el("figcaption", {}, title), tools),
    el("p", { class: "about" }, "Drag along an axis to select a range."),
    picture,
    readout,
  );
  let content = null;
  let width = 0;

  const inside = (places) =>
    [...ranges].every(
      ([k, [from, to]]) => places[k] != null && places[k] >= from && places[k] <= to,
    );

  function draw() {
    if (!content || !width) return;
    const most = Math.max(2, Math.floor((width - 2 * SIDE) / AXIS_WIDTH));
    const { names, entries } = parallelEntries(content, most);
    node.hidden = !entries.length;
    if (!entries.length) return;
    const { name, unit, scale, rising } = content.metrics[0];
    const results = entries.map(({ result }) => result);
    const axes = names.map((label, k) =>
      parallelAxis(
        label,
        entries.map((e) => e.values[k]),
      ),
    );
    const resultLabel = unit ? `${name}, ${unit}` : name;
    axes.push(parallelAxis(resultLabel, results));
    const [low, high] = extent([results]) ?? [0, 1];
    const px = (k) => SIDE + (k / (axes.length - 1)) * (width - 2 * SIDE);
    const py = (place) => HEIGHT - BOTTOM - place * (HEIGHT - TOP - BOTTOM);
    const lines = entries.map((entry) => {
      const places = axes.map((axis, k) =>
        axis.place(entry.values[k] ?? (k < names.length ? null : entry.result)),
      );
      const d = places.map(
        (p, k) => `${k ? "L" : "M"}${px(k).toFixed(1)} ${py(p ?? -0.06).toFixed(1)}`,
      );
      const share = entry.result == null ? 0 : (entry.result - low) / (high - low || 1);
      const text = [
        entry.label,
        ...names.map((label, k) => `${label} ${settingText(entry.values[k])}`),
        `${name} ${formatNumber(entry.result)} ${unit}`.trim(),
      ].join(", ");
      const chosen = inside(places);
      return {
        entry,
        chosen,
        node: svg(
          "path",
          {
            d: d.join(""),
            class: chosen ? "way" : "way off",
            stroke: viridis(rising ? share : 1 - share),
            pointerenter: () => (readout.textContent = text),
          },
          svg("title", {}, text),
        ),
      };
    });
    const columns = axes.map((axis, k) => axisPicture(axis, k, px(k), py, k === names.length));
    picture.replaceChildren(
      svg(
        "svg",
        { viewBox: `0 0 ${width} ${HEIGHT}`, "aria-hidden": "true" },
        ...lines.sort((a, b) => a.chosen - b.chosen).map((line) => line.node),
        ...columns,
      ),
    );
    picture.setAttribute(
      "aria-label",
      `${title}: ${entries.length} ${noun} by ${names.join(", ")} and ${name}`,
    );
    all.hidden = !ranges.size;
    return lines;
  }

  function axisPicture(axis, k, x, py, isResult) {
    let free = Infinity; // texts must not overlap
    const texts = [...axis.marks]
      .sort((a, b) => (axis.place(a) ?? -1) - (axis.place(b) ?? -1))
      .map((value) => {
        const y = py(axis.place(value) ?? -0.06) + 4;
        if (y > free) return null;
        free = y - 14;
        const text = isResult ? formatNumber(value) : settingText(value);
        const shown = text.length > 12 ? `${text.slice(0, 11)}…` : text;
        return svg("text", { x: x + 6, y }, shown);
      });
    const range = ranges.get(k);
    const brush = svg("rect", {
      class: "chosen",
      x: x - 8,
      width: 16,
      y: range ? py(range[1]) : 0,
      height: range ? py(range[0]) - py(range[1]) : 0,
    });
    const grip = svg("rect", {
      class: "grip",
      x: x - 12,
      y: TOP - 8,
      width: 24,
      height: HEIGHT - TOP - BOTTOM + 16,
    });
    const placeOf = (event) => {
      const pixel = event.clientY - picture.getBoundingClientRect().top;
      return (HEIGHT - BOTTOM - pixel) / (HEIGHT - TOP - BOTTOM);
    };
    let from = null;
    grip.addEventListener("pointerdown", (event) => {
      from = placeOf(event);
      grip.setPointerCapture(event.pointerId);
    });
    grip.addEventListener("pointermove", (event) => {
      if (from == null) return;
      const [low, high] = [from, placeOf(event)].sort((a, b) => a - b);
      brush.setAttribute("y", py(high));
      brush.setAttribute("height", py(low) - py(high));
    });
    grip.addEventListener("pointerup", (event) => {
      const [low, high] = [from, placeOf(event)].sort((a, b) => a - b);
      from = null;
      if (high - low < 0.02) ranges.delete(k);
      else ranges.set(k, [low, high]);
      const chosen = draw().filter((line) => line.chosen);
      const names = chosen.flatMap(({ entry }) => entry.runs.map((run) => content.runs[run].name));
      onSelect(ranges.size ? new Set(names) : null);
    });
    const last = axis.name.replace(/^.*\./, "");
    const name = last.length > 16 ? `${last.slice(0, 15)}…` : last;
    return svg(
      "g",
      {},
      svg("path", { d: `M${x} ${py(0)}V${py(1)}`, class: "axis" }),
      svg("text", { x, y: 16, "text-anchor": "middle", class: "title" }, name),
      ...texts,
      brush,
      grip,
    );
  }

  whenSized(picture.parentNode, (now) => {
    width = now;
    draw();
  });

  function update(next) {
    content = next;
    // A hidden figure has no width: it is shown before it is drawn.
    node.hidden = !parallelEntries(content, 2).entries.length;
    draw();
  }
  return { node, update };
}
