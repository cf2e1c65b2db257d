// Unit tests of the histograms of weights.
import assert from "node:assert/strict";
import test from "node:test";
import { columnEdges, densityLevels, quantileText } from "../../../src/gossamer/report/web/weights.js";

test("columns end halfway between the rounds", () => {
  assert.deepEqual(columnEdges([0, 10, 30]), [0, 5, 20, 30]);
});

test("a wide bin with as many weights has a lower level", () => {
  const levels = densityLevels({ edges: [0, 1, 5], counts: [[50, 50], [0, 100]] });
  assert.equal(levels[0][0], 8);
  assert.ok(levels[0][1] < levels[0][0]);
  assert.equal(levels[1][0], 0);
});

test("quantiles in words", () => {
  assert.equal(
    quantileText(20, [-0.1234, 0, 0.25]),
    "round 20: 5 % of the weights below -0.123, median 0, 95 % below 0.25",
  );
});
