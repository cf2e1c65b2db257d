// The section with each run's state, its exact data, and how to repeat it.
import { download, el } from "./elements.js";
import { duration } from "./numbers.js";
import { section } from "./sections.js";
import { sortable } from "./table.js";
import { csvLines } from "./unpack.js";

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
      { label: "took", unit: "of computing", number: true },
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
