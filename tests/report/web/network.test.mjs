import assert from "node:assert/strict";
import { test } from "node:test";
import {
  firstContact,
  flagged,
  lengthText,
  pairsOf,
  roundLength,
} from "../../../src/gossamer/report/web/network.js";
import { countContacts, levelPaths } from "../../../src/gossamer/report/web/contacts.js";
import { newestRows } from "../../../src/gossamer/report/web/network_section.js";
import { deviceLines, recalls } from "../../../src/gossamer/report/web/device.js";
import { logTicks, ticks } from "../../../src/gossamer/report/web/numbers.js";

const LINKS = [
  [],
  [],
  [[0, 1]],
  [
    [0, 1],
    [1, 2],
  ],
  [[0, 2]],
];
const NETWORK = { shown: [0, 1, 2], links: (place) => LINKS[place] };
const FRAMES = LINKS.map((_, place) => ({ round: place, place }));

test("flags and pairs are in the order of pack.py", () => {
  assert.deepEqual(pairsOf(3, false), [
    [0, 1],
    [0, 2],
    [1, 2],
  ]);
  assert.equal(pairsOf(3, true).length, 9);
  assert.deepEqual(flagged(Uint8Array.of(255, 0b101, 0b10000000), 1, 2), [0, 2, 15]);
});

test("a page starts where devices meet first", () => {
  assert.equal(firstContact(NETWORK, FRAMES), 2);
  assert.equal(firstContact({ links: () => [] }, FRAMES), 0);
});

test("contacts are counted for all devices, or for the partners of one", () => {
  const { columns, rows } = countContacts(NETWORK, FRAMES, null);
  assert.equal(columns, 5);
  assert.deepEqual(
    rows.map(({ counts }) => counts.join("")),
    ["00111", "00120", "00011"],
  );
  const own = countContacts(NETWORK, FRAMES, 1).rows;
  assert.deepEqual(
    own.map(({ device, sum }) => [device, sum]),
    [
      [0, 2],
      [2, 1],
    ],
  );
});

test("neighbouring cells of one level are one rectangle", () => {
  const rows = [{ counts: [0, 4, 4, 1] }];
  const paths = levelPaths(
    rows,
    (k) => 10 * k,
    () => 0,
    5,
  );
  assert.deepEqual(paths, ["M30.0 0.0H40.0v5.0H30.0z", "", "", "M10.0 0.0H30.0v5.0H10.0z"]);
});

test("a round has the values of the newest measurement before it", () => {
  const frames = [0, 1, 2, 3].map((round) => ({ round }));
  const rows = newestRows([0, 2], frames, () => true);
  assert.deepEqual([...rows.values()], [0, 0, 1, 1]);
  const unknown = newestRows([0, 2], frames, (row) => row === 1);
  assert.deepEqual([...unknown.values()], [null, null, 1, 1]);
});

test("the bar of a map is a round length of at most a third", () => {
  for (const [size, length] of [
    [1, 0.2],
    [3, 1],
    [1700, 500],
    [0.06, 0.02],
  ])
    assert.ok(Math.abs(roundLength(size) - length) < 1e-12, `${size}`);
  assert.equal(lengthText(2000, "m"), "2 km");
  assert.equal(lengthText(0.2, ""), "0.2");
});

test("a device is drawn beside the mean, the best and the worst", () => {
  const devices = [
    { device: 4, values: [1, 5] },
    { device: 7, values: [3, null] },
  ];
  const facts = { rounds: [0, 1], devices, device: 7, rising: false, colour: 0 };
  const means = deviceLines(facts).map(({ mean }) => mean);
  assert.deepEqual(means, [
    [3, null],
    [2, 5],
    [1, 5],
    [3, 5],
  ]);
});

test("recalls are the shares of right answers per class", () => {
  assert.deepEqual(recalls([3, 1, 0, 0], 2), [0.75, null]);
});

test("ticks are round numbers within the ends", () => {
  assert.deepEqual(ticks(0, 100, 5).values, [0, 20, 40, 60, 80, 100]);
  assert.deepEqual(
    logTicks(0.03, 40, 4).values.every((v) => v >= 0.03 && v <= 40),
    true,
  );
});
