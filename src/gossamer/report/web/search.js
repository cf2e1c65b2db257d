// The section of a search by `gossamer tune`: all settings that were tried.
import { el } from "./elements.js";
import { parallelCoordinates } from "./parallel.js";
import { section } from "./sections.js";
import { sortable } from "./table.js";

/** Create the section. A range that is selected on an axis selects rows of the table. */
export function searchSection(search) {
  const table = sortable("Settings that were tried");
  const rowsOf = (names) =>
    search.table.rows.filter((row) => names == null || names.has(row[0].value));
  const show = (names) => table.update({ ...search.table, rows: rowsOf(names) });
  const axes = parallelCoordinates(show, "Settings that were tried, and their results", "settings");
  const node = section(
    "search",
    "Search",
    el(
      "p",
      { class: "about" },
      "Every setting at the longest of its runs on the tuning seeds; most were stopped early. " +
        "The results above are of the settings that were confirmed on fresh seeds.",
    ),
    axes.node,
    table.node,
  );
  show(null);
  axes.update(search);
  return node;
}
