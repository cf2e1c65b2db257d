// How the weights of a run are distributed: rounds across, weights upwards, darker where more are.
import { download, el, menu, svg, whenSized } from "./elements.js";
import { remember, remembered } from "./address.js";
import { savePng, saveSvg } from "./export.js";
import { formatNumber, ticks } from "./numbers.js";
import { section } from "./sections.js";

const HEIGHT = 280;
const TOP = 8;
const BOTTOM = 40;
const LEFT = 58;
const RIGHT = 10;
const LEVELS = 8;
const TITLE = "Weights by round";

/** Return the level of each cell, from 0 for none: the root of its share of weights per width. */
export function densityLevels({ edges, counts }) {
  const density = counts.map((row) => {
    const all = row.reduce((sum, count) => sum + count, 0) || 1;
    return row.map((count, k) => count / all / (edges[k + 1] - edges[k]));
  });
  const most = Math.max(...density.flat());
  return density.map((row) => row.map((d) => Math.ceil(Math.sqrt(d / most) * LEVELS)));
}

/** Return the edges of the columns: halfway between the rounds. */
export function columnEdges(rounds) {
  const middle = rounds.slice(1).map((t, k) => (t + rounds[k]) / 2);
  return [rounds[0], ...middle, rounds.at(-1)];
}

/** Return the weights of a round in words. */
export function quantileText(round, [low, median, high]) {
  return (
    `round ${formatNumber(round)}: 5 % of the weights below ${formatNumber(low, 3)}, ` +
    `median ${formatNumber(median, 3)}, 95 % below ${formatNumber(high, 3)}`
  );
}

/** Create the section; runs without histograms are not offered. */
export function weightsSection(content) {
  const known = content.runs.map((_, k) => k).filter((k) => content.runs[k].weights);
  const wanted = Number(remembered("weights"));
  let run = known.includes(wanted) ? wanted : known[0];
  let width = 0;
  const picture = el("div", { class: "picture", role: "img", tabindex: "0", "aria-label": TITLE });
  const readout = el("p", { class: "facts", "aria-live": "polite" });
  const save = (text, click) =>
    el(
      "button",
      { type: "button", "aria-label": `${text}: save as ${text} ${TITLE}`, click },
      text,
    );
  const rows = () => {
    const { rounds, edges, counts } = content.runs[run].weights;
    const lines = rounds.flatMap((t, i) =>
      counts[i].map((count, k) => [t, edges[k], edges[k + 1], count].join(",")),
    );
    return [["round", "from", "to", "weights"].join(","), ...lines].map((line) => `${line}\r\n`);
  };
  const figure = el(
    "figure",
    { class: "chart" },
    el(
      "div",
      { class: "head" },
      el("figcaption", {}, TITLE),
      el(
        "div",
        { class: "tools" },
        save("SVG", () => saveSvg(picture.firstChild, TITLE, [])),
        save("PNG", () => savePng(picture.firstChild, TITLE, [])),
        save("CSV", () => download("weights-by-round.csv", "text/csv", rows())),
      ),
    ),
    picture,
    readout,
  );

  function draw() {
    if (!width) return;
    const { rounds, edges, counts, quantiles } = content.runs[run].weights;
    const columns = columnEdges(rounds);
    const [first, last] = [columns[0], columns.at(-1)];
    const px = (t) => LEFT + ((t - first) / (last - first)) * (width - LEFT - RIGHT);
    const span = edges.at(-1) - edges[0];
    const py = (w) => HEIGHT - BOTTOM - ((w - edges[0]) / span) * (HEIGHT - BOTTOM - TOP);
    const paths = new Array(LEVELS + 1).fill("");
    densityLevels({ edges, counts }).forEach((row, i) => {
      const [left, right] = [px(columns[i]).toFixed(1), px(columns[i + 1]).toFixed(1)];
      row.forEach((level, k) => {
        const [top, bottom] = [py(edges[k + 1]).toFixed(1), py(edges[k]).toFixed(1)];
        if (level) paths[level] += `M${left} ${top}H${right}V${bottom}H${left}z`;
      });
    });
    const lines = [0, 1, 2].map((q) => {
      const d = rounds.map(
        (t, i) => `${i ? "L" : "M"}${px(t).toFixed(1)} ${py(quantiles[i][q]).toFixed(1)}`,
      );
      return svg("path", { class: q === 1 ? "median" : "quantile", d: d.join("") });
    });
    const upwards = ticks(edges[0], edges.at(-1), 6);
    const across = ticks(first, last, (width - LEFT) / 90);
    const yMarks = upwards.values.map((w) =>
      svg("text", { x: LEFT - 6, y: py(w) + 4, "text-anchor": "end" }, upwards.text(w)),
    );
    const xMarks = across.values.map((t) => {
      const anchor = px(t) + 24 > width ? "end" : "middle";
      return svg("text", { x: px(t), y: HEIGHT - 22, "text-anchor": anchor }, across.text(t));
    });
    const title = { x: LEFT + (width - LEFT - RIGHT) / 2, y: HEIGHT - 5, class: "title" };
    picture.replaceChildren(
      svg(
        "svg",
        { viewBox: `0 0 ${width} ${HEIGHT}`, "aria-hidden": "true" },
        ...paths.map((d, level) =>
          svg("path", { d, class: "met", "fill-opacity": level / LEVELS }),
        ),
        ...lines,
        svg("path", { d: `M${LEFT} ${HEIGHT - BOTTOM}H${width - RIGHT}`, class: "axis" }),
        ...yMarks,
        ...xMarks,
        svg("text", { ...title, "text-anchor": "middle" }, "round"),
      ),
    );
    const text = quantileText(rounds.at(-1), quantiles.at(-1));
    picture.setAttribute("aria-label", `${TITLE}. At the end, ${text}.`);
    readout.textContent = text;
  }

  picture.addEventListener("pointermove", (event) => {
    const { rounds, quantiles } = content.runs[run].weights;
    const share = (event.offsetX - LEFT) / (width - LEFT - RIGHT);
    const t = rounds[0] + share * (rounds.at(-1) - rounds[0]);
    const near = rounds.reduce(
      (best, round, i) => (Math.abs(round - t) < Math.abs(rounds[best] - t) ? i : best),
      0,
    );
    readout.textContent = quantileText(rounds[near], quantiles[near]);
  });
  whenSized(picture, (now) => {
    width = now;
    draw();
  });
  const options = known.map((k) => [
    String(k),
    `${content.runs[k].label}, seed ${content.runs[k].seed}`,
  ]);
  const choose = (k) => {
    run = Number(k);
    remember({ weights: run === known[0] ? null : run });
    draw();
  };
  return section(
    "weights",
    "Weights",
    el(
      "p",
      { class: "about" },
      "Histograms of the weights of all devices: the stronger the colour, the more of them. " +
        "Lines: their median, and the quantiles of 5 % and 95 %.",
    ),
    el("div", { class: "controls" }, menu("Weights of", options, String(run), choose)),
    figure,
  );
}
