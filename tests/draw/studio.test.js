import assert from "node:assert/strict";
import test from "node:test";

import "./page.js";
import { studio } from "./studio.js";

const { logScale, isLive, moduleNames, modelSettings, trainingSettings, changeData, changeModel, stepWidth, compatibleModels, parseWidths, formatWidths } =
  await studio("settings.js");
const labels = await studio("labels.js");
const { samplePoints } = await studio("toys.js");
const { frameSide } = await studio("server.js");
const { throttle } = await studio("controls.js");

const of = (key, more = {}) => ({ key, type: "float", default: "", says: "", choices: null, ...more });
const MODELS = [
  { name: "mlp", family: "dense", takes: ["table", "image"], settings: [of("model.hidden_dims"), of("model.in_features"), of("model.bias"), of("model.dropout", { live: true })] },
  { name: "lenet5", family: "cnn", takes: ["image"], settings: [of("model.activation")] },
  { name: "gcn", family: "graph", takes: ["graph"], settings: [] },
];
const CHOICES = {
  data: [],
  models: MODELS,
  settings: [of("grad_clip", { live: true }), of("weight_decay", { live: true }), of("lr", { live: true }), of("seed"), of("optimizer")],
  views: [],
};

const KINDS = [
  { name: "gpt2", takes: ["text"], learns: ["NextToken"], small: { "model.layers": "2" }, settings: [of("model.layers"), of("model.dim")] },
  { name: "textcnn", takes: ["text"], learns: ["Classes"], settings: [of("model.dim")] },
  { name: "gru", takes: ["text", "series"], learns: ["Classes", "Tags", "NextToken"], settings: [of("model.hidden_dim")] },
];
const BOOK = { name: "book", kind: "text", learns: ["NextToken"], begins: { model: "gpt2", "model.dim": "64", lr: "0.004", length: "64" } };
const REVIEWS = { name: "reviews", kind: "text", learns: ["Classes"], begins: { model: "textcnn", lr: "1" } };

test("only models that take the data and learn from it are offered", () => {
  const names = (models, data) => compatibleModels(models, data).map((m) => m.name);
  assert.deepEqual(names(MODELS, { kind: "image" }), ["mlp", "lenet5"]);
  assert.deepEqual(names(MODELS, { kind: "audio" }), []);
  assert.deepEqual(names(KINDS, BOOK), ["gpt2", "gru"]);
  assert.deepEqual(names(KINDS, REVIEWS), ["textcnn", "gru"]);
  assert.deepEqual(names(KINDS, { kind: "text", learns: [] }), ["gpt2", "textcnn", "gru"], "where nobody knows: all");
});

test("another architecture keeps what it has in common with the last, and a large one begins small", () => {
  const state = { data: "digits", model: "mlp", "model.hidden_dims": "8", "model.activation": "tanh", lr: "1" };
  assert.deepEqual(changeModel(state, MODELS[1]), { data: "digits", model: "lenet5", "model.activation": "tanh", lr: "1" });
  const gru = { data: "book", model: "gru", "model.hidden_dim": "9", length: "64", lr: "0.1" };
  assert.deepEqual(changeModel(gru, KINDS[0], BOOK.begins), {
    data: "book", model: "gpt2", "model.layers": "2", "model.dim": "64", length: "64", lr: "0.1",
  }); // prettier-ignore
  const begun = { data: "book", model: "gpt2", "model.dim": "64", length: "64", lr: "0.004" };
  assert.deepEqual(changeModel(begun, KINDS[2], BOOK.begins), { data: "book", model: "gru", length: "64" });
});

test("toys keep what was set, and all other data begins as suits it", () => {
  const toy = (name) => ({ name, kind: "table", toy: true, learns: ["Classes"] });
  const state = { data: "moons", noise: "0.1", count: "50", target: "x", horizon: "3", seed: "2", model: "mlp", lr: "1" };
  assert.deepEqual(changeData(state, toy("circles"), toy("moons"), MODELS), { data: "circles", seed: "2", model: "mlp", lr: "1" });
  const digits = { name: "digits", kind: "image", learns: ["Classes"], begins: { model: "lenet5", lr: "0.002" } };
  assert.deepEqual(changeData(state, digits, toy("moons"), MODELS), { data: "digits", seed: "2", model: "lenet5", lr: "0.002" });
  const mnist = { ...digits, name: "mnist" };
  const own = { data: "digits", model: "mlp", "model.hidden_dims": "4", lr: "0.1", speed: "5" };
  assert.deepEqual(changeData(own, mnist, digits, MODELS), { data: "mnist", model: "mlp", "model.hidden_dims": "4", speed: "5" }, "an architecture that suits stays, a rate that somebody chose for other data does not");
  assert.deepEqual(changeData(state, { name: "t.csv", kind: "table", begins: {} }, toy("moons"), MODELS, "price").target, "price");
  assert.equal(changeData({ data: "reviews", model: "textcnn" }, BOOK, REVIEWS, KINDS).model, "gpt2");
  assert.equal(changeData({ data: "reviews", model: "gru" }, BOOK, REVIEWS, KINDS).model, "gpt2");
});

test("settings that the data decides are not offered; the commonest come first", () => {
  const [shown, more] = modelSettings(MODELS[0]);
  assert.deepEqual([shown, more].map((list) => list.map(({ key }) => key)), [["model.hidden_dims", "model.dropout"], ["model.bias"]]);
  const [first, rest] = trainingSettings(CHOICES);
  assert.deepEqual(first.map(({ key }) => key), ["lr", "optimizer", "weight_decay"]);
  assert.deepEqual(rest.map(({ key }) => key), ["grad_clip"]);
});

test("what has no weights of its own is changed while it trains", () => {
  assert.deepEqual(["lr", "model.dropout", "seed", "model.hidden_dims"].map((key) => isLive(CHOICES, key)), [true, true, false, false]);
});

test("widths are read and written, and none is a list too", () => {
  assert.deepEqual([parseWidths("8,4"), parseWidths("none"), parseWidths(""), parseWidths("3,x,-2,5")], [[8, 4], [], [], [3, 5]]);
  assert.deepEqual([formatWidths([8, 4]), formatWidths([])], ["8,4", "none"]);
});

test("wider and narrower undo each other, and no layer loses its last unit", () => {
  for (let width = 1; width < 700; width = stepWidth(width, 1)) assert.equal(stepWidth(stepWidth(width, 1), -1), width);
  assert.equal(stepWidth(1, -1), 1);
});

test("a slider over powers of ten gives back the values that it is put to", () => {
  const { place, value } = logScale(1e-5, 10);
  for (const wanted of [1e-5, 0.001, 0.05, 1, 10]) assert.ok(Math.abs(value(place(wanted)) / wanted - 1) < 0.03);
  assert.deepEqual([place(0), place(1e-5), place(10), place(99)], [0, 0, 1, 1]);
  assert.ok(place(0.1) - place(0.01) - (place(0.01) - place(0.001)) < 1e-12);
});

test("the modules that hold weights, and those around them, can be asked for by name", () => {
  assert.deepEqual(moduleNames(["hidden.0.linear.weight", "hidden.0.linear.bias", "head.weight"]), [
    "head", "hidden", "hidden.0", "hidden.0.linear",
  ]); // prettier-ignore
});

const FRAME = { side: "a", epoch: 3.25, step: 1200, at: 1200, playing: true, rate: 140.3, loss: { train: 0.21, val: null },
  metrics: { accuracy: 0.934 } }; // prettier-ignore

test("how far and how fast it is, in words", () => {
  assert.equal(labels.progressText(FRAME), "Epoch 3, step 1\u202f200");
  assert.equal(labels.progressText({ ...FRAME, step: 0 }), "Not trained yet");
  const paces = [140.3, 2.34, 1, 0.25, 0].map((rate) => labels.speedText({ ...FRAME, rate }));
  assert.deepEqual(paces, ["140 steps per second", "2.3 steps per second", "1 step per second", "a step every 4 seconds", "Starting"]);
  assert.equal(labels.speedText({ ...FRAME, playing: false }), "Paused");
  assert.equal(
    labels.announcement(FRAME),
    "Epoch 3, step 1\u202f200, 140 steps per second. Training loss 0.21. Accuracy 93.4\u202f%.",
  );
  assert.deepEqual([labels.stepText(9, 9), labels.stepText(5, 1200)], ["now", "at step 5"]);
});

test("shares are said as percentages, other metrics as numbers, and nothing as a dash", () => {
  const said = [["accuracy", 1], ["perplexity", 12.5], ["accuracy", null], ["rmse", 0.5], ["r2", 0.5]];
  assert.deepEqual(said.map(([name, value]) => labels.formatMetric(name, value)), ["100\u202f%", "12.5", "–", "0.5", "0.5"]);
  assert.deepEqual(["lr", "model.hidden_dims", "label_smoothing", "view.features.layer"].map(labels.settingLabel), [
    "Learning rate", "Hidden layers", "Label smoothing", "Layer",
  ]); // prettier-ignore
});

test("two models are told apart by what they differ in", () => {
  const [a, b] = [{ model: "mlp", lr: "0.1", steps: "3", seed: "0" }, { model: "mlp", lr: "1", steps: "9" }];
  assert.equal(labels.describeDifference(a, b), "mlp, learning rate 0.1, seed 0");
  assert.equal(labels.describeDifference(b, a), "mlp, learning rate 1, seed default");
});

test("a toy's stamp shows each class within its frame, the same each time", () => {
  for (const [name, classes] of [["moons", 2], ["circles", 2], ["spirals", 3], ["xor", 2]]) {
    const points = samplePoints(name);
    assert.equal(new Set(points.map((p) => p[2])).size, classes, name);
    assert.ok(points.every(([x, y]) => Math.hypot(x, y) < 1.4 && Math.abs(x) <= 1 && Math.abs(y) <= 1), name);
    assert.deepEqual(samplePoints(name), points);
  }
  assert.deepEqual(samplePoints("never heard of"), []);
});

test("the side of a frame is known before the frame is read", () => {
  assert.deepEqual(['{"side":"a","views":[{"side":"b"}]}', '{"epoch": 1, "side": "b"}', "{}"].map(frameSide), ["a", "b", undefined]);
});

test("of many calls only a few come through, and always the last", async () => {
  const heard = [];
  const call = throttle((value) => heard.push(value), 30);
  for (let i = 0; i < 100; i++) call(i);
  await new Promise((done) => setTimeout(done, 60));
  assert.deepEqual(heard, [0, 99]);
});

test("the page's modules make no markup out of text, and ask nobody but their own server", async () => {
  const { readFile, readdir } = await import("node:fs/promises");
  const folder = new URL("../../src/cutaway/apps/studio/page/", import.meta.url);
  const modules = (await readdir(folder)).filter((name) => name.endsWith(".js"));
  assert.ok(modules.length > 8);
  for (const name of modules) {
    const text = await readFile(new URL(name, folder), "utf-8");
    for (const word of ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "://"]) {
      assert.ok(!text.includes(word), `${name} ${word}`);
    }
    assert.equal(text.includes("fetch(") || text.includes("EventSource("), name === "server.js", name);
  }
});
