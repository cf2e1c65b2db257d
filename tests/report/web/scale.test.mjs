import assert from "node:assert/strict";
import { test } from "node:test";
import {
  acrossRange,
  band,
  inverse,
  linePath,
  measuredPlaces,
  nearest,
  projection,
  smoothed,
  valueRange,
  zoomed,
} from "../../../src/gossamer/report/web/scale.js";

const line = (x, mean, half = null) => ({ x, mean, half });

test("smoothing keeps constants and gaps, and moves towards the past", () => {
  assert.deepEqual(smoothed([2, 2, null, 2], 0.9), [2, 2, null, 2]);
  assert.deepEqual(smoothed([1, 2, 3], 0), [1, 2, 3]);
  const [first, second] = smoothed([0, 1], 0.5);
  assert.equal(first, 0);
  assert.ok(Math.abs(second - 2 / 3) < 1e-12); // weights 0.25 and 0.5
});

test("a band stays within what is possible", () => {
  const { lower, upper } = band([0.5, 0.9, null], [0.1, 0.3, 0.1], 0, 1);
  assert.deepEqual(lower, [0.4, 0.6000000000000001, null]);
  assert.deepEqual(upper, [0.6, 1, null]);
});

test("the nearest measurement is found among gaps", () => {
  assert.equal(nearest([0, 10, null, 20], 14), 1);
  assert.equal(nearest([0, 10, null, 20], 1e9), 3);
  assert.equal(nearest([], 1), -1);
  assert.deepEqual(measuredPlaces([line([0, 5, 9], []), line([5, 7], [])], [1, 8]), [5, 7]);
});

test("a logarithmic axis starts at the first measurement", () => {
  assert.deepEqual(acrossRange([line([0, 3, 50], [])], true), [3, 50]);
  assert.deepEqual(acrossRange([line([0, 3, 50], [])], false), [0, 50]);
  const y = { log: true };
  assert.deepEqual(
    valueRange([line([0, 1, 2], [0, 0.02, 7], [0, 0.019, 1])], y, [0, 2]),
    [0.02, 8],
  );
});

test("only what is between the two ends gives the range of y", () => {
  const lines = [line([0, 1, 2, 3], [100, 1, 2, -50])];
  assert.deepEqual(valueRange(lines, {}, [1, 2]), [1, 2]);
  assert.deepEqual(valueRange(lines, { zero: true }, [1, 2]), [0, 2]);
  assert.deepEqual(valueRange([line([0], [1])], { least: 0, most: 1 }, [0, 0]), [0.5, 1]);
});

test("pixels and values are inverse to each other", () => {
  for (const log of [false, true]) {
    const px = projection([2, 200], [30, 430], log);
    const value = inverse([2, 200], [30, 430], log);
    assert.equal(px(2), 30);
    assert.ok(Math.abs(px(200) - 430) < 1e-9);
    for (const v of [2, 3.5, 77, 200]) assert.ok(Math.abs(value(px(v)) - v) < 1e-9);
  }
});

test("zooming keeps the centre and ends at the whole range", () => {
  assert.deepEqual(zoomed([0, 100], [0, 100], 20, 0.5), [10, 60]);
  assert.equal(zoomed([10, 60], [0, 100], 20, 2), null);
  assert.deepEqual(zoomed([0, 20], [0, 100], 0, 2), [0, 40]);
});

test("a path has gaps where nothing was measured", () => {
  const same = (v) => v;
  assert.equal(
    linePath([0, 1, 2, 3], [5, 6, null, 7], same, same, (v) => v != null),
    "M0.0 5.0L1.0 6.0M3.0 7.0",
  );
});
