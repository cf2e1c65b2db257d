// The report: all data is in the page; the exact measurements of a run are unpacked when they are
// first needed.
import { el } from "./elements.js";
import { timelineSection } from "./timeline.js";
import { columns } from "./unpack.js";
import { keepAddress } from "./address.js";
import { curvesSection } from "./curves.js";
import { networkSection } from "./network_section.js";
import { searchSection } from "./search.js";
import { weightsSection } from "./weights.js";
import { runsSection } from "./runs.js";
import { contents, resultsSection, section, settingsSection } from "./sections.js";

const content = JSON.parse(document.getElementById("content").textContent);
const unpacked = new Map();

function table(k) {
  if (!unpacked.has(k)) {
    const run = content.runs[k];
    unpacked.set(
      k,
      run.rows
        ? columns(run.columns, run.rows, document.getElementById(`data-${k}`).textContent)
        : Promise.resolve(new Map()),
    );
  }
  return unpacked.get(k);
}

const results = resultsSection();
const curves = curvesSection(table);
const network = networkSection(table);
const timeline = timelineSection(section, table);
const sections = [
  results.node,
  ...(content.search ? [searchSection(content.search)] : []),
  curves.node,
  network.node,
  ...(content.runs.some((run) => run.activity) ? [timeline.node] : []),
  ...(content.runs.some((run) => run.weights) ? [weightsSection(content)] : []),
  runsSection(content, table),
  settingsSection(content),
];
const counted = (list, noun) => `${list.length} ${noun}${list.length === 1 ? "" : "s"}`;
document.body.append(
  el(
    "header",
    {},
    el("p", { class: "brand" }, "gossamer report"),
    el("h1", {}, content.title),
    el(
      "p",
      { class: "about" },
      `${counted(content.curves, "method")}, ${counted(content.runs, "run")}`,
    ),
    contents(sections),
  ),
  el("main", {}, ...sections),
  el(
    "footer",
    {},
    `Made by gossamer ${content.version}. ` +
      "Everything is in this file; it loads nothing from the network.",
  ),
);
results.update(content);
curves.update(content);
await network.update(content);
await timeline.update(content);
keepAddress();
document.documentElement.dataset.ready = "yes";
