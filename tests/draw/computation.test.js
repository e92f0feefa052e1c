// A graph of operations: every value on a card, and adjoints as the backward pass comes by.

import "./page.js";

import assert from "node:assert/strict";
import { test } from "node:test";

import { adjointAfter, computation } from "../../src/cutaway/draw/computation.js";
import { all, texts } from "./page.js";

const WIDTHS = [300, 368, 640, 900, 1200];

function node(name, more = {}) {
  return {
    name, operation: "", shape: "", value: 0.5, adjoints: [[1, 2]], column: 0, row: 0, inputs: [], bends: [],
    calculation: [`∂L = 2 through ${name}.`], ...more,
  }; // prettier-ignore
}

/** L = w · w + w: the edge to the sum passes a column. */
function spec(more = {}) {
  const nodes = [
    node("w", { adjoints: [[1, 1], [2, 2]] }),
    node("", { operation: "×", value: 0.25, adjoints: [[1, 1]], column: 1, inputs: [0, 0], bends: [[], []] }),
    node("L", { operation: "+", value: 0.75, adjoints: [[0, 1]], column: 2, inputs: [1, 0], bends: [[], [0.7]] }),
  ]; // prettier-ignore
  return { title: "A graph", nodes, order: [2, 1], ...more };
}

const wires = (drawn) => all(drawn.svg, "path").filter((path) => path.attributes.class.startsWith("wire"));

test("every node has a card with its value and adjoint, every use an edge", () => {
  for (const width of WIDTHS) {
    const drawn = computation(spec(), width);
    assert.equal(all(drawn.svg, "rect").length, 3);
    assert.equal(drawn.targets.length, 3);
    assert.equal(wires(drawn).length, 3 + 3); // the edge that passes a column has three pieces
    for (const word of ["w", "×", "L", "0.75"]) assert.ok(texts(drawn.svg, "text").includes(word), word);
    const right = drawn.targets.map(({ box }) => box[0] + box[2]);
    assert.ok(drawn.targets[1].box[0] > right[0] && drawn.targets[2].box[0] > right[1], "columns do not overlap");
  }
});

test("the slider runs the backward pass: adjoints appear one operation at a time and add up", () => {
  const [w, product, loss] = spec().nodes;
  assert.deepEqual([0, 1, 2].map((moment) => adjointAfter(w, moment)), [null, 1, 2]);
  assert.deepEqual([0, 1, 2].map((moment) => adjointAfter(product, moment)), [null, 1, 1]);
  assert.equal(adjointAfter(loss, 0), 1);
  const unknown = (moment) => texts(computation(spec(), 900, { moment }).svg, "text").filter((text) => text === "–").length;
  assert.deepEqual([0, 1, 2].map(unknown), [2, 0, 0]);
  const [slider] = computation(spec(), 900).controls;
  assert.deepEqual([slider.low, slider.high, slider.value, slider.written], [0, 2, 2, "2 of 2: ×"]);
  assert.equal(computation(spec(), 900, { moment: 0 }).controls[0].written, "not begun");
  assert.equal(computation(spec(), 900, { moment: 99 }).controls[0].value, 2);
});

test("a click on a card shows the terms of its adjoint", () => {
  const drawn = computation(spec(), 900);
  const picked = computation(spec(), 900, drawn.targets[0].set);
  assert.ok(texts(picked.svg, "text").includes("∂L = 2 through w."));
  assert.ok(texts(picked.svg, "text").includes("w: 0.5"));
  assert.equal(all(picked.svg, "rect").filter((rect) => rect.attributes.class === "card chosen").length, 1);
});

test("a tensor shows its shape and norm; one value alone has no backward pass", () => {
  const nodes = [node("X", { shape: "100×64", value: 80.1 })];
  const drawn = computation({ title: "X", nodes, order: [] }, 400, { chosen: 7, moment: 3 });
  assert.ok(texts(drawn.svg, "text").includes("100×64"));
  assert.deepEqual(drawn.controls, []);
});
