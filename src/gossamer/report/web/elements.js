// Create elements of the page. Text is inserted as text, never as markup, so that a label cannot
// inject HTML.

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

/** Create an HTML element. An attribute whose value is a function is an event listener. */
export function el(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** Create an SVG element, as `el` does for HTML. */
export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

/** Create a group of radio buttons; `choose` is called with the chosen value. */
export function choices(legend, name, options, chosen, choose) {
  const buttons = options.map(([value, text]) => {
    const input = el("input", { type: "radio", name, value, change: () => choose(value) });
    input.checked = value === chosen;
    return el("label", {}, input, el("span", {}, text));
  });
  return el("fieldset", { class: "choices" }, el("legend", {}, legend), ...buttons);
}

/** Create a labelled menu; `choose` is called with the chosen value. */
export function menu(label, options, chosen, choose) {
  const select = el(
    "select",
    { change: () => choose(select.value) },
    ...options.map(([value, text]) => el("option", { value }, text)),
  );
  select.value = chosen;
  return el("label", { class: "field" }, el("span", {}, label), select);
}

/** Call `draw(width)` now and whenever the width of the element changes. */
export function whenSized(element, draw) {
  let width = 0;
  new ResizeObserver(([entry]) => {
    const measured = Math.round(entry.contentRect.width);
    if (!measured || measured === width) return;
    width = measured;
    draw(width);
  }).observe(element);
}

/** Offer a file for download; `parts` are its texts. */
export function download(name, type, parts) {
  const url = URL.createObjectURL(new Blob(parts, { type }));
  el("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}
