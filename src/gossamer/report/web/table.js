// Tables that sort by any column.
import { el } from "./elements.js";

/**
 * Create a table with a caption. `update({ columns, rows })` replaces the rows and keeps the
 * reader's order. A cell has a text or a node, a value to sort by, and perhaps a note.
 */
export function sortable(caption) {
  let content = { columns: [], rows: [] };
  let sortColumn = -1;
  let ascending = true;
  const head = el("thead");
  const body = el("tbody");
  const node = el(
    "div",
    { class: "scroll", role: "region", "aria-label": caption, tabindex: "0" },
    el("table", {}, el("caption", { class: "hidden" }, caption), head, body),
  );

  function compare(a, b) {
    const x = a[sortColumn].value;
    const y = b[sortColumn].value;
    // Cells without a value come last in both orders.
    if (x == null || y == null) return (x == null) - (y == null);
    const order = typeof x === "string" ? x.localeCompare(y, "en", { numeric: true }) : x - y;
    return ascending ? order : -order;
  }

  function sort(k) {
    ascending = sortColumn === k ? !ascending : true;
    sortColumn = k;
    show();
    head.querySelectorAll("button")[k].focus();
  }

  function heading({ label, unit, about, number }, k) {
    const button = el(
      "button",
      { type: "button", title: about || null, click: () => sort(k) },
      el("span", {}, label),
      unit ? el("small", {}, unit) : null,
    );
    const order = sortColumn !== k ? "none" : ascending ? "ascending" : "descending";
    return el("th", { scope: "col", class: number ? "number" : null, "aria-sort": order }, button);
  }

  function cell({ text, note, node: element, best }, k) {
    const shown = best ? el("strong", { title: "the best of the column" }, text) : text;
    const inside = [element ?? shown, note ? el("small", {}, note) : null];
    return k === 0
      ? el("th", { scope: "row" }, ...inside)
      : el("td", { class: content.columns[k].number ? "number" : null }, ...inside);
  }

  let shownHeading = "";
  function show() {
    const wanted = JSON.stringify([content.columns, sortColumn, ascending]);
    // An unchanged heading is not replaced: it would lose the focus.
    if (wanted !== shownHeading)
      head.replaceChildren(el("tr", {}, ...content.columns.map(heading)));
    shownHeading = wanted;
    const rows = sortColumn < 0 ? content.rows : [...content.rows].sort(compare);
    body.replaceChildren(...rows.map((row) => el("tr", {}, ...row.map(cell))));
  }

  const update = (next) => {
    content = next;
    show();
  };
  return { node, update };
}
