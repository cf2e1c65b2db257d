import assert from "node:assert/strict";
import { test } from "node:test";
import {
  averaged,
  commonRounds,
  meanInterval,
  tQuantile,
} from "../../../src/gossamer/report/web/statistics.js";

const close = (a, b, error = 1e-4) =>
  assert.ok(Math.abs(a - b) <= error * Math.abs(b), `${a} ${b}`);

test("quantiles of Student's t are those of tables", () => {
  for (const [freedom, value] of [
    [1, 12.7062],
    [4, 2.77645],
    [30, 2.04227],
    [31, 2.03951],
    [60, 2.0003],
    [1000, 1.96234],
  ])
    close(tQuantile(freedom), value);
});

test("the interval of three values is that of gossamer's tables", () => {
  const { mean, half, count } = meanInterval([1, 2, 3]);
  assert.deepEqual([mean, count], [2, 3]);
  close(half, 2.48414);
  assert.equal(meanInterval([5]).half, null);
  assert.equal(meanInterval([]).mean, null);
});

test("groups are averaged at the rounds that all of their runs have measured", () => {
  const run = (round, loss) =>
    new Map([
      ["round", round],
      ["bytes", round.map((t) => 1e6 * t)],
      ["loss", loss],
    ]);
  const runs = [run([0, 5, 10], [1, 2, 3]), run([0, 10, 20], [3, 5, 9])];
  assert.deepEqual(commonRounds(runs), [0, 10]);
  const { x, y } = averaged(runs, { round: 1, bytes: 1e-6, joules: 1 }, ["loss", "accuracy"]);
  assert.deepEqual(x, { round: [0, 10], bytes: [0, 10] });
  assert.deepEqual(y.loss.mean, [2, 4]);
  assert.equal(y.accuracy, undefined);
});
