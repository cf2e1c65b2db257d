// Save a chart as SVG, PNG or CSV, as it is drawn.
import { download, svg } from "./elements.js";

// What is copied from the style sheet of the page into a picture that stands alone.
const STYLES = [
  "fill",
  "fill-opacity",
  "font-family",
  "font-size",
  "font-weight",
  "opacity",
  "stroke",
  "stroke-dasharray",
  "stroke-linecap",
  "stroke-linejoin",
  "stroke-opacity",
  "stroke-width",
  "text-anchor",
  "visibility",
];
const LINE = 20; // height of a line of the legend
const PNG_SCALE = 2;

/** Return a name for a file from a title: "mean test accuracy, %" → "mean-test-accuracy". */
export function fileName(title) {
  const words = title.toLowerCase().replaceAll(/[^\p{L}\p{N}]+/gu, "-");
  return words.replaceAll(/^-+|-+$/g, "").slice(0, 60) || "chart";
}

/** Copy the styles that are in force on an element, and on all inside it, into a clone. */
function inlineStyles(source, clone) {
  const computed = getComputedStyle(source);
  // The page's policy forbids style attributes that are set as text.
  for (const name of STYLES) clone.style.setProperty(name, computed.getPropertyValue(name));
  clone.removeAttribute("class");
  [...source.children].forEach((child, k) => inlineStyles(child, clone.children[k]));
}

/** Return a picture with its legend as an SVG element that needs no style sheet. */
function standAlone(picture, title, legend) {
  const { width, height } = picture.viewBox.baseVal;
  const drawn = picture.cloneNode(true);
  inlineStyles(picture, drawn);
  const page = getComputedStyle(document.documentElement);
  const ink = page.getPropertyValue("--ink");
  const font = { fill: ink, "font-family": "system-ui, sans-serif", "font-size": 12 };
  const top = LINE + 4;
  const rows = legend.map(({ node, label }, k) => {
    const sample = node.cloneNode(true);
    // The original is not on the page: it has no computed style while it is drawn there.
    document.body.append(node);
    inlineStyles(node, sample);
    node.remove();
    sample.setAttribute("x", 12);
    sample.setAttribute("y", top + height + k * LINE + 4);
    return [sample, svg("text", { x: 54, y: top + height + k * LINE + 14, ...font }, label)];
  });
  drawn.setAttribute("x", 0);
  drawn.setAttribute("y", top);
  drawn.setAttribute("width", width);
  drawn.setAttribute("height", height);
  const total = top + height + legend.length * LINE + 8;
  return svg(
    "svg",
    { xmlns: "http://www.w3.org/2000/svg", width, height: total, viewBox: `0 0 ${width} ${total}` },
    svg("rect", { width, height: total, fill: page.getPropertyValue("--panel") }),
    svg("text", { x: 12, y: 17, "font-weight": 600, ...font }, title),
    drawn,
    ...rows.flat(),
  );
}

/** Offer a picture as an SVG file. */
export function saveSvg(picture, title, legend) {
  const text = new XMLSerializer().serializeToString(standAlone(picture, title, legend));
  download(`${fileName(title)}.svg`, "image/svg+xml", [text]);
}

/** Offer a picture as a PNG file. */
export async function savePng(picture, title, legend) {
  const whole = standAlone(picture, title, legend);
  const image = new Image();
  const text = new XMLSerializer().serializeToString(whole);
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
  await image.decode();
  const canvas = document.createElement("canvas");
  canvas.width = PNG_SCALE * whole.viewBox.baseVal.width;
  canvas.height = PNG_SCALE * whole.viewBox.baseVal.height;
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  const blob = await new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
  download(`${fileName(title)}.png`, "image/png", [blob]);
}

/** Return lines as the text of a CSV file: a row per line and point. */
export function csvOfLines(lines, xName, yName) {
  const quoted = (text) => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  const rows = [["line", xName, yName, "half of the 95 % interval"].map(quoted).join(",")];
  for (const line of lines) {
    line.x.forEach((x, k) => {
      const cells = [line.mean[k], line.half?.[k]].map((v) => (v == null ? "" : String(v)));
      rows.push([quoted(line.label), String(x), ...cells].join(","));
    });
  }
  return rows.join("\r\n") + "\r\n";
}

/** Offer the lines of a chart as a CSV file. */
export function saveCsv(lines, xName, yName) {
  download(`${fileName(yName)}.csv`, "text/csv", [csvOfLines(lines, xName, yName)]);
}
