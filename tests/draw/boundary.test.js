import assert from "node:assert/strict";
import test from "node:test";

import { all, texts } from "./page.js";
import { boundary } from "../../src/cutaway/draw/boundary.js";
import { contour, valueAt, zeroLine } from "../../src/cutaway/draw/byte_maps.js";
import { levels } from "../../src/cutaway/draw/scale.js";
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

/** A map of size × size of a function of x and y, both from 0 to 1 with y upwards, as the view stores it. */
const stored = (size, f) => {
  const values = [...Array(size * size).keys()].map((k) => f(((k % size) + 0.5) / size, 1 - (Math.floor(k / size) + 0.5) / size));
  const most = Math.max(...values.map(Math.abs));
  return { bytes: coded(values.map((v) => Math.round(((v + most) / (2 * most)) * 254))), low: -most, high: most };
};
const SQUARE = { x: 100, y: 50, width: 400, height: 400 };

test("the level curves of a linear neuron are straight, parallel, and as far apart as its weights say", () => {
  const [a, b, c] = [3, 1.5, -2]; // z = a x + b y + c
  const map = stored(24, (x, y) => a * x + b * y + c);
  for (const value of [-1, -0.5, 0, 0.5, 1]) {
    const lines = contour(map, 24, SQUARE, value);
    assert.equal(lines.length, 1);
    assert.ok(lines[0].length > 10);
    for (const [px, py] of lines[0]) {
      const [x, y] = [(px - SQUARE.x) / 400, 1 - (py - SQUARE.y) / 400];
      const away = (a * x + b * y + c - value) / Math.hypot(a, b); // signed distance from the exact line
      assert.ok(Math.abs(away) < 0.003, `${away} at ${value}`); // half a byte is 0.0029
    }
  }
});

test("a closed level curve of a known function is a circle, and is drawn closed", () => {
  const map = stored(60, (x, y) => (x - 0.5) ** 2 + (y - 0.5) ** 2 - 0.2);
  const [line, ...more] = contour(map, 60, { x: 0, y: 0, width: 1, height: 1 }, 0.09 - 0.2);
  assert.equal(more.length, 0);
  assert.deepEqual(line[0], line[line.length - 1]);
  for (const [x, y] of line) assert.ok(Math.abs(Math.hypot(x - 0.5, y - 0.5) - 0.3) < 0.004);
});

test("levels are about five round values within the range", () => {
  assert.deepEqual(levels(-1, 1), [-0.8, -0.4, 0, 0.4, 0.8]);
  assert.deepEqual(levels(0, 1), [0.2, 0.4, 0.6, 0.8]);
  assert.deepEqual(levels(103, 149), [110, 120, 130, 140]);
  assert.deepEqual(levels(2, 2), []);
  for (let k = 1; k < 400; k++) {
    const found = levels(-k / 7, k / 3);
    assert.ok(found.length >= 3 && found.length <= 7 && found.every((v) => v > -k / 7 && v < k / 3), `${k}: ${found}`);
  }
});

test("large and small maps have level curves, and those of the large map have their values", () => {
  const linear = (size) => stored(size, (x, y) => 2 * x - y);
  const columns = spec().columns.map((column) => ({ ...column, neurons: column.neurons.map((one) => ({ ...one, ...linear(4) })) }));
  const drawn = (answer, state) => {
    const { svg, targets } = boundary(spec({ columns, answer }), 1000, state);
    return {
      curves: all(svg, "path").filter((path) => path.attributes.class === "isoline").length,
      labels: all(svg, "text").filter((text) => text.attributes.class === "iso-label").map((text) => text.children.join("")),
      targets,
    };
  };
  const answer = { kind: "score", names: ["no", "yes"], ...linear(6) };
  const made = drawn(answer, {});
  assert.equal(made.curves, 7); // six neurons and the output
  assert.deepEqual(made.labels, ["−0.5", "0", "0.5", "1", "1.5"]);
  assert.ok(made.targets.find(({ key }) => key === "1.0").tip.includes("level curves at −0.5, 0, 0.5, 1, 1.5"));
  assert.deepEqual(drawn(answer, { pinned: "1.0" }).labels, ["−0.5", "0", "0.5", "1", "1.5"]);
  const first = boundary(spec({ columns, answer }), 1000).targets.find(({ key }) => key === "0.0");
  assert.ok(first.tip.includes("level curves at 2, 4, 6, 8"), String(first.tip)); // in the units of its axis, age
  const sure = { ...answer, kind: "probability", ...stored(6, (x) => 2 * x - 1) };
  assert.deepEqual(drawn(sure, {}).labels, ["10\u202f%", "25\u202f%", "50\u202f%", "75\u202f%", "90\u202f%"]);
  const flat = { bytes: coded(Array(36).fill(127)), low: -1, high: 1 };
  assert.deepEqual(drawn({ ...answer, ...flat }, {}).labels, []);
});
