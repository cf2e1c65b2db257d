// What a reader has chosen, kept in the part of the address after "#": a link to a page shows the
// same. The part is "section?key=value&key=value", where the section may be empty.

/** Split the part of an address after "#" into its section and its state. */
export function parseAddress(hash) {
  const [section, ...rest] = hash.replace(/^#/, "").split("?");
  return { section, state: Object.fromEntries(new URLSearchParams(rest.join("?"))) };
}

/** Return the part of an address after "#"; entries without a value are left out. */
export function formatAddress(section, state) {
  const kept = Object.entries(state).filter(([, value]) => value != null && value !== "");
  const query = new URLSearchParams(kept).toString();
  return query ? `#${section}?${query}` : section ? `#${section}` : "";
}

/** Return a range such as "2~7.5" as numbers, or null. */
export function parseRange(text) {
  const numbers = String(text ?? "")
    .split("~")
    .map(Number);
  const fits = numbers.length === 2 && numbers.every(Number.isFinite) && numbers[0] < numbers[1];
  return fits ? numbers : null;
}

export const formatRange = (range) =>
  range ? range.map((v) => Number(v.toPrecision(7))).join("~") : null;

/** Return a list of texts from one text, in which "~" separates them. */
export const parseList = (text) =>
  text ? text.split("~").map((part) => part.replaceAll("%7E", "~").replaceAll("%25", "%")) : [];

export const formatList = (list) =>
  list.map((text) => text.replaceAll("%", "%25").replaceAll("~", "%7E")).join("~") || null;

const chosen = parseAddress(globalThis.location?.hash ?? "");

/** Return a choice of the reader that the address had, or undefined. */
export const remembered = (key) => chosen.state[key];

/** Write choices into the address; null removes one. */
export function remember(entries) {
  Object.assign(chosen.state, entries);
  writeAddress();
}

function writeAddress() {
  const text = formatAddress(chosen.section, chosen.state);
  history.replaceState(null, "", text || location.pathname + location.search);
}

/** Follow links to sections, and keep the state when one is followed. */
export function keepAddress() {
  const show = () => document.getElementById(chosen.section)?.scrollIntoView();
  addEventListener("hashchange", () => {
    const next = parseAddress(location.hash);
    if (!next.section || next.section === chosen.section) return;
    chosen.section = next.section;
    writeAddress();
    show();
  });
  if (chosen.section) show();
}
