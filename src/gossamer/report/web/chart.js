// A chart of curves that the reader can read, zoom and save.
import { el, svg, whenSized } from "./elements.js";
import { saveCsv, savePng, saveSvg } from "./export.js";
import { formatNumber } from "./numbers.js";
import { layout, plot, sample } from "./plot.js";
import { measuredPlaces, nearest, smoothed, zoomed } from "./scale.js";

const MAX_READOUT = 10; // lines
const SMALLEST_ZOOM = 6; // pixels

/**
 * Create a chart. `update({ lines, x, y, targets, zoom, smooth })` draws it. A line has colour,
 * dash, label, x, mean, half (or null), ended (or ""), early, a list of lines that ended before
 * the others, and perhaps seeds, a line per run. `x` has label and log; `y` has label and scale,
 * and perhaps log, zero (the axis begins at zero), least and most (the values that are possible)
 * and range. `onZoom(range)` is called when the reader selects a range of x, or null for all of
 * it.
 */
export function chart(title, onZoom) {
  let content = null;
  let width = 0;
  let at = null; // the layout that is drawn
  let pointed = null; // the measured x that the reader points at
  let dragged = null; // where the reader began to select a range, in pixels
  const picture = el("div", { class: "picture", role: "img", tabindex: "0", "aria-label": title });
  const readout = el("div", { class: "readout", hidden: true });
  const caption = el("figcaption", {}, title);
  const legend = () => content.lines.map((line) => ({ node: sample(line), label: line.label }));
  const drawnLines = () =>
    content.lines.flatMap((line) => [line, ...line.early, ...(line.seeds ?? [])]);
  const buttons = [
    ["All", "show all of", () => onZoom(null)],
    ["SVG", "save as SVG", () => saveSvg(picture.firstChild, caption.textContent, legend())],
    ["PNG", "save as PNG", () => savePng(picture.firstChild, caption.textContent, legend())],
    ["CSV", "save as CSV", () => saveCsv(drawnLines(), content.x.label, content.y.label)],
  ].map(([text, about, click]) => {
    const made = el("button", { type: "button", click }, text);
    return { made, name: (of) => made.setAttribute("aria-label", `${text}: ${about} ${of}`) };
  });
  const tools = el("div", { class: "tools" }, ...buttons.map(({ made }) => made));
  const node = el(
    "figure",
    { class: "chart" },
    el("div", { class: "head" }, caption, tools),
    el("div", { class: "frame" }, picture, readout),
  );

  function draw() {
    if (!content || !width) return;
    at = layout(content, width);
    picture.replaceChildren(plot(content, at));
    buttons[0].made.hidden = !content.zoom;
    updateReadout();
  }

  function meanText(line, k) {
    const mean = line.mean[k];
    return formatNumber(mean == null ? null : mean * content.y.scale);
  }

  function valueText(line, k) {
    const half = line.half?.[k];
    const { scale } = content.y;
    return meanText(line, k) + (half != null ? ` ± ${formatNumber(half * scale, 2)}` : "");
  }

  function updateReadout() {
    const cross = picture.querySelector(".cross");
    const dots = picture.querySelector(".dots");
    readout.hidden = pointed == null;
    dots?.replaceChildren();
    if (pointed == null || !at) return cross?.setAttribute("d", "");
    const { lines, x, smooth } = content;
    const found = lines
      .filter((line) => line.x.length)
      .map((line) => [line, nearest(line.x, pointed)])
      .filter(([, k]) => k >= 0)
      .sort(([a, i], [b, j]) => (b.mean[j] ?? -Infinity) - (a.mean[i] ?? -Infinity));
    readout.replaceChildren(
      el("div", {}, `${x.label}: ${formatNumber(pointed)}`),
      ...found
        .slice(0, MAX_READOUT)
        .map(([line, k]) =>
          el(
            "div",
            { class: "value" },
            sample(line),
            el("span", {}, line.label),
            el("b", {}, valueText(line, k)),
          ),
        ),
    );
    const pixel = at.px(pointed);
    cross.setAttribute("d", `M${pixel.toFixed(1)} ${at.top}V${at.bottom}`);
    for (const [line, k] of found) {
      const value = smoothed(line.mean, smooth)[k];
      const height = value == null ? NaN : at.py(value);
      if (!(height >= at.top - 3 && height <= at.bottom + 3)) continue;
      const place = { cx: at.px(line.x[k]).toFixed(1), cy: height.toFixed(1), r: 4 };
      dots.append(svg("circle", { ...place, class: `dot c${line.colour}` }));
    }
    const isLeftOfPointer = pixel > width / 2;
    readout.style.left = isLeftOfPointer ? "auto" : `${pixel + 12}px`;
    readout.style.right = isLeftOfPointer ? `${width - pixel + 12}px` : "auto";
  }

  /** Point at the measurement that is nearest to a value of x; null points at nothing. */
  function pointAt(value) {
    const places = measuredPlaces(content.lines, at?.across ?? [0, 0]);
    const k = value == null ? -1 : nearest(places, value);
    pointed = k < 0 ? null : places[k];
    updateReadout();
  }

  /** Point at the measurement that is so many steps further. */
  function step(count) {
    const places = measuredPlaces(content.lines, at.across);
    const from = pointed == null ? (count > 0 ? -1 : places.length) : nearest(places, pointed);
    pointAt(places[Math.min(Math.max(from + count, 0), places.length - 1)]);
  }

  /** Show a narrower or wider range of x around what the reader points at. */
  function zoomBy(factor) {
    const { log } = content.x;
    const into = log ? Math.log : (v) => v;
    const back = log ? Math.exp : (v) => v;
    const [low, high] = at.across.map(into);
    const centre = pointed == null ? (low + high) / 2 : into(pointed);
    const range = zoomed([low, high], at.whole.map(into), centre, factor);
    onZoom(range && range.map(back));
  }

  const pixelOf = (event) => event.clientX - picture.getBoundingClientRect().left;

  function showSelection(pixel) {
    const from = Math.max(at.left, Math.min(dragged, pixel));
    const to = Math.min(at.right, Math.max(dragged, pixel));
    const rectangle = picture.querySelector(".chosen");
    rectangle.setAttribute("x", from.toFixed(1));
    rectangle.setAttribute("width", Math.max(0, to - from).toFixed(1));
    return [from, to];
  }

  picture.addEventListener("pointerdown", (event) => {
    if (!at || event.button || event.pointerType === "touch") return;
    dragged = pixelOf(event);
    picture.setPointerCapture(event.pointerId);
  });
  picture.addEventListener("pointermove", (event) => {
    if (!at) return;
    pointAt(at.toValue(pixelOf(event)));
    if (dragged != null) showSelection(pixelOf(event));
  });
  picture.addEventListener("pointerup", (event) => {
    if (dragged == null) return;
    const [from, to] = showSelection(pixelOf(event));
    dragged = null;
    if (to - from >= SMALLEST_ZOOM) onZoom([at.toValue(from), at.toValue(to)]);
    else picture.querySelector(".chosen").setAttribute("width", 0);
  });
  picture.addEventListener("dblclick", () => onZoom(null));
  picture.addEventListener("pointerleave", () => content && dragged == null && pointAt(null));
  picture.addEventListener("blur", () => content && pointAt(null));
  const actions = {
    ArrowLeft: () => step(-1),
    ArrowRight: () => step(1),
    Home: () => step(-Infinity),
    End: () => step(Infinity),
    Escape: () => pointAt(null),
    "+": () => zoomBy(0.5),
    "=": () => zoomBy(0.5),
    "-": () => zoomBy(2),
    0: () => onZoom(null),
  };
  picture.addEventListener("keydown", (event) => {
    const action = actions[event.key];
    if (!action || !at || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    action();
  });
  whenSized(picture, (now) => {
    width = now;
    draw();
  });

  function update(next) {
    content = next;
    caption.textContent = content.y.label;
    for (const { name } of buttons) name(content.y.label);
    picture.setAttribute("aria-label", describe());
    draw();
  }

  function describe() {
    const { lines, x, y } = content;
    const last = lines
      .filter((line) => line.mean.length)
      .map((line) => `${line.label} ends at ${meanText(line, line.mean.length - 1)}`);
    return (
      `${y.label}, by ${x.label}. ${last.join("; ")}. ` +
      "The arrow keys read values, + and - zoom, 0 shows all."
    );
  }
  return { node, update };
}
