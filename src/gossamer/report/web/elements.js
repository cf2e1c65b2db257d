// Elements of the page. Text always goes in as text, never as markup: whatever a label holds, it is only shown.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value != null) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child != null));
  return element;
}

/** An HTML element: attributes by name, listeners where the value is a function. */
export function el(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** The same in SVG. */
export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

/** A group of radio buttons; `choose` is told the value that was chosen. */
export function choices(legend, name, options, chosen, choose) {
  const buttons = options.map(([value, text]) => {
    const input = el("input", { type: "radio", name, value, change: () => choose(value) });
    input.checked = value === chosen;
    return el("label", {}, input, el("span", {}, text));
  });
  return el("fieldset", { class: "choices" }, el("legend", {}, legend), ...buttons);
}

/** A labelled menu. */
export function menu(label, options, chosen, choose) {
  const select = el(
    "select",
    { change: () => choose(select.value) },
    ...options.map(([value, text]) => el("option", { value }, text)),
  );
  select.value = chosen;
  return el("label", { class: "field" }, el("span", {}, label), select);
}

/** Call `draw(width)` now and whenever the element's width changes. */
export function whenSized(element, draw) {
  let width = 0;
  new ResizeObserver(([entry]) => {
    const now = Math.round(entry.contentRect.width);
    if (now && now !== width) draw((width = now));
  }).observe(element);
}

/** Offer a file for download. */
export function download(name, type, parts) {
  const url = URL.createObjectURL(new Blob(parts, { type }));
  el("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}
