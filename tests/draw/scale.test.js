import assert from "node:assert/strict";
import test from "node:test";

import { spreadOut, niceDomain, linear, logarithmic, ticks } from "../../src/cutaway/draw/scale.js";

test("ticks are round, within, and about as many as wanted", () => {
  assert.deepEqual(ticks(0, 1), [0, 0.2, 0.4, 0.6, 0.8, 1]);
  assert.deepEqual(ticks(0.1, 0.62), [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]);
  assert.deepEqual(ticks(-150, 200, 4), [-100, 0, 100, 200]);
  assert.deepEqual(ticks(3, 3), [3]);
  for (const [low, high] of [[0, 1e-7], [-3.7, 12.9], [1e6, 3e9], [0.97, 0.9931]]) {
    const found = ticks(low, high);
    assert.ok(found.length >= 3 && found.length <= 9, `${found}`);
    assert.ok(found.every((t) => t >= low && t <= high));
  }
});

test("a range too narrow for round values has one tick and a domain that can be drawn", () => {
  const beside = 123456789012345680 + 64;
  assert.deepEqual(ticks(123456789012345680, beside), [123456789012345680]);
  assert.deepEqual(ticks(0.1, 0.1 + 2 ** -55), [0.1]);
  const [low, high] = niceDomain([123456789012345680, beside]);
  assert.ok(low < 123456789012345680 && beside < high);
});

test("a linear scale meets the ends of its range, also upside down and where the domain is empty", () => {
  const y = linear([10, 20], [100, 0]);
  assert.deepEqual([y(10), y(15), y(20)], [100, 50, 0]);
  assert.equal(linear([5, 5], [0, 100])(5), 0);
});

test("a logarithmic scale gives equal ratios equal lengths", () => {
  const x = logarithmic([0.01, 100], [0, 400]);
  assert.ok(Math.abs(x(1) - 200) < 1e-9);
  assert.ok(Math.abs(x(10) - x(1) - (x(1) - x(0.1))) < 1e-9);
  assert.deepEqual(x.ticks, [0.01, 0.1, 1, 10, 100]);
  assert.deepEqual(logarithmic([0.9, 6], [0, 1]).ticks, [1, 2, 5]);
  assert.ok(logarithmic([1e-12, 1e12], [0, 1]).ticks.length <= 7);
});

test("a domain holds its values, is never empty and stays below what cannot be", () => {
  for (const values of [[0.589, 0.967], [-5, 17], [3, 3], [0, 0], [1e-9, 2e-9]]) {
    const [low, high] = niceDomain(values);
    assert.ok(low <= Math.min(...values) && high >= Math.max(...values) && low < high, `${values}: ${low} ${high}`);
  }
  assert.equal(niceDomain([0.91, 0.999], { most: 1 })[1], 1);
  assert.deepEqual(niceDomain([]), [0, 1]);
  const [low, high] = niceDomain([0.001, 5], { log: true });
  assert.ok(low > 0 && low < 0.001 && high > 5);
});

test("labels that would overlap are moved apart, in order and within bounds", () => {
  const moved = spreadOut([10, 11, 95], [16, 16, 16], 0, 100);
  assert.ok(moved[1] - moved[0] >= 16 && moved[2] - moved[1] >= 16);
  assert.ok(moved[0] >= 8 && moved[2] <= 92);
  assert.deepEqual(spreadOut([20, 60], [16, 16], 0, 100), [20, 60]);
});
