// Contacts as a timeline: a row per device, rounds across, darker where there are more links.
import { el, svg, whenSized } from "./elements.js";
import { savePng, saveSvg } from "./export.js";
import { ticks } from "./numbers.js";

const MAX_COLUMNS = 400;
const MAX_ROWS = 60; // partners of a selected device
const LEVELS = 4; // of darkness
const LEFT = 44;
const RIGHT = 10;
const BOTTOM = 34;
const TITLE = "Contacts by round";

/**
 * Count the links of devices over time. Returns `rows`, each with its device and its counts by
 * column, for all devices; or for the devices that one of them has met, most often first.
 */
export function countContacts(network, frames, selected) {
  const columns = Math.min(frames.length, MAX_COLUMNS);
  const n = network.shown.length;
  const counts = Array.from({ length: n }, () => new Array(columns).fill(0));
  const own = network.shown.indexOf(selected);
  frames.forEach(({ place }, k) => {
    const column = Math.floor((k * columns) / frames.length);
    for (const [a, b] of network.links(place)) {
      if (own < 0 || b === own) counts[a][column]++;
      if (own < 0 || a === own) counts[b][column]++;
    }
  });
  const rows = counts.map((row, i) => ({
    device: network.shown[i],
    counts: row,
    sum: row.reduce((sum, count) => sum + count, 0),
  }));
  if (own < 0) return { columns, rows };
  const met = rows.filter(({ sum, device }) => sum && device !== selected);
  met.sort((a, b) => b.sum - a.sum || a.device - b.device);
  return { columns, rows: met };
}

/** Return the paths of the levels: the cells of a table whose count has that level. */
export function levelPaths(rows, px, py, height) {
  const most = Math.max(1, ...rows.map(({ counts }) => Math.max(0, ...counts)));
  const paths = new Array(LEVELS).fill("");
  rows.forEach(({ counts }, row) => {
    const level = counts.map((count) => Math.ceil((count / most) * LEVELS) - 1);
    for (let from = 0; from < level.length;) {
      let to = from + 1;
      while (to < level.length && level[to] === level[from]) to++;
      if (level[from] >= 0) {
        const place = `M${px(from).toFixed(1)} ${py(row).toFixed(1)}`;
        paths[level[from]] +=
          `${place}H${px(to).toFixed(1)}v${height.toFixed(1)}H${px(from).toFixed(1)}z`;
      }
      from = to;
    }
  });
  return paths;
}

/**
 * Create the timeline. `show({ network, frames, selected })` draws it, `frame(k)` marks a round;
 * `onFrame(k)` is called with the round that the reader points at and clicks.
 */
export function contactTimeline(onFrame) {
  const about = el("p", { class: "about" });
  const picture = el("div", { class: "picture contacts", role: "img", "aria-label": TITLE });
  const save = (text, click) =>
    el(
      "button",
      { type: "button", "aria-label": `${text}: save as ${text} ${TITLE}`, click },
      text,
    );
  const node = el(
    "figure",
    { class: "chart" },
    el(
      "div",
      { class: "head" },
      el("figcaption", {}, TITLE),
      el(
        "div",
        { class: "tools" },
        save("SVG", () => saveSvg(picture.firstChild, TITLE, [])),
        save("PNG", () => savePng(picture.firstChild, TITLE, [])),
      ),
    ),
    about,
    picture,
  );
  let content = null;
  let counted = null;
  let countedOf = "";
  let width = 0;
  let shownFrame = 0;

  const across = () => width - LEFT - RIGHT;
  const frameAt = (event) => {
    const pixel = event.clientX - picture.getBoundingClientRect().left;
    const share = (pixel - LEFT) / across();
    const count = content.frames.length;
    return Math.min(Math.max(Math.floor(share * count), 0), count - 1);
  };
  picture.addEventListener("click", (event) => content && onFrame(frameAt(event)));

  function draw() {
    if (!content || !width) return;
    const { frames, selected } = content;
    const rows = selected == null ? counted.rows : counted.rows.slice(0, MAX_ROWS);
    const height = Math.max(3, Math.min(14, 420 / Math.max(1, rows.length)));
    const bottom = 4 + height * rows.length;
    const px = (column) => LEFT + (column / counted.columns) * across();
    const py = (row) => 4 + row * height;
    const every = Math.ceil(13 / height);
    const names = rows
      .filter((_, row) => row % every === 0)
      .map(({ device }, k) => {
        const y = py(k * every) + height / 2 + 4;
        return svg("text", { x: LEFT - 6, y, "text-anchor": "end" }, String(device));
      });
    const count = frames.length;
    const marks = ticks(0, count - 1, across() / 90)
      .values.filter((k) => Number.isInteger(k))
      .map((k) => {
        const x = LEFT + ((k + 0.5) / count) * across();
        const anchor = x + 24 > width ? "end" : "middle";
        return svg(
          "g",
          {},
          svg("path", { d: `M${x.toFixed(1)} ${bottom}v4`, class: "axis" }),
          svg("text", { x, y: bottom + 17, "text-anchor": anchor }, String(frames[k].round)),
        );
      });
    const title = {
      x: LEFT + across() / 2,
      y: bottom + 31,
      "text-anchor": "middle",
      class: "title",
    };
    picture.replaceChildren(
      svg(
        "svg",
        { viewBox: `0 0 ${width} ${bottom + BOTTOM}`, "aria-hidden": "true" },
        ...levelPaths(rows, px, py, Math.max(1, height - 1)).map((d, level) =>
          svg("path", { d, class: "met", "fill-opacity": (level + 1) / LEVELS }),
        ),
        ...names,
        svg("path", { d: `M${LEFT} ${bottom}H${width - RIGHT}`, class: "axis" }),
        ...marks,
        svg("text", title, "round"),
        svg("path", { class: "cursor", d: "" }),
      ),
    );
    mark();
    const hidden = counted.rows.length - rows.length;
    const most = hidden ? ` ${MAX_ROWS} of ${counted.rows.length} devices are drawn.` : "";
    about.textContent =
      selected == null
        ? "A row per device: darker where it has more links. Select a device for its own; " +
          "a click shows that round."
        : `A row per device that device ${selected} has met, most often first.${most}`;
    const total = counted.rows.reduce((sum, row) => sum + row.sum, 0);
    picture.setAttribute("aria-label", `${TITLE}. ${rows.length} rows, ${total} links.`);
  }

  function mark() {
    const cursor = picture.querySelector(".cursor");
    if (!cursor || !content) return;
    const x = LEFT + ((shownFrame + 0.5) / content.frames.length) * across();
    const { height } = picture.firstChild.viewBox.baseVal;
    cursor.setAttribute("d", `M${x.toFixed(1)} 0V${height - BOTTOM}`);
  }

  function show(next) {
    content = next;
    const { network, frames, selected } = content;
    const key = `${network.links.length} ${frames.length} ${frames.at(-1)?.round} ${selected}`;
    if (key !== countedOf || counted?.network !== network) {
      counted = { network, ...countContacts(network, frames, selected) };
      countedOf = key;
    }
    draw();
  }

  function frame(k) {
    shownFrame = k;
    mark();
  }
  whenSized(picture, (now) => {
    width = now;
    draw();
  });
  return { node, show, frame };
}
