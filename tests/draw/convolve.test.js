import assert from "node:assert/strict";
import test from "node:test";

import { all, texts } from "./page.js";
import { convolve } from "../../src/cutaway/draw/convolve.js";

const grid = (rows, columns, value) => [...Array(rows).keys()].map((i) => [...Array(columns).keys()].map((j) => value(i, j)));
const spec = (more = {}) => ({
  title: "conv1, channel 0 of 2: all",
  what: "sum",
  kernel: [2, 2],
  stride: [2, 2],
  dilation: [1, 1],
  begin: [-1, -1],
  size: [3, 3],
  first: [0, 0],
  output: grid(2, 2, (i, j) => 10 * i + j),
  channels: [
    { name: "channel 0", input: grid(4, 4, (i, j) => i - j), weights: [[1, 2], [-3, 0.5]], sums: grid(2, 2, () => 4) },
    { name: "channel 1", input: grid(4, 4, () => 1), weights: [[7, 7], [7, 7]], sums: grid(2, 2, () => 5) },
    { name: "3 other channels", sums: grid(2, 2, () => 6) },
  ],
  bias: 0.25,
  columns: [],
  ...more,
});

test("there is a target for every output, and one for every channel that can be shown", () => {
  const { targets } = convolve(spec(), 900);
  assert.deepEqual(targets.filter((t) => t.hover).map((t) => t.hover.cell), [[0, 0], [0, 1], [1, 0], [1, 1]]);
  assert.deepEqual(targets.filter((t) => t.set?.channel !== undefined).map((t) => t.set.channel), [0, 1]);
});

test("the window follows the output with its stride", () => {
  const at = (state) => {
    const [window] = all(convolve(spec(), 900, state).svg, "rect").filter((rect) => rect.attributes.class === "chosen");
    const { x, y, width } = window.attributes;
    return { x: Number(x), y: Number(y), width: Number(width) };
  };
  const cell = at({}).width / 2;
  const moved = at({ cell: [1, 1] });
  assert.equal(moved.x - at({}).x, 2 * cell);
  assert.equal(moved.y - at({}).y, 2 * cell);
  assert.equal(at({ cell: [9, 9] }).x, at({}).x); // a cell that is not there any more
});

test("products are weight times number, cell by cell, under the window", () => {
  const written = texts(convolve(spec(), 900, { cell: [1, 0] }).svg, "text");
  // Under the window at (2…3, 0…1): 2, 1, 3, 2; times 1, 2, −3, .5 makes 2, 2, −9, 1.
  for (const product of ["−9", "−3", ".5"]) assert.ok(written.includes(product), product);
});

test("the terms stand under each other and end in the output", () => {
  const written = texts(convolve(spec(), 900, { cell: [1, 1] }).svg, "text");
  for (const word of ["products of channel 0", "products of 3 other channels", "bias", "0.25", "output, row 2, column 2", "11", "="]) {
    assert.ok(written.includes(word), word);
  }
});

test("what lies outside the real input is hatched", () => {
  const { svg } = convolve(spec(), 900);
  const hatched = all(svg, "path").filter((path) => path.attributes.class === "hatch");
  assert.equal(hatched.length, 7); // the first row and the first column of 4 × 4
});

test("another channel is shown when it is chosen, and one without an input never", () => {
  const written = (state) => texts(convolve(spec(), 900, state).svg, "text");
  assert.ok(written({ channel: 1 }).includes("input, channel 1"));
  assert.ok(written({ channel: 2 }).includes("input, channel 0"));
  assert.ok(written({ channel: 9 }).includes("input, channel 0"));
});

test("all stands within its width, of images, signals and pools", () => {
  const signal = {
    kernel: [1, 3], stride: [1, 1], begin: [0, -2], size: [1, 20], first: [0, 0], output: [grid(1, 18, (_, j) => j)[0]],
    channels: [{ name: "products", input: grid(1, 20, (_, j) => j / 7), weights: [[1, 2, 3]], sums: grid(1, 18, () => 1) }],
    columns: Array(20).fill("<i>word"),
  };
  const pool = { what: "max", bias: null, channels: [{ name: "channel 3", input: grid(4, 4, (i, j) => i * j), sums: grid(2, 2, () => 1) }] };
  for (const more of [{}, signal, pool]) {
    for (const width of [320, 368, 640, 1200]) {
      const { svg, targets } = convolve(spec(more), width);
      assert.ok(!JSON.stringify([...all(svg, "rect"), ...all(svg, "text")].map((e) => e.attributes)).includes("NaN"));
      for (const rect of all(svg, "rect")) assert.ok(Number(rect.attributes.x) + Number(rect.attributes.width) <= width + 1);
      for (const { box: [x, , wide] } of targets) assert.ok(x >= 0 && x + wide <= width + 1);
    }
  }
});

test("of a pool the largest number is picked out", () => {
  const pool = { what: "max", bias: null, channels: [{ name: "channel 3", input: grid(4, 4, (i, j) => i * 4 + j), sums: grid(2, 2, () => 1) }] };
  const { svg } = convolve(spec({ ...pool, begin: [0, 0], size: [4, 4] }), 900);
  const picked = all(svg, "text").filter((text) => text.attributes.class === "digits picked");
  assert.deepEqual(picked.map((text) => text.children.join("")), ["5"]);
});

test("a pool shows the numbers of its window, and padding only where it counts", () => {
  const pool = (what, input, more = {}) => ({ what, bias: null, begin: [0, 0], channels: [{ name: "channel 0", input, sums: grid(2, 2, () => 2) }], ...more });
  const slide = [[0, 0, 1, 1], [-3, 2, 1, 1], [4, 4, 4, 4], [4, 4, 4, 4]];
  const lines = (made, cell = [0, 0]) => texts(convolve(spec(made), 900, { cell }).svg, "text");
  assert.ok(lines(pool("max", slide)).includes("maximum of 0, 0, −3, 2"));
  assert.ok(lines(pool("mean", slide)).includes("mean: (0 + 0 + (−3) + 2) / 4"));
  assert.ok(lines(pool("mean", slide), [1, 1]).includes("mean: (4 + 4 + 4 + 4) / 4"));
  const padded = [[null, null, 1, 1], [null, 2, 1, 1], [4, 4, 4, 4], [4, 4, 4, 4]];
  assert.ok(lines(pool("max", padded)).includes("maximum of 2"));
  assert.ok(lines(pool("mean", padded)).includes("mean: (2) / 1"));
});
