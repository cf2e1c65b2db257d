import assert from "node:assert/strict";
import { test } from "node:test";
import {
  formatAddress,
  formatList,
  formatRange,
  parseAddress,
  parseList,
  parseRange,
} from "../../../src/gossamer/report/web/address.js";
import { groupings, groupsOf, lineStyle } from "../../../src/gossamer/report/web/selection.js";
import { parallelAxis, parallelEntries } from "../../../src/gossamer/report/web/parallel.js";
import { csvOfLines, fileName } from "../../../src/gossamer/report/web/export.js";

test("an address keeps a section and a state", () => {
  const state = { x: "bytes", hide: formatList(["A~B", "C %/&?"]) };
  const address = formatAddress("curves", state);
  const parsed = parseAddress(address);
  assert.equal(parsed.section, "curves");
  assert.equal(parsed.state.x, "bytes");
  assert.deepEqual(parseList(parsed.state.hide), ["A~B", "C %/&?"]);
  assert.deepEqual(parseAddress("#network"), { section: "network", state: {} });
  assert.equal(formatAddress("", {}), "");
});

test("a range in an address is two ascending numbers, or nothing", () => {
  assert.deepEqual(parseRange(formatRange([0.25, 12345])), [0.25, 12345]);
  for (const wrong of ["", "1", "5~1", "a~b", "1~2~3", undefined])
    assert.equal(parseRange(wrong), null);
});

const run = (name, label, seed) => ({ name, label, seed, rows: 3 });
const CONTENT = {
  runs: [run("a0", "A", 0), run("a1", "A", 1), run("b0", "B", 0), run("b1", "B", 1)],
  curves: [{}, {}],
  settings: [{ name: "batch", values: [8, 8, 8, 64] }],
  metrics: [{ name: "accuracy" }],
};

test("runs are grouped by method, seed, run and any setting", () => {
  assert.deepEqual(
    groupings(CONTENT).map(({ name }) => name),
    ["method", "batch", "seed", "run"],
  );
  const groups = (by, off = []) =>
    groupsOf(CONTENT, by, new Set(off)).map(({ label, runs }) => [label, runs]);
  assert.deepEqual(groups("method"), [
    ["A", [0, 1]],
    ["B", [2, 3]],
  ]);
  assert.deepEqual(groups("batch"), [
    ["batch 8", [0, 1, 2]],
    ["batch 64", [3]],
  ]);
  assert.deepEqual(groups("method", ["a0", "b0", "b1"]), [["A", [1]]]);
  assert.deepEqual(groups("no such setting"), groups("method"));
});

test("a group keeps its colour when others are not shown", () => {
  const [group] = groupsOf(CONTENT, "method", new Set(["a0", "a1"]));
  assert.equal(group.number, 1);
  const dashes = ["", "6 2", "1 2"];
  assert.deepEqual(lineStyle(0, dashes), { colour: 0, dash: "" });
  assert.deepEqual(lineStyle(3, dashes), { colour: 0, dash: "6 2" });
});

test("axes place numbers by value, wide ones by logarithm, words one above the other", () => {
  const near = (a, b) => assert.ok(Math.abs(a - b) < 1e-12);
  const plain = parallelAxis("batch", [8, 16, 12]);
  near(plain.place(12), 0.5);
  const wide = parallelAxis("eta", [0.001, 0.1, 0.01]);
  near(wide.place(0.01), 0.5);
  const words = parallelAxis("kind", ["a", "b", null]);
  assert.deepEqual(["a", "b", null].map(words.place), [0.5 / 3, 1.5 / 3, 2.5 / 3]);
});

test("few methods have no parallel coordinates", () => {
  const results = { columns: [{ label: "method" }, { label: "accuracy" }], rows: [] };
  assert.deepEqual(parallelEntries({ ...CONTENT, results }, 5).entries, []);
});

test("CSV quotes labels, and file names are plain", () => {
  const line = { label: 'A, "B"', x: [0, 10], mean: [1.5, null], half: [0.1, null] };
  assert.equal(
    csvOfLines([line], "round", "accuracy, %"),
    'line,round,"accuracy, %",half of the 95 % interval\r\n' +
      '"A, ""B""",0,1.5,0.1\r\n"A, ""B""",10,,\r\n',
  );
  assert.equal(fileName("merged model’s test accuracy, %"), "merged-model-s-test-accuracy");
  assert.equal(fileName("%"), "chart");
});
