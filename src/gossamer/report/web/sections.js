// The sections of a page that are text and tables. Each is built once and can be updated: a live
// page has new content every second.
import { el } from "./elements.js";
import { sortable } from "./table.js";

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
function notes(list) {
  return list.length
    ? el("ul", { class: "notes" }, ...list.map((text) => el("li", {}, text)))
    : null;
}

/** Split a sentence into text and code, which is between backquotes. */
const withCode = (sentence) =>
  sentence.split("`").map((part, k) => (k % 2 ? el("code", {}, part) : part));

/** Create the section with the settings: those that differ, then all others behind a heading. */
export function settingsSection(content) {
  const entries = content.description.flatMap(({ term, lines }) => [
    el("dt", {}, term),
    ...lines.map(([text, meaning]) =>
      el("dd", {}, text, meaning ? el("small", {}, ...withCode(meaning)) : null),
    ),
  ]);
  const table = sortable("Settings that differ");
  if (content.differences) table.update(content.differences);
  const all = el(
    "details",
    {},
    el("summary", {}, "Everything that was set"),
    el("dl", {}, ...entries),
  );
  return section(
    "settings",
    "Settings",
    content.differences ? el("p", { class: "about" }, "In these the methods differ:") : null,
    content.differences ? table.node : null,
    all,
  );
}

/** Create the sentence that a page begins with. */
function answerPart() {
  const node = el("p", { class: "answer" });
  const update = ({ answer }) => {
    if (node.textContent !== answer) node.textContent = answer;
  };
  return { node, update };
}

/** Create the section with the tables of results and targets. */
export function resultsSection() {
  const results = sortable("Result of each method");
  const targets = sortable("What each target took");
  const others = sortable("What else was measured");
  const othersPart = el("div", {}, el("h3", {}, "Other measurements"), others.node);
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
  const answer = answerPart();
  const notesPart = el("div");
  const node = section(
    "result",
    "Result",
    answer.node,
    notesPart,
    el(
      "p",
      { class: "about" },
      "Means over the seeds ± the half-width of their 95 % interval (Student’s t); of a single " +
        "seed there is none. The difference is to the first method, paired by seed. The merged " +
        "model is the mean of all devices’ models. The best of a column is bold. A column’s " +
        "heading sorts by it.",
    ),
    results.node,
    targetsPart,
    othersPart,
  );
  function update(content) {
    answer.update(content);
    notesPart.replaceChildren(...[notes(content.notes)].filter(Boolean));
    results.update(content.results);
    targetsPart.hidden = !content.targets;
    if (content.targets) targets.update(content.targets);
    othersPart.hidden = !content.others;
    if (content.others) others.update(content.others);
  }
  return { node, update };
}
