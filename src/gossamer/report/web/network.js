// The network over time: who is linked to whom, each device coloured by how it does.
import { el, svg } from "./elements.js";
import { extent, short, ticks } from "./numbers.js";
import { unpack } from "./unpack.js";

const VIRIDIS = ["440154", "482878", "3e4989", "31688e", "26828e", "1f9e89", "35b779", "6ece58", "b5de2b", "fde725"].map(
  (hex) => [0, 2, 4].map((k) => parseInt(hex.slice(k, k + 2), 16)),
);
const AWAY = 65535;
const SIZE = 1000; // of the picture, in its own units
const EDGE = 50;

/** The colour of a share from 0 to 1, and the ink that can be read on it. */
function colour(share) {
  const at = Math.min(Math.max(share, 0), 1) * (VIRIDIS.length - 1);
  const k = Math.min(Math.floor(at), VIRIDIS.length - 2);
  const [r, g, b] = VIRIDIS[k].map((v, i) => Math.round(v + (at - k) * (VIRIDIS[k + 1][i] - v)));
  return { fill: `rgb(${r} ${g} ${b})`, ink: 0.3 * r + 0.59 * g + 0.11 * b > 120 ? "#000" : "#fff" };
}

/** A packed network, ready to be drawn: `links(frame)` is a list of pairs, `place(frame, i)` where device i of those shown is. */
export async function unpackNetwork(network) {
  const shown = network.shown ?? Array.from({ length: network.devices }, (_, i) => i);
  const n = shown.length;
  const [places, flags, here] = await Promise.all(
    [network.places, network.links, network.here].map((text) => text && unpack(text)),
  );
  const xy = new Uint16Array(places.buffer);
  const pairs = [];
  for (let a = 0; a < n; a++) for (let b = network.directed ? 0 : a + 1; b < n; b++) pairs.push([a, b]);
  const bytes = Math.ceil(pairs.length / 8);
  const everybody = Math.ceil(n / 8);
  const bit = (list, begin, k) => (list[begin + (k >> 3)] >> (k & 7)) & 1;
  return {
    ...network,
    shown,
    links: (frame) => pairs.filter((_, k) => bit(flags, frame * bytes, k)),
    place: (frame, i) => {
      const k = 2 * ((network.moving ? frame : 0) * n + i);
      return xy[k] === AWAY
        ? null
        : [EDGE + (xy[k] / 65534) * (SIZE - 2 * EDGE), SIZE - EDGE - (xy[k + 1] / 65534) * (SIZE - 2 * EDGE)];
    },
    isHere: (frame, i) => !here || bit(here, frame * everybody, i) === 1,
  };
}

/** A legend of the colours: from low to high, with numbers and the quantity's name. */
function colourBar({ label, scale }, [low, high]) {
  const id = "colours";
  const stops = VIRIDIS.map((_, k) =>
    svg("stop", { offset: k / (VIRIDIS.length - 1), "stop-color": colour(k / (VIRIDIS.length - 1)).fill }),
  );
  const marks = ticks(low * scale, high * scale, 4);
  const px = (v) => 18 + ((v / scale - low) / (high - low)) * 260;
  return svg(
    "svg",
    {
      class: "bar",
      viewBox: "0 0 300 54",
      role: "img",
      "aria-label": `colours: ${label} from ${short(low * scale)} to ${short(high * scale)}`,
    },
    svg("defs", {}, svg("linearGradient", { id }, ...stops)),
    svg("text", { x: 0, y: 13, class: "title" }, label),
    svg("rect", { x: 18, y: 20, width: 260, height: 12, fill: `url(#${id})` }),
    ...marks.values.map((v) =>
      svg(
        "g",
        {},
        svg("path", { d: `M${px(v)} 32v4`, class: "axis" }),
        svg("text", { x: px(v), y: 50, "text-anchor": "middle" }, marks.text(v)),
      ),
    ),
  );
}

/**
 * The picture. `show({ network, values, quantity, range })` gives it a network (unpacked), `values(round, device)`, what they
 * are and `range(round)`, between which values the colours go; `frame(k)` goes to one of its rounds, `select(device)` points at one; `chosen` is told.
 */
export function networkPicture(chosen) {
  let content = null;
  let now = 0;
  let selected = null;
  let nodes = [];
  const lines = svg("path", { class: "links" });
  const own = svg("path", { class: "links own" });
  const group = svg("g");
  const picture = svg("svg", { class: "network", viewBox: `0 0 ${SIZE} ${SIZE}`, role: "img" }, lines, own, group);
  const bar = el("div");
  const facts = el("p", { class: "facts" });
  const node = el("div", { class: "network-view" }, picture, el("div", {}, bar, facts));

  function show(next) {
    const fresh = !content || content.network !== next.network;
    content = next;
    if (fresh) {
      const n = content.network.shown.length;
      const radius = Math.max(7, Math.min(30, 260 / Math.sqrt(n) / 2.6));
      nodes = content.network.shown.map((device) => {
        const disc = svg("circle", { r: radius });
        const text = n <= 60 ? svg("text", { "text-anchor": "middle", "dominant-baseline": "central" }, String(device)) : null;
        if (text) text.style.fontSize = `${radius * (device > 99 ? 0.7 : 0.95)}px`;
        return svg("g", { class: "device", click: () => chosen(device) }, svg("title"), disc, text);
      });
      group.replaceChildren(...nodes);
    }
    frame(Math.min(now, content.network.rounds.length - 1));
  }

  function frame(k) {
    now = k;
    const { network, values, quantity } = content;
    const round = network.rounds[k];
    const range = content.range(round);
    bar.replaceChildren(colourBar(quantity, range));
    const pairs = network.links(k);
    const places = network.shown.map((_, i) => network.place(k, i));
    const d = ([a, b]) => {
      if (!places[a] || !places[b]) return "";
      const [from, to] = [places[a], places[b]];
      const line = `M${from.map(Math.round)}L${to.map(Math.round)}`;
      if (!network.directed) return line;
      const turn = Math.atan2(to[1] - from[1], to[0] - from[0]);
      const tip = [to[0] - 30 * Math.cos(turn), to[1] - 30 * Math.sin(turn)];
      const barb = (side) =>
        `M${tip.map(Math.round)}l${Math.round(-16 * Math.cos(turn + side))} ${Math.round(-16 * Math.sin(turn + side))}`;
      return line + barb(0.45) + barb(-0.45);
    };
    const chosenOnes = pairs.filter(([a, b]) => network.shown[a] === selected || network.shown[b] === selected);
    lines.setAttribute("d", pairs.map(d).join(""));
    lines.style.strokeWidth = Math.max(0.7, 2.5 - pairs.length / 400); // many links are drawn finer
    own.setAttribute("d", chosenOnes.map(d).join(""));
    const degree = new Array(places.length).fill(0);
    for (const [a, b] of pairs) {
      degree[a]++;
      degree[b]++;
    }
    nodes.forEach((shape, i) => {
      const device = network.shown[i];
      const value = values(round, device);
      const away = !network.isHere(k, i) || !places[i];
      const look = value == null ? null : colour((value - range[0]) / (range[1] - range[0] || 1));
      shape.setAttribute("class", `device${away ? " away" : ""}${device === selected ? " selected" : ""}`);
      shape.setAttribute("transform", `translate(${(places[i] ?? [EDGE, SIZE - EDGE]).map((v) => v.toFixed(1))})`);
      shape.setAttribute("visibility", places[i] ? "visible" : "hidden");
      const [title, disc, text] = shape.children;
      if (look) disc.setAttribute("fill", look.fill);
      else disc.removeAttribute("fill");
      text?.setAttribute("fill", look ? look.ink : "currentColor");
      title.textContent = `device ${device}: ${value == null ? "not measured" : `${short(value * quantity.scale)}${quantity.unit}`}${away ? ", away" : ""}`;
    });
    say(round, pairs, degree, chosenOnes);
  }

  function say(round, pairs, degree, chosenOnes) {
    const { network, values, quantity } = content;
    const measured = network.shown
      .map((device) => [values(round, device), device])
      .filter(([v]) => v != null)
      .sort(([a], [b]) => a - b);
    const text = ([v, device]) => `device ${device} (${short(v * quantity.scale)}${quantity.unit})`;
    const alone = degree.filter((count) => count === 0).length;
    const parts = [
      `${pairs.length.toLocaleString("en-GB")} ${pairs.length === 1 ? "link" : "links"}, ${alone} of ${degree.length} devices alone.`,
    ];
    if (measured.length) parts.push(`Lowest: ${text(measured[0])}; highest: ${text(measured.at(-1))}.`);
    if (selected != null && network.shown.includes(selected)) {
      const others = chosenOnes.map(([a, b]) => network.shown[network.shown[a] === selected ? b : a]);
      const value = values(round, selected);
      parts.push(
        `Device ${selected}: ${value == null ? "not measured" : short(value * quantity.scale) + quantity.unit}, linked to ${others.length ? [...new Set(others)].join(", ") : "nobody"}.`,
      );
    }
    facts.textContent = parts.join(" ");
    picture.setAttribute("aria-label", `the network after round ${round}: ${parts.join(" ")}`);
  }

  function select(device) {
    selected = device;
    if (content) frame(now);
  }
  return { node, show, frame, select };
}

/** Between which values of a quantity the colours go: all that is drawn, so that rounds can be compared. */
export function colourRange(lists, zero) {
  const found = extent(lists) ?? [0, 1];
  const low = zero ? 0 : found[0];
  return [low, found[1] > low ? found[1] : low + 1];
}
