// The live page: fetches new content once per second, and shows it in the sections of the report.
import { el } from "./elements.js";
import { duration, formatNumber } from "./numbers.js";
import { timelineSection } from "./timeline.js";
import { columns } from "./unpack.js";
import { keepAddress } from "./address.js";
import { curvesSection } from "./curves.js";
import { networkSection } from "./network_section.js";
import { contents, resultsSection, section, settingsSection } from "./sections.js";
import { sortable } from "./table.js";

let content = JSON.parse(document.getElementById("content").textContent);
let tag = "";
const unpacked = new Map(); // by run: the number of rows, and the columns

async function table(k) {
  const rows = content.runs[k].rows;
  if (unpacked.get(k)?.rows !== rows || content.runs[k].progress.going) {
    const answer = await (await fetch(`data/${k}.json`)).json();
    content.runs[k].rows = answer.rows; // the run may have continued meanwhile
    unpacked.set(k, {
      rows: answer.rows,
      table: answer.rows ? await columns(answer.columns, answer.rows, answer.block) : new Map(),
    });
  }
  return unpacked.get(k).table;
}

const statusText = el("p", { class: "about", role: "status" });
const progress = el("ul", { class: "progress" });
const progressPart = section("progress", "Progress", statusText, progress);
const devices = sortable("Devices of the fleet");
const devicesPart = section("fleet", "Devices", devices.node);
const results = resultsSection();
const curves = curvesSection(table);
const network = networkSection(table, true);
const timeline = timelineSection(section, table);
const sections = [
  progressPart,
  ...(content.fleet ? [devicesPart] : []),
  results.node,
  curves.node,
  network.node,
  ...(content.runs.some((run) => run.activity) ? [timeline.node] : []),
  settingsSection(content),
];
document.body.append(
  el(
    "header",
    {},
    el("p", { class: "brand" }, "gossamer watch"),
    el("h1", {}, content.title),
    contents(sections),
  ),
  el("main", {}, ...sections),
  el(
    "footer",
    {},
    "Read from the run folder of this machine, once a second. ",
    el("code", {}, "gossamer report"),
    " makes a page to keep, with the exact data.",
  ),
);

/** Create the line of a run: a progress bar, its newest values, and the time left. */
function progressLine({ label, seed, state, finished, progress: p }) {
  const parts = [
    finished
      ? `finished, ${p.of} rounds`
      : p.going
        ? `round ${formatNumber(p.done)} of ${formatNumber(p.of)}`
        : state,
  ];
  if (p.score != null) parts.push(p.score);
  if (p.distance != null) parts.push(`distance ${formatNumber(p.distance, 3)}`);
  if (p.left != null) parts.push(`about ${duration(p.left)} left`);
  if (p.silent != null) parts.push(`no news for ${duration(p.silent)}`);
  const name = `${label}, seed ${seed}`;
  return el(
    "li",
    {},
    el("b", {}, name),
    el("progress", { max: p.of || 1, value: p.done, "aria-label": name }),
    el(
      "span",
      {},
      ...parts.flatMap((part, k) => [k ? " · " : "", el("span", { class: "whole" }, part)]),
    ),
  );
}

async function show() {
  const going = content.runs.filter((run) => run.progress.going).length;
  const finished = content.runs.filter((run) => run.finished).length;
  const text = going
    ? `${going} of ${content.runs.length} running, ${finished} finished.`
    : finished === content.runs.length
      ? "All that is here is finished."
      : `Nothing is running; ${finished} of ${content.runs.length} finished.`;
  if (statusText.textContent !== text) statusText.textContent = text;
  progress.replaceChildren(...content.runs.map(progressLine));
  if (content.fleet) devices.update(content.fleet);
  results.update(content);
  curves.update(content);
  await network.update(content);
  await timeline.update(content);
  document.documentElement.dataset.state = going ? "running" : "over";
}

async function poll() {
  try {
    const answer = await fetch("content.json", { headers: tag ? { "If-None-Match": tag } : {} });
    if (answer.status === 200) {
      tag = answer.headers.get("ETag") ?? "";
      content = await answer.json();
      await show();
    } else if (answer.status !== 304) statusText.textContent = await answer.text();
  } catch {
    statusText.textContent = "The watcher does not answer: this is what it sent last.";
    document.documentElement.dataset.state = "lost";
  }
  setTimeout(poll, document.documentElement.dataset.state === "running" ? 1000 : 3000);
}

await show();
keepAddress();
document.documentElement.dataset.ready = "yes";
setTimeout(poll, 1000);
