// The network over time: its links, and each device in the colour of its value.
import { inkOn, viridis, VIRIDIS_STOPS } from "./colours.js";
import { el, svg } from "./elements.js";
import { extent, formatNumber, ticks } from "./numbers.js";
import { linePath } from "./scale.js";
import { unpack } from "./unpack.js";

const AWAY = 65535;
const SIZE = 1000; // width and height of the picture, in its own units
const EDGE = 50;
const TRAIL = 12; // rounds of a device's way that are drawn

/**
 * Unpack a network: `links(frame)` is a list of pairs, `place(frame, i)` the place of the i-th
 * device that is shown, `isHere(frame, i)` false if it is away.
 */
export async function unpackNetwork(network) {
  const shown = network.shown ?? Array.from({ length: network.devices }, (_, i) => i);
  const n = shown.length;
  const [places, flags, here] = await Promise.all(
    [network.places, network.links, network.here].map((text) => text && unpack(text)),
  );
  const xy = new Uint16Array(places.buffer);
  const pairs = pairsOf(n, network.directed);
  const pairBytes = Math.ceil(pairs.length / 8);
  const deviceBytes = Math.ceil(n / 8);
  return {
    ...network,
    shown,
    links: (frame) => flagged(flags, frame * pairBytes, pairBytes).map((k) => pairs[k]),
    place: (frame, i) => {
      const k = 2 * ((network.moving ? frame : 0) * n + i);
      return xy[k] === AWAY
        ? null
        : [
            EDGE + (xy[k] / 65534) * (SIZE - 2 * EDGE),
            SIZE - EDGE - (xy[k + 1] / 65534) * (SIZE - 2 * EDGE),
          ];
    },
    isHere: (frame, i) => !here || ((here[frame * deviceBytes + (i >> 3)] >> (i & 7)) & 1) === 1,
  };
}

/** Return the pairs of devices in the order of their flags. */
export function pairsOf(n, directed) {
  const pairs = [];
  for (let a = 0; a < n; a++) for (let b = directed ? 0 : a + 1; b < n; b++) pairs.push([a, b]);
  return pairs;
}

/** Return the positions of the bits that are set in some bytes of a list. */
export function flagged(list, begin, count) {
  const found = [];
  for (let byte = 0; byte < count; byte++) {
    let bits = list[begin + byte];
    for (let k = 8 * byte; bits; k++, bits >>= 1) if (bits & 1) found.push(k);
  }
  return found;
}

/** Return the first frame in which any two devices are linked; 0 if there is none. */
export function firstContact(network, frames) {
  const found = frames.findIndex(({ place }) => network.links(place).length > 0);
  return Math.max(found, 0);
}

/** Return a round length for the bar of a map, at most a third of its size: 1, 2 or 5 · 10ⁿ. */
export function roundLength(size) {
  const most = size / 3;
  const power = 10 ** Math.floor(Math.log10(most));
  return power * [5, 2, 1].find((factor) => factor * power <= most * (1 + 1e-9));
}

/** Return a length with its unit: metres, or kilometres from 1,000 m. */
export function lengthText(length, unit) {
  if (unit === "m" && length >= 1000) return `${formatNumber(length / 1000)} km`;
  return `${formatNumber(length)} ${unit}`.trim();
}

/** Create the legend of the colours, from low to high. */
function colourBar({ label, scale }, [low, high]) {
  const id = "colours";
  const stops = VIRIDIS_STOPS.map((share) =>
    svg("stop", { offset: share, "stop-color": viridis(share) }),
  );
  const marks = ticks(low * scale, high * scale, 4);
  const px = (v) => 18 + ((v / scale - low) / (high - low)) * 260;
  const lowest = formatNumber(low * scale);
  const highest = formatNumber(high * scale);
  return svg(
    "svg",
    {
      class: "bar",
      viewBox: "0 0 300 54",
      role: "img",
      "aria-label": `colours: ${label} from ${lowest} to ${highest}`,
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
 * Create the picture of a network. `show({ network, values, quantity, range, trails, radius })`
 * takes an unpacked network, the value of a device as `values(round, device)`, its quantity, the
 * smallest and largest value of the colours as `range(round)`, and whether ways and the reach of
 * links are drawn. `frame(k)` shows one of its rounds, `select(device)` highlights a device.
 * `onSelect` is called with the device that the reader clicks.
 */
export function networkPicture(onSelect) {
  let content = null;
  let shownFrame = 0;
  let selected = null;
  let nodes = [];
  const trails = svg("g", { class: "trails" });
  const circles = svg("g", { class: "radius" });
  const mapBar = svg("g", { class: "map-bar" });
  const lines = svg("path", { class: "links" });
  const selectedLines = svg("path", { class: "links own" });
  const group = svg("g");
  const picture = svg(
    "svg",
    { class: "network", viewBox: `0 0 ${SIZE} ${SIZE}`, role: "img" },
    circles,
    trails,
    lines,
    selectedLines,
    group,
    mapBar,
  );
  const bar = el("div");
  const facts = el("p", { class: "facts" });
  const node = el("div", { class: "network-view" }, picture, el("div", {}, bar, facts));

  function show(next) {
    const isNew = !content || content.network !== next.network;
    content = next;
    if (isNew) {
      const n = content.network.shown.length;
      const radius = Math.max(7, Math.min(30, 260 / Math.sqrt(n) / 2.6));
      nodes = content.network.shown.map((device) => {
        const disc = svg("circle", { r: radius });
        const text =
          n <= 60
            ? svg(
                "text",
                { "text-anchor": "middle", "dominant-baseline": "central" },
                String(device),
              )
            : null;
        if (text) text.style.fontSize = `${radius * (device > 99 ? 0.7 : 0.95)}px`;
        return svg(
          "g",
          { class: "device", click: () => onSelect(device) },
          svg("title"),
          disc,
          text,
        );
      });
      group.replaceChildren(...nodes);
      showMapBar();
    }
    frame(Math.min(shownFrame, content.network.rounds.length - 1));
  }

  function frame(k) {
    shownFrame = k;
    const { network, values, quantity } = content;
    const round = network.rounds[k];
    const range = content.range(round);
    bar.replaceChildren(colourBar(quantity, range));
    const pairs = network.links(k);
    const places = network.shown.map((_, i) => network.place(k, i));
    const linkPath = ([a, b]) => {
      if (!places[a] || !places[b]) return "";
      const [from, to] = [places[a], places[b]];
      const line = `M${from.map(Math.round)}L${to.map(Math.round)}`;
      if (!network.directed) return line;
      const turn = Math.atan2(to[1] - from[1], to[0] - from[0]);
      const tip = [to[0] - 30 * Math.cos(turn), to[1] - 30 * Math.sin(turn)];
      const barb = (side) => {
        const x = Math.round(-16 * Math.cos(turn + side));
        const y = Math.round(-16 * Math.sin(turn + side));
        return `M${tip.map(Math.round)}l${x} ${y}`;
      };
      return line + barb(0.45) + barb(-0.45);
    };
    const selectedPairs = pairs.filter(
      ([a, b]) => network.shown[a] === selected || network.shown[b] === selected,
    );
    lines.setAttribute("d", pairs.map(linkPath).join(""));
    // Many links are drawn thinner.
    lines.style.strokeWidth = Math.max(0.7, 2.5 - pairs.length / 400);
    selectedLines.setAttribute("d", selectedPairs.map(linkPath).join(""));
    const degree = new Array(places.length).fill(0);
    for (const [a, b] of pairs) {
      degree[a]++;
      degree[b]++;
    }
    nodes.forEach((shape, i) => {
      const device = network.shown[i];
      const value = values(round, device);
      const away = !network.isHere(k, i) || !places[i];
      const share = value == null ? null : (value - range[0]) / (range[1] - range[0] || 1);
      shape.setAttribute(
        "class",
        `device${away ? " away" : ""}${device === selected ? " selected" : ""}`,
      );
      shape.setAttribute(
        "transform",
        `translate(${(places[i] ?? [EDGE, SIZE - EDGE]).map((v) => v.toFixed(1))})`,
      );
      shape.setAttribute("visibility", places[i] ? "visible" : "hidden");
      const [title, disc, text] = shape.children;
      if (share == null) disc.removeAttribute("fill");
      else disc.setAttribute("fill", viridis(share));
      text?.setAttribute("fill", share == null ? "currentColor" : inkOn(share));
      title.textContent = `device ${device}: ${valueText(value, quantity)}${away ? ", away" : ""}`;
    });
    showMoves(k, places);
    describeRound(round, pairs, degree, selectedPairs);
  }

  /** Show where devices have come from, and how far their links reach. */
  function showMoves(k, places) {
    const { network, trails: wanted, radius } = content;
    const way = (i) => {
      const before = [];
      for (let frame = Math.max(0, k - TRAIL); frame <= k; frame++)
        before.push(network.place(frame, i));
      return linePath(
        before,
        before,
        (at) => at?.[0],
        (at) => at?.[1],
        Boolean,
      );
    };
    const moving = network.moving && wanted;
    trails.replaceChildren(
      ...places
        .map((_, i) => i)
        .filter((i) => moving && (selected == null || network.shown[i] === selected))
        .map((i) => svg("path", { d: way(i), class: "trail" })),
    );
    const reach = network.map?.radius && radius ? pixels(network.map.radius) : 0;
    circles.replaceChildren(
      ...places
        .map((at, i) => {
          const own = selected == null || network.shown[i] === selected;
          return at && reach && own ? svg("circle", { cx: at[0], cy: at[1], r: reach }) : null;
        })
        .filter(Boolean),
    );
  }

  const pixels = (length) => (length / content.network.map.size) * (SIZE - 2 * EDGE);

  /** Show the bar that says how long a distance in the picture is. */
  function showMapBar() {
    const { map } = content.network;
    if (!map) return mapBar.replaceChildren();
    const length = roundLength(map.size);
    const right = SIZE - 24;
    const text = { x: right, y: SIZE - 36, "text-anchor": "end" };
    mapBar.replaceChildren(
      svg("path", { d: `M${right - pixels(length)} ${SIZE - 32}v12H${right}v-12` }),
      svg("text", text, lengthText(length, map.unit)),
    );
  }

  function describeRound(round, pairs, degree, selectedPairs) {
    const { network, values, quantity } = content;
    const measured = network.shown
      .map((device) => [values(round, device), device])
      .filter(([v]) => v != null)
      .sort(([a], [b]) => a - b);
    const text = ([v, device]) => `device ${device} (${valueText(v, quantity)})`;
    const alone = degree.filter((count) => count === 0).length;
    const count = pairs.length.toLocaleString("en-GB");
    const noun = pairs.length === 1 ? "link" : "links";
    const parts = [`${count} ${noun}, ${alone} of ${degree.length} devices alone.`];
    if (measured.length && measured[0][0] === measured.at(-1)[0])
      parts.push(`All devices: ${valueText(measured[0][0], quantity)}.`);
    else if (measured.length)
      parts.push(`Lowest: ${text(measured[0])}; highest: ${text(measured.at(-1))}.`);
    if (selected != null && network.shown.includes(selected)) {
      const others = selectedPairs.map(
        ([a, b]) => network.shown[network.shown[a] === selected ? b : a],
      );
      const value = valueText(values(round, selected), quantity);
      const linked = [...new Set(others)].join(", ") || "nobody";
      parts.push(`Device ${selected}: ${value}, linked to ${linked}.`);
    }
    facts.textContent = parts.join(" ");
    picture.setAttribute("aria-label", `the network after round ${round}: ${parts.join(" ")}`);
  }

  function select(device) {
    selected = device;
    if (content) frame(shownFrame);
  }
  return { node, show, frame, select };
}

/** Return a device's value with its unit. */
function valueText(value, quantity) {
  if (value == null) return "not measured";
  return formatNumber(value * quantity.scale) + quantity.unit;
}

/**
 * Return the smallest and the largest value of the colours, which all drawn rounds share so that
 * they can be compared.
 */
export function colourRange(lists, zero) {
  const found = extent(lists) ?? [0, 1];
  const low = zero ? 0 : found[0];
  return [low, found[1] > low ? found[1] : low + 1];
}
