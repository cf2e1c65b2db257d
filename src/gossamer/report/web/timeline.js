// What devices do over time: a lane per device, from the seconds that each has spent computing,
// exchanging, waiting and away up to every measurement. Runs with common rounds have no such data.
import { el, menu, svg, whenSized } from "./elements.js";
import { formatNumber, ticks } from "./numbers.js";

const STATES = ["computing", "exchanging", "waiting", "away"];
const MAX_LANES = 60;
const MAX_SPANS = 240;
// Pixels: 9 for what a device does, 4 for its messages below, 1 between lanes.
const LANE_HEIGHT = 14;
const LANE_BODY = 9;
const LANE_MESSAGES = 4;
const ALL_LANE = 44; // the lane of all devices
const LANES_LEFT = 64;
const LANES_RIGHT = 18;
const LANES_TOP = 22;

/** Return whole numbers below `count`, at most `most` of them, evenly spaced, with both ends. */
function evenly(count, most) {
  if (count <= most) return Array.from({ length: count }, (_, k) => k);
  return Array.from({ length: most }, (_, k) => Math.round((k * (count - 1)) / (most - 1)));
}

/** Return the spans between measurements: begin and end in seconds, and shares by device. */
function spansOf(columns, rows) {
  const seconds = columns.get("simulated_seconds");
  const states = STATES.map((name) => columns.get(`device_${name}`));
  const measured = Array.from({ length: rows }, (_, row) => row).filter((row) =>
    Number.isFinite(states[0].at(row, 0)),
  );
  const kept = evenly(measured.length, MAX_SPANS + 1).map((k) => measured[k]);
  const spans = [];
  for (let k = 1; k < kept.length; k++) {
    const [begin, end] = [seconds.at(kept[k - 1]), seconds.at(kept[k])];
    const share = (state, device) =>
      Math.min(
        1,
        Math.max(
          0,
          (states[state].at(kept[k], device) - states[state].at(kept[k - 1], device)) /
            (end - begin),
        ),
      );
    if (end > begin) spans.push({ begin, end, share });
  }
  return { spans, devices: states[0].devices };
}

const rectangle = (x, y, width, height) =>
  `M${x.toFixed(1)} ${y.toFixed(2)}h${width.toFixed(1)}` +
  `v${height.toFixed(2)}h${(-width).toFixed(1)}z`;

/**
 * Draw one lane: computing and then exchanging grow from the bottom, away from the top, what is
 * left is waiting. The band below is as high as the share of time in which messages travelled.
 */
function lane(spans, share, px, y, body, messages) {
  const paths = { computing: "", exchanging: "", away: "" };
  for (const span of spans) {
    const [x, width] = [px(span.begin), px(span.end) - px(span.begin)];
    const [computing, exchanging, , away] = STATES.map((_, state) => share(span, state));
    if (computing > 0)
      paths.computing += rectangle(x, y + body * (1 - computing), width, body * computing);
    // In rounds of pairs a device exchanges after it has computed; without rounds meanwhile.
    const after = Math.min(exchanging, 1 - computing - away);
    if (after > 0.002)
      paths.exchanging += rectangle(x, y + body * (1 - computing - after), width, body * after);
    if (away > 0) paths.away += rectangle(x, y, width, body * away);
    if (exchanging > 0) paths.exchanging += rectangle(x, y + body, width, messages * exchanging);
  }
  return Object.entries(paths).map(([state, d]) => svg("path", { d, class: state }));
}

/** Return the shares of the whole time in words. */
function inWords(spans, share) {
  const whole = spans.at(-1).end - spans[0].begin;
  return STATES.map((name, state) => {
    let seconds = 0;
    for (const span of spans) seconds += share(span, state) * (span.end - span.begin);
    return `${name} ${formatNumber((100 * seconds) / whole, 2)} %`;
  }).join(", ");
}

/**
 * Create the section. `table(k)` returns the columns of run k. The section is hidden while no run
 * has what it shows.
 */
export function timelineSection(section, table) {
  const runMenu = el("div", { class: "controls" });
  const about = el("p", { class: "about" });
  const picture = el("div", { class: "lanes" });
  const key = el(
    "p",
    { class: "key" },
    ...STATES.map((name) => el("span", { class: "whole" }, el("i", { class: name }), name)),
  );
  const node = section("activity", "What devices do over time", about, runMenu, key, picture);
  let content = null;
  let chosen = null;
  let drawnKey = "";
  let shown = null;
  let width = 0;

  function draw() {
    if (!shown || !width) return;
    const { spans, devices } = shown;
    const lanes = evenly(devices, MAX_LANES);
    const [first, last] = [spans[0].begin, spans.at(-1).end];
    const across = width - LANES_LEFT - LANES_RIGHT;
    const px = (t) => LANES_LEFT + ((t - first) / (last - first)) * across;
    const bottom = LANES_TOP + ALL_LANE + 8 + lanes.length * LANE_HEIGHT;
    const height = bottom + 24;
    const ofAll = (span, state) => {
      let sum = 0;
      for (let device = 0; device < devices; device++) sum += span.share(state, device);
      return sum / devices;
    };
    const children = [];
    const number = (y, text) => svg("text", { x: LANES_LEFT - 8, y, "text-anchor": "end" }, text);
    const background = (y, height) =>
      svg("rect", { x: LANES_LEFT, y, width: across, height, class: "waiting" });
    const marks = ticks(first, last, Math.max(2, Math.floor(width / 130)));
    for (const t of marks.values) {
      children.push(
        svg("line", { x1: px(t), x2: px(t), y1: LANES_TOP - 6, y2: bottom, class: "grid" }),
        svg("text", { x: px(t), y: bottom + 16, "text-anchor": "middle" }, marks.text(t)),
      );
    }
    children.push(
      svg(
        "text",
        { x: width - LANES_RIGHT, y: LANES_TOP - 10, "text-anchor": "end" },
        "simulated seconds",
      ),
      number(LANES_TOP + ALL_LANE / 2, "all"),
      svg(
        "g",
        {},
        svg("title", {}, `all devices: ${inWords(spans, ofAll)}`),
        background(LANES_TOP, ALL_LANE - 8),
        ...lane(spans, ofAll, px, LANES_TOP, ALL_LANE - 8, 8),
      ),
    );
    lanes.forEach((device, k) => {
      const y = LANES_TOP + ALL_LANE + 8 + k * LANE_HEIGHT;
      const own = (span, state) => span.share(state, device);
      if (lanes.length <= 30 || k % 5 === 0) children.push(number(y + LANE_BODY, String(device)));
      children.push(
        svg(
          "g",
          {},
          svg("title", {}, `device ${device}: ${inWords(spans, own)}`),
          background(y, LANE_BODY),
          ...lane(spans, own, px, y, LANE_BODY, LANE_MESSAGES),
        ),
      );
    });
    const some = lanes.length < devices ? ` ${lanes.length} of ${devices} devices are drawn.` : "";
    about.textContent =
      `A lane per device, over simulated time: ${inWords(spans, ofAll)} of all devices’ time. ` +
      "The band below a lane is the share of time in which its messages were on their way." +
      some;
    const label = about.textContent;
    picture.replaceChildren(
      svg(
        "svg",
        { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label },
        ...children,
      ),
    );
  }

  async function update(next) {
    content = next;
    const offered = content.runs
      .map((run, k) => [k, `${run.label}, seed ${run.seed}`, run.activity])
      .filter(([, , has]) => has);
    node.hidden = !offered.length;
    if (node.hidden) return;
    if (!offered.some(([k]) => k === chosen)) chosen = offered[0][0];
    const run = content.runs[chosen];
    const newKey = JSON.stringify([chosen, run.rows, run.state, offered.length]);
    if (newKey === drawnKey) return;
    drawnKey = newKey;
    runMenu.replaceChildren(
      ...(offered.length > 1
        ? [menu("Run", offered, chosen, (k) => ((chosen = Number(k)), update(content)))]
        : []),
    );
    const columns = await table(chosen);
    const found = columns.has("device_computing") ? spansOf(columns, run.rows) : { spans: [] };
    if (newKey !== drawnKey) return; // the reader has selected another run meanwhile
    node.hidden = !found.spans.length;
    shown = found.spans.length ? found : null;
    draw();
  }
  whenSized(picture, (measured) => ((width = measured), draw()));
  return { node, update };
}
