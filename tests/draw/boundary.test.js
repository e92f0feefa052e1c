import assert from "node:assert/strict";
import test from "node:test";

import { all, texts } from "./page.js";
import { boundary } from "../../src/cutaway/draw/boundary.js";
import { valueAt, zeroLine } from "../../src/cutaway/draw/byte_maps.js";
import { pointOnCurve, edgeTargets } from "../../src/cutaway/draw/edges.js";

const coded = (values) => btoa(String.fromCharCode(...values));
/** A map of size × size that rises from left to right, from −1 to 1. */
const ramp = (size) => {
  const bytes = [...Array(size * size).keys()].map((k) => Math.round(((k % size) / (size - 1)) * 254));
  return { bytes: coded(bytes), low: -1, high: 1 };
};
const neuron = (name, more = {}) => ({ name, ...ramp(4), ...more });
const spec = (more = {}) => ({
  title: "Plane",
  axes: [{ name: "age", low: 0, high: 10 }, { name: "<b>income", low: 100, high: 300 }],
  size: 6,
  small: 4,
  answer: { kind: "probability", names: ["no", "yes"], ...ramp(6) },
  columns: [
    { title: "inputs", of: 2, neurons: [neuron("age", { input: 0 }), neuron("<b>income", { input: 1 })] },
    { title: "hidden 1", of: 256, name: "hidden.0.linear", sources: [3, 5], weights: [[1, -2], [0.5, null], [0, 0]], neurons: [neuron("a", { bias: 0.5 }), neuron("b", { bias: -1 }), neuron("c", { bias: 0 })] },
    { title: "output", of: 1, name: "head", sources: [0, 1, 2], weights: [[1, 1, -1]], neurons: [neuron("yes", { bias: 0.25 })] },
  ],
  points: [{ split: "train", at: [[5, 200], [1, 150], [99, 200]], is: [0, 1, 0] }, { split: "test", at: [[2, 120]], is: [1] }],
  note: "Held fast: height = 3.",
  ...more,
});
const WIDTHS = [320, 368, 720, 1200];

test("all stands within its width, and nothing in it is not a number", () => {
  for (const width of WIDTHS) {
    const { svg, targets } = boundary(spec(), width);
    assert.ok(!JSON.stringify(all(svg, "path").map((p) => p.attributes)).includes("NaN"));
    for (const { box: [x, y, wide, high] } of targets) {
      assert.ok([x, y, wide, high].every(Number.isFinite));
      assert.ok(x >= -1 && x + wide <= width + 1 && y >= 0, `${[x, y, wide, high]} in ${width}`);
    }
    for (const image of all(svg, "image")) assert.ok(Number(image.attributes.x) + Number(image.attributes.width) <= width + 1);
  }
});

test("a byte is a value between low and high, and the middle of a signed map is exactly zero", () => {
  const level = { bytes: coded([0, 127, 254, 254]), low: -3, high: 3 };
  assert.equal(valueAt(level, 2, 0, 0), -3);
  assert.equal(valueAt(level, 2, 0, 1), 0);
  assert.equal(valueAt(level, 2, 1, 1), 3);
});

test("the line of a map runs where it changes sign, between the cells", () => {
  const path = zeroLine(ramp(4), 4, { x: 0, y: 0, width: 40, height: 40 });
  const xs = [...path.matchAll(/[ML]([\d.]+) ([\d.]+)/g)].map((match) => Number(match[1]));
  assert.ok(xs.length >= 6);
  assert.ok(xs.every((x) => Math.abs(x - 20) < 0.2));
  assert.equal(zeroLine({ bytes: coded(Array(16).fill(200)), low: -1, high: 1 }, 4, { x: 0, y: 0, width: 40, height: 40 }), "");
});

test("every weight and bias can be asked for by its own name and place", () => {
  const { targets } = boundary(spec(), 1000);
  const acts = targets.map((target) => target.act).filter(Boolean);
  const of = (name) => acts.filter((act) => act.name === name).map((act) => [act.index, act.value]);
  assert.deepEqual(of("hidden.0.linear.weight").slice(0, 3), [[[0, 3], 1], [[0, 5], -2], [[1, 3], 0.5]]);
  assert.deepEqual(of("hidden.0.linear.bias"), [[[0], 0.5], [[1], -1], [[2], 0]]);
  assert.equal(of("head.weight").length, 3);
});

test("a neuron that is pointed at takes the large map, one that is clicked keeps it", () => {
  const large = (state) => all(boundary(spec(), 1000, state).svg, "text").map((t) => t.children.join(""));
  assert.ok(large({}).includes("the model's output"));
  assert.ok(!large({ neuron: "1.1" }).includes("the model's output"));
  assert.ok(large({ pinned: "1.1", neuron: null }).includes("b"));
  const [one] = boundary(spec(), 1000).targets.filter((target) => target.key === "1.1");
  assert.deepEqual([one.hover, one.set], [{ neuron: "1.1" }, { pinned: "1.1" }]);
  const [again] = boundary(spec(), 1000, { pinned: "1.1" }).targets.filter((target) => target.key === "1.1");
  assert.deepEqual(again.set, { pinned: null });
});

test("the pointer is told what the model says where it is, in the person's units", () => {
  const { targets } = boundary(spec(), 1000);
  const field = targets.find((target) => target.at && !target.hover);
  const [x, y, wide, high] = field.box;
  const { tip } = field.at(x + 0.9 * wide, y + 0.1 * high);
  assert.deepEqual(tip, ["yes, 100\u202f%", "age 9, <b>income 280"]);
  assert.equal(field.at(x + 1, y + high / 2).tip[0], "no, 100\u202f%");
});

test("the nearest curve is found by the pointer, and each by the keyboard at a place of its own", () => {
  const wires = [0, 1, 2].flatMap((j) => [0, 1].map((i) => ({ from: [0, 40 * i], to: [100, 50 * j], weight: 1, key: `${j} ${i}`, tip: [`${j} ${i}`] })));
  const [whole, ...single] = edgeTargets(wires, 2);
  assert.equal(new Set(single.map(({ box }) => box.join())).size, wires.length);
  for (const one of wires) {
    const [x, y] = pointOnCurve(one, 0.5);
    assert.equal(whole.at(x, y).key, one.key);
  }
});

test("examples outside the plane are left out, and each class has its colour", () => {
  const dots = (made) => all(made.svg, "path").filter((path) => /dotted|ringed/.test(path.attributes.class ?? ""));
  const made = dots(boundary(spec(), 1000));
  assert.equal(made.map((path) => (path.attributes.d.match(/M/g) ?? []).length).reduce((a, b) => a + b), 3);
  const three = { kind: "classes", names: ["a", "b", "c"], sure: "probability", said: coded(Array(36).fill(2)), ...ramp(6) };
  const colours = dots(boundary(spec({ answer: three, points: [{ split: "train", at: [[1, 150], [2, 150], [3, 150]], is: [0, 1, 2] }] }), 1000));
  assert.equal(new Set(colours.map((path) => path.colours["--light"])).size, 3);
  assert.ok(texts(boundary(spec({ answer: three }), 1000).svg, "text").includes("c"));
});

test("values, scores and examples without a target are drawn", () => {
  const value = { kind: "value", name: "price", bytes: ramp(6).bytes, low: 10, high: 30 };
  const points = [{ split: "examples", at: [[1, 150]], is: null }];
  for (const answer of [value, { kind: "score", names: ["no", "yes"], ...ramp(6) }]) {
    const { targets } = boundary(spec({ answer, points }), 500);
    const field = targets.find((target) => target.at && !target.hover);
    assert.ok(field.at(field.box[0] + 2, field.box[1] + 2).tip[0].match(/price 10|no, score −1/));
  }
});
