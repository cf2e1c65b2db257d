// The section with the network over time and its devices.
import { choices, el, menu } from "./elements.js";
import { remember, remembered } from "./address.js";
import { contactTimeline } from "./contacts.js";
import { replaceIfChanged } from "./curves.js";
import { deviceView } from "./device.js";
import { smallMultiples } from "./devices.js";
import { savePng, saveSvg } from "./export.js";
import { colourRange, firstContact, networkPicture, unpackNetwork } from "./network.js";
import { formatNumber } from "./numbers.js";
import { deviceQuantities } from "./quantities.js";
import { section } from "./sections.js";

const SPEEDS = [
  ["4", "4 rounds a second"],
  ["8", "8 rounds a second"],
  ["24", "24 rounds a second"],
];

/**
 * Create the section with the network over time and the curve of every device, for one run at a
 * time. `table(k)` is a promise of the columns of run k. With `follow` the newest round is shown
 * until the reader moves to another one; otherwise the first in which devices meet.
 */
export function networkSection(table, follow = false) {
  const state = {
    run: Number(remembered("run")) || 0,
    quantity: remembered("colour") ?? null,
    frame: follow ? Infinity : null, // null: the first in which devices meet
    round: remembered("round") == null ? null : Number(remembered("round")),
    device: remembered("device") == null ? null : Number(remembered("device")),
    order: remembered("order") === "number" ? "number" : "worst",
    scale: remembered("colours") === "one" ? "one" : "all",
    speed: "8",
    trails: true,
    radius: false,
    playing: null,
  };
  let content = null;
  let shown = null; // what is drawn: a column of the run, its frames and its range
  const reducedMotion = matchMedia("(prefers-reduced-motion: reduce)");
  const runMenu = el("div", { class: "part" });
  const quantityMenu = el("div", { class: "part" });
  const scaleMenu = menu(
    "Colour scale",
    [
      ["all", "of all rounds"],
      ["one", "of this round"],
    ],
    state.scale,
    (scale) => {
      state.scale = scale;
      remember({ colours: scale === "one" ? "one" : null });
      draw();
    },
  );
  const slider = el("input", {
    type: "range",
    min: 0,
    step: 1,
    value: 0,
    input: () => (stop(), chooseFrame(Number(slider.value))),
  });
  // A screen reader reads the slider's own text.
  const roundText = el("output", { "aria-live": "off" });
  const play = el(
    "button",
    { type: "button", class: "play", click: () => (state.playing ? stop() : start()) },
    "Play",
  );
  const timeline = el(
    "div",
    { class: "timeline" },
    play,
    el("label", { class: "field wide" }, el("span", {}, "Round"), slider),
    roundText,
    menu("Speed", SPEEDS, state.speed, (speed) => {
      state.speed = speed;
      if (state.playing) start();
    }),
  );
  const tick = (text, name) => {
    const box = el("input", {
      type: "checkbox",
      change: () => ((state[name] = box.checked), draw()),
    });
    box.checked = state[name];
    return el("label", { class: "field" }, box, el("span", {}, text));
  };
  const moves = el("div", { class: "controls" }, tick("trails", "trails"));
  const reach = tick("link radius", "radius");
  moves.append(reach);
  const picture = networkPicture(selectDevice);
  const multiples = smallMultiples(selectDevice);
  const contacts = contactTimeline((frame) => (stop(), chooseFrame(frame)));
  const single = deviceView();
  const title = () => `Network, ${roundText.textContent}`;
  const drawn = () => picture.node.querySelector("svg.network");
  const save = (text, click) =>
    el(
      "button",
      { type: "button", "aria-label": `${text}: save the network as ${text}`, click },
      text,
    );
  const tools = el(
    "div",
    { class: "tools" },
    save("SVG", () => saveSvg(drawn(), title(), [])),
    save("PNG", () => savePng(drawn(), title(), [])),
  );
  const about = el("p", { class: "about" });
  const deviceInput = el("input", {
    type: "number",
    min: 0,
    step: 1,
    placeholder: "none",
    input: () => selectDevice(deviceInput.value === "" ? null : Number(deviceInput.value)),
  });
  deviceInput.value = state.device ?? "";
  const controls = el(
    "div",
    { class: "controls" },
    runMenu,
    quantityMenu,
    scaleMenu,
    el("label", { class: "field" }, el("span", {}, "Device"), deviceInput),
  );
  const drawing = el("div", {}, timeline, moves, tools, picture.node, contacts.node);
  const missing = el("p", { class: "about" });
  const order = menu(
    "Order",
    [
      ["worst", "worst first"],
      ["number", "by number"],
    ],
    state.order,
    (value) => {
      state.order = value;
      remember({ order: value === "number" ? value : null });
      drawMultiples();
    },
  );
  const devicesPart = el(
    "div",
    {},
    el("h3", {}, "Each device"),
    el("div", { class: "controls" }, order),
    multiples.node,
    single.node,
  );
  const node = section(
    "network",
    "The network and its devices",
    about,
    controls,
    drawing,
    missing,
    devicesPart,
  );

  function start() {
    clearInterval(state.playing);
    if (Number(slider.value) >= Number(slider.max)) chooseFrame(0);
    state.playing = setInterval(
      () =>
        Number(slider.value) < Number(slider.max) ? showFrame(Number(slider.value) + 1) : stop(),
      reducedMotion.matches ? 1000 : 1000 / Number(state.speed),
    );
    play.textContent = "Pause";
  }
  function stop() {
    if (state.playing) chosen(Number(slider.value));
    clearInterval(state.playing);
    state.playing = null;
    play.textContent = "Play";
  }

  /** Show a frame that the reader has chosen. */
  function chooseFrame(frame) {
    showFrame(frame);
    chosen(frame);
  }

  function chosen(frame) {
    state.round = shown.frames[frame].round;
    remember({ round: state.round });
  }

  function showFrame(frame) {
    state.frame = frame;
    slider.value = frame;
    const { round } = shown.frames[frame];
    const seconds = shown.seconds?.get(round);
    const time = Number.isFinite(seconds) ? `, ${formatNumber(seconds)} simulated s` : "";
    const text = `after round ${round} of ${content.runs[state.run].rounds}${time}`;
    slider.setAttribute("aria-valuetext", text);
    roundText.textContent = text;
    picture.frame(shown.frames[frame].place);
    contacts.frame(frame);
  }

  function selectDevice(device) {
    state.device = device;
    deviceInput.value = device ?? "";
    remember({ device });
    picture.select(device);
    showContacts();
    drawMultiples();
  }

  function showContacts() {
    const { network, frames } = shown;
    const selected = network?.shown.includes(state.device) ? state.device : null;
    if (network && frames.length) contacts.show({ network, frames, selected });
  }

  const value = (column, row, device) => {
    const v = row == null || device >= column.devices ? NaN : column.at(row, device);
    return Number.isNaN(v) || !Number.isFinite(v) ? null : v;
  };

  function drawMultiples() {
    if (!shown || !shown.quantity) return single.show(null);
    const { column, quantity, rows, rounds } = shown;
    const every = Math.max(1, Math.ceil(rows / 80));
    const kept = Array.from({ length: rows }, (_, r) => r).filter(
      (r) => (rows - 1 - r) % every === 0 && value(column, r, 0) != null,
    );
    if (!kept.length) return single.show(null);
    const devices = Array.from({ length: column.devices }, (_, device) => ({
      device,
      values: kept.map((r) => value(column, r, device)),
    }));
    const mean = kept.map(
      (_, k) => devices.reduce((sum, d) => sum + (d.values[k] ?? 0), 0) / devices.length,
    );
    const colour =
      content.curves.find((line) => line.label === content.runs[state.run].label)?.colour ?? 0;
    multiples.show({
      rounds: kept.map((r) => rounds[r]),
      devices,
      mean,
      range: shown.range,
      quantity,
      colour,
      order: state.order,
      selected: state.device,
    });
    const run = content.runs[state.run];
    const isThere = state.device != null && state.device < column.devices;
    single.show(
      isThere
        ? {
            device: state.device,
            quantity,
            rounds: kept.map((r) => rounds[r]),
            devices,
            colour,
            network: shown.network,
            frames: shown.frames,
            labels: content.labels?.[run.labels] ?? null,
            confusion: run.confusion ?? null,
          }
        : null,
    );
  }

  async function draw() {
    const run = content.runs[state.run];
    const runColumns = await table(state.run);
    const rows = run.rows;
    const quantities = deviceQuantities(content.metrics);
    const offered = Object.keys(quantities).filter(
      (name) => runColumns.has(name) && runColumns.get(name).values.some(Number.isFinite),
    );
    if (!offered.includes(state.quantity)) state.quantity = offered[0] ?? null;
    const network = run.network == null ? null : await unpackNetwork(content.networks[run.network]);
    if (run !== content.runs[state.run]) return; // the reader has selected another run meanwhile
    const column = runColumns.get(state.quantity);
    const quantity = quantities[state.quantity];
    const rounds = rows ? Array.from(runColumns.get("round").values, Number) : [];
    const range = column
      ? colourRange([Array.from(column.values).filter(Number.isFinite)], quantity.zero)
      : [0, 1];
    const frames = network ? network.rounds.map((round, place) => ({ round, place })) : [];
    const atEnd = follow && (!shown || state.frame >= shown.frames.length - 1);
    const times = runColumns.get("simulated_seconds");
    const newest = newestRows(rounds, frames, () => true); // rounds between two measurements
    const secondsAt = (round) => times.at(newest.get(round) ?? 0);
    const seconds = times && new Map(frames.map(({ round }) => [round, secondsAt(round)]));
    shown = { column, quantity, rows, rounds, range, frames, network, seconds };

    drawing.hidden = !frames.length || !column;
    devicesPart.hidden = !column;
    missing.hidden = !drawing.hidden;
    const why = run.why ?? "none of its rounds has been measured yet";
    missing.textContent = !column
      ? "There are no measurements of single devices in this run: " +
        "they are kept of up to 1,000 devices."
      : `The network of this run is not shown: ${why}.`;
    about.textContent = network ? description(network, frames, rounds) : "";
    const options = content.runs.map((r, k) => {
      const state = r.finished || r.state.startsWith("running") ? "" : ` (${r.state})`;
      return [k, `${r.label}, seed ${r.seed}${state}`];
    });
    replaceIfChanged(runMenu, options, () =>
      menu("Run", options, state.run, (k) => {
        stop();
        state.run = Number(k);
        state.frame = follow ? Infinity : null;
        remember({ run: state.run || null });
        draw();
      }),
    );
    replaceIfChanged(quantityMenu, offered, () => {
      const named = offered.map((name) => [name, quantities[name].short]);
      return named.length > 1
        ? choices("Colour by", "quantity", named, state.quantity, (name) => {
            state.quantity = name;
            remember({ colour: name });
            draw();
          })
        : "";
    });
    deviceInput.max = (column?.devices ?? 1) - 1;
    if (!drawing.hidden) {
      const rowBefore = newestRows(rounds, frames, (row) => value(column, row, 0) != null);
      const values = (round, device) => value(column, rowBefore.get(round), device);
      const ofRound = (round) =>
        colourRange([network.shown.map((device) => values(round, device))], false);
      picture.show({
        network,
        values,
        quantity,
        range: state.scale === "one" ? ofRound : () => range,
        trails: state.trails,
        radius: state.radius,
      });
      picture.select(state.device);
      moves.hidden = !network.moving;
      reach.hidden = !network.map?.radius;
      slider.max = frames.length - 1;
      const remembered = frames.findIndex(({ round }) => round === state.round);
      if (remembered >= 0) state.frame = remembered;
      if (state.frame == null) state.frame = firstContact(network, frames);
      showFrame(
        atEnd && remembered < 0 ? frames.length - 1 : Math.min(state.frame, frames.length - 1),
      );
      showContacts();
    }
    drawMultiples();
  }

  function description(network, frames, rounds) {
    const { every, joined } = network;
    const parts = [
      joined < every
        ? `Each frame shows ${every.toLocaleString("en-GB")} rounds, with the links of the ` +
          `last ${joined.toLocaleString("en-GB")} of them.`
        : every > 1
          ? `Each frame shows ${every.toLocaleString("en-GB")} rounds, with all their links.`
          : "Each frame shows one round.",
    ];
    if (rounds.length < frames.length) parts.push("Colours show the latest measurement.");
    if (network.moving) parts.push("Devices are drawn at their positions.");
    else parts.push("Positions have no meaning.");
    if (network.here) parts.push("Dashed: away.");
    if (network.shown.length < network.devices)
      parts.push(
        `${network.shown.length} of ${network.devices.toLocaleString("en-GB")} devices ` +
          "are drawn, evenly chosen by number, with the links among them.",
      );
    return parts.join(" ");
  }

  let drawnKey = "";
  /** Take new content; the network is drawn again only if there is more of it. */
  async function update(next) {
    content = next;
    state.run = Math.min(state.run, content.runs.length - 1);
    const run = content.runs[state.run];
    const key = JSON.stringify([state.run, run.rows, run.network, run.state]);
    if (key === drawnKey) return;
    drawnKey = key;
    await draw();
  }
  return { node, update };
}

/** Return the row of the newest measurement at the round of each frame. */
export function newestRows(rounds, frames, isKnown) {
  const rows = new Map();
  let next = 0;
  let newest = null;
  for (const { round } of frames) {
    for (; next < rounds.length && rounds[next] <= round; next++) if (isKnown(next)) newest = next;
    rows.set(round, newest);
  }
  return rows;
}
