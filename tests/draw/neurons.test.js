import assert from "node:assert/strict";
import test from "node:test";

import { all, texts } from "./page.js";
import { neurons } from "../../src/cutaway/draw/neurons.js";

const hidden = (name, index, more = {}) => ({ name, index, z: 0.5, a: 0.25, delta: -0.125, bias: 0.1, rest: null, back: 2, back_rest: null, slope: 0.5, ...more });
const spec = () => ({
  title: "row 4: loss 0.7",
  layers: [
    { title: "inputs", of: 2, neurons: [{ name: "<b>age", a: 2 }, { name: "income", a: -1 }] },
    {
      title: "hidden 1", of: 40, name: "hidden.0.linear", activation: "tanh", sources: [0, 4], hidden_inputs: 38,
      weights: [[1, 2], [3, -4]], gradients: [[0.1, 0.2], [0.3, 0.4]],
      neurons: [hidden("neuron 3", 2, { rest: 0.75 }), hidden("neuron 8", 7, { delta: 0.5, rest: 0.25 })],
    },
    {
      title: "output", of: 1, name: "head", activation: "identity", sources: [2, 7], hidden_inputs: 0,
      weights: [[0.6, -0.7]], gradients: [[0.01, 0.02]], neurons: [{ ...hidden("yes", 0), how: "0.62 − 1", back: undefined, slope: undefined }],
    },
  ],
});

test("every neuron says z, a and δ, and every input its number", () => {
  const written = texts(neurons(spec(), 900).svg, "text");
  assert.equal(written.filter((text) => text === "δ").length, 3 + 1); // and the head of the column of the sums
  for (const text of ["<b>age", "neuron 3", "neuron 8", "yes", "−0.125"]) assert.ok(written.includes(text), text);
});

test("the neuron that is clicked unfolds: what it adds up, and where its δ comes from", () => {
  const { svg, targets } = neurons(spec(), 900, { chosen: "1.0" });
  const written = texts(svg, "text");
  for (const text of ["hidden 1, neuron 3", "38 more", "z, the sum", "a = tanh(z)", "∂L/∂w = δ · x", "times the slope ∂a/∂z", "δ = ∂L/∂z"]) {
    assert.ok(written.includes(text), text);
  }
  assert.ok(written.includes("−2")); // 2 times −1
  assert.deepEqual(targets.find((target) => target.key === "1.1").set, { chosen: "1.1" });
});

test("only a neuron that is normalized says so, and its activation is of u", () => {
  const normal = spec();
  normal.layers[1].neurons[0].normalized = 1.5;
  for (const [layers, symbol] of [[normal, "u"], [spec(), "z"]]) {
    const { svg, targets } = neurons(layers, 900, { chosen: "1.0" });
    assert.equal(texts(svg, "text").includes("u, normalized"), symbol === "u");
    assert.ok(texts(svg, "text").includes(`a = tanh(${symbol})`));
    const { tip } = targets.find(({ key, tip }) => key === "1.0" && tip);
    assert.equal(tip.includes("u, normalized 1.5"), symbol === "u");
    assert.ok(tip.includes(`a = tanh(${symbol}) 0.25`), tip.join());
  }
});

test("at first the neuron with the largest δ before the output is unfolded, whatever the state holds", () => {
  for (const state of [{}, { chosen: "0.1" }, { chosen: "7.9" }, { chosen: null }]) {
    assert.ok(texts(neurons(spec(), 900, state).svg, "text").includes("hidden 1, neuron 8"));
  }
});

test("of the output the loss says where δ comes from", () => {
  const written = texts(neurons(spec(), 900, { chosen: "2.0" }).svg, "text");
  assert.ok(written.includes("0.62 − 1"));
  assert.ok(!written.includes("times the slope ∂a/∂z"));
});

test("edges say their weight and gradient, and which number they are", () => {
  const { targets } = neurons(spec(), 900);
  const edges = targets.filter((target) => target.act?.name === "hidden.0.linear.weight" && !target.at);
  assert.deepEqual(edges.map(({ act }) => [act.index, act.value]), [[[2, 0], 1], [[2, 4], 2], [[7, 0], 3], [[7, 4], -4]]);
  assert.deepEqual(edges[0].tip, ["w 1", "∂L/∂w 0.1", "<b>age → neuron 3"]);
  assert.deepEqual(targets.find((target) => target.key === "1.1").act, { do: "weight", name: "hidden.0.linear.bias", index: [7], value: 0.1 });
});

test("a network of few layers stands within its width, a deep one goes beyond it", () => {
  for (const width of [320, 368, 900, 1400]) {
    const { svg, targets } = neurons(spec(), width);
    assert.ok(!JSON.stringify([...all(svg, "text"), ...all(svg, "path")].map((e) => e.attributes)).includes("NaN"));
    assert.equal(Number(svg.attributes.width), width);
    for (const { box: [x, , wide] } of targets) assert.ok(x >= 0 && x + wide <= width + 1);
  }
  const deep = spec();
  deep.layers.splice(2, 0, ...Array(6).fill(deep.layers[1]));
  assert.ok(Number(neurons(deep, 368).svg.attributes.width) > 368);
});

test("numbers that are not finite are drawn", () => {
  const wild = spec();
  wild.layers[1].weights[0][0] = null;
  wild.layers[1].neurons[0].z = null;
  assert.ok(texts(neurons(wild, 700, { chosen: "1.0" }).svg, "text").includes("none"));
});

test("on a telephone no number is cut short, and a neuron keeps its number where its name has no room", () => {
  const narrow = spec();
  const [first, second] = narrow.layers[1].neurons;
  Object.assign(first, { name: "neuron 126", z: -0.0184321, a: 3.36123e-5, delta: -0.0266512 });
  Object.assign(second, { name: "neuron 218", z: 1234.5678 });
  narrow.layers[1].weights = [[-0.0219187, 3.36123e-5], [0.0053321, -0.0411234]];
  for (const width of [320, 360, 900]) {
    const written = texts(neurons(narrow, width, { chosen: "1.0" }).svg, "text");
    for (const text of written) assert.ok(!/\d.*…/.test(text), `${text} at ${width}`);
  }
  assert.ok(texts(neurons(narrow, 320, {}).svg, "text").some((text) => text === "126" || text === "neuron 126"));
});
