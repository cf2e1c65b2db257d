// Tables that sort by any column.
import { el } from "./elements.js";

/** A table with a caption. `update({columns, rows})` shows other rows in the same order. A cell may bring its own element. */
export function sortable(caption) {
  let content = { columns: [], rows: [] };
  let by = -1;
  let rising = true;
  const head = el("thead");
  const body = el("tbody");
  const node = el(
    "div",
    { class: "scroll", role: "region", "aria-label": caption, tabindex: "0" },
    el("table", {}, el("caption", { class: "hidden" }, caption), head, body),
  );

  function compare(a, b) {
    const [x, y] = [a[by].value, b[by].value];
    if (x == null || y == null) return (x == null) - (y == null); // what has no value comes last, whichever the order
    return (typeof x === "string" ? x.localeCompare(y, "en", { numeric: true }) : x - y) * (rising ? 1 : -1);
  }

  function sort(k) {
    rising = by === k ? !rising : true;
    by = k;
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
    const order = by !== k ? "none" : rising ? "ascending" : "descending";
    return el("th", { scope: "col", class: number ? "number" : null, "aria-sort": order }, button);
  }

  function cell({ text, note, node: own }, k) {
    const inside = [own ?? text, note ? el("small", {}, note) : null];
    return k === 0
      ? el("th", { scope: "row" }, ...inside)
      : el("td", { class: content.columns[k].number ? "number" : null }, ...inside);
  }

  let headed = "";
  function show() {
    const wanted = JSON.stringify([content.columns, by, rising]);
    if (wanted !== headed) head.replaceChildren(el("tr", {}, ...content.columns.map(heading))); // else the focus stays where it is
    headed = wanted;
    const rows = by < 0 ? content.rows : [...content.rows].sort(compare);
    body.replaceChildren(...rows.map((row) => el("tr", {}, ...row.map(cell))));
  }

  const update = (next) => {
    content = next;
    show();
  };
  return { node, update };
}
