// A search for a solution: every step has its place, a line to the one it follows, and what is true of it.

import "./page.js";

import assert from "node:assert/strict";
import { test } from "node:test";

import { thoughts } from "../../src/cutaway/draw/thoughts.js";
import { tokens } from "../../src/cutaway/draw/tokens.js";
import { all, texts } from "./page.js";

const WIDTHS = [300, 368, 640, 900, 1200, 2400];
const SAYS = { solved: "solves it", open: "right", dead: "a dead end", wrong: "wrong", after: "after a wrong step" };

function node(text, more = {}) {
  return {
    text, name: `1: ${text}`, parent: null, depth: 1, place: 0, born: 1, value: 0.5, log_p: -1.25, count: 1, kept: true,
    path: false, truth: "open", why: "", opens: true, ...more,
  }; // prettier-ignore
}

/** Two kept of each depth, and so many that were pruned. */
function spec(pruned = 3, more = {}) {
  const nodes = [node("a", { path: true }), node("b", { place: 1, value: 0.25 })];
  for (let k = 0; k < pruned; k++) {
    const wrong = { truth: "wrong", why: "1 + 1 is not 3", opens: false };
    nodes.push(node(`pruned ${k}`, { place: 2 + k, value: 0.1, kept: false, ...wrong }));
  }
  nodes.push(node("aa", { parent: 0, depth: 2, born: 2, path: true, truth: "solved", count: 3 }));
  nodes.push(node("ba", { parent: 1, depth: 2, born: 2, place: 1, truth: "dead" }));
  return {
    title: "The tree", question: "1 2 => 3", nodes, kept: "kept", pruned: "pruned", moment: "depth", says: SAYS,
    label: "thought", chosen: "1: a", ...more,
  }; // prettier-ignore
}

const drawnSteps = (drawn) => drawn.targets.filter(({ key }) => key?.startsWith("step ")).map(({ tip }) => tip[0]);
const curves = (drawn) => all(drawn.svg, "path").filter((path) => path.attributes.class.startsWith("wire"));

test("in columns every step stands once, with a line to the one that it follows", () => {
  const drawn = thoughts(spec(), 1200);
  assert.deepEqual(drawnSteps(drawn).sort(), ["a", "aa", "b", "ba", "pruned 0", "pruned 1", "pruned 2"]);
  assert.equal(curves(drawn).length, 7);
  const at = (text) => drawn.targets.find(({ tip }) => tip[0] === text)?.box ?? [];
  assert.equal(at("a")[0], at("b")[0]);
  assert.ok(at("aa")[0] >= at("a")[0] + at("a")[2]);
  assert.ok(at("pruned 0")[1] - at("b")[1] > at("b")[1] - at("a")[1], "there is room for the cut");
  assert.ok(texts(drawn.svg, "text").includes("pruned"));
  assert.equal(curves(drawn).filter((path) => path.attributes.class.includes("of-answer")).length, 2);
});

test("in an outline what was kept stands under what it follows, and the rest is folded until a click", () => {
  const drawn = thoughts(spec(), 368);
  assert.deepEqual(drawnSteps(drawn), ["a", "aa", "b", "ba"]);
  const fold = drawn.targets.at(-1);
  assert.match(fold.tip[0], /3 pruned/);
  const open = thoughts(spec(), 368, fold.set);
  assert.deepEqual(drawnSteps(open), ["a", "aa", "b", "ba", "pruned 0", "pruned 1", "pruned 2"]);
  assert.deepEqual(open.targets.at(-1).set, { open: [] });
});

test("the rest of a chain that was not chosen is shown with it", () => {
  const off = { kept: false, place: 1 };
  const nodes = [node("x"), node("y", off), node("yy", { ...off, parent: 1, depth: 2 })];
  const drawn = thoughts(spec(0, { nodes, pruned: "not chosen" }), 368, { open: [-1] });
  assert.deepEqual(drawnSteps(drawn), ["x", "y", "yy"]);
});

test("of a long column the first are shown, and all after a click", () => {
  const shut = thoughts(spec(30), 1200);
  assert.equal(drawnSteps(shut).length, 10 + 2);
  const more = shut.targets.find(({ key }) => key === "more 1");
  assert.match(more.tip[0], /and 22 more/);
  const open = thoughts(spec(30), 1200, more.set);
  assert.equal(drawnSteps(open).length, 34);
  assert.deepEqual(open.targets.find(({ key }) => key === "more 1").set, { all: false });
});

test("the slider goes back to when there was less", () => {
  for (const width of [368, 1200]) {
    assert.equal(thoughts(spec(0), width).controls[0].high, 2);
    assert.deepEqual(drawnSteps(thoughts(spec(0), width, { moment: 1 })), ["a", "b"]);
    assert.deepEqual(thoughts(spec(0, { nodes: [node("a")] }), width).controls, []);
  }
});

test("a step that can be opened asks the list for it, and is marked", () => {
  const drawn = thoughts(spec(1), 1200);
  const [first, other] = ["a", "pruned 0"].map((text) => drawn.targets.find(({ tip }) => tip[0] === text));
  assert.deepEqual(first.act, { choose: { label: "thought", name: "1: a" } });
  assert.deepEqual(first.set, { thought: "1: a" });
  assert.equal(other.act, undefined);
  assert.ok(other.tip.includes("wrong: 1 + 1 is not 3"));
  const chosen = (state) => all(thoughts(spec(1), 1200, state).svg, "rect").filter((r) => r.attributes.class.includes("chosen"));
  assert.equal(chosen({}).length, 1);
  assert.notEqual(chosen({ thought: "1: b" })[0].attributes.y, chosen({})[0].attributes.y);
  assert.equal(chosen({ thought: "gone" }).length, 0);
});

test("values beyond 1 are drawn as parts of the largest, and stay the numbers that they are", () => {
  const bars = (drawn) => all(drawn.svg, "rect").filter(({ attributes }) => attributes.class.startsWith("bar"));
  const widths = (...values) => {
    const nodes = values.map((value, k) => node(`${k}`, { place: k, value }));
    const drawn = thoughts(spec(0, { nodes }), 900);
    const [[x, , wide]] = drawn.targets.filter(({ key }) => key?.startsWith("step ")).map(({ box }) => box);
    for (const { attributes } of bars(drawn)) {
      assert.ok(Number(attributes.x) >= x && Number(attributes.x) + Number(attributes.width) <= x + wide);
    }
    const room = wide - 6;
    const parts = bars(drawn).map(({ attributes }) => Number((attributes.width / room).toFixed(9)));
    return { parts, drawn };
  };
  assert.deepEqual(widths(0.25, 0.5).parts, [0.25, 0.5]);
  const { parts, drawn } = widths(20, 5, 0.5);
  assert.deepEqual(parts, [1, 0.25, 0.025]);
  for (const text of ["20.00", "5.00", "0.50"]) assert.ok(texts(drawn.svg, "text").includes(text), text);
  const { tip } = drawn.targets.find(({ key }) => key === "step 1");
  assert.ok(tip.includes("value 5, evaluated by the model; a full bar is 20"), tip.join());
});

test("everything is within its width, with no number missing, and names stay words", () => {
  const hostile = spec(12, { question: "<img onerror=alert(1)> => </svg>" });
  hostile.nodes[0].text = "<script>alert(1)</script> ".repeat(9);
  hostile.nodes[1] = { ...hostile.nodes[1], value: null, log_p: null };
  for (const width of WIDTHS) {
    for (const state of [{}, { all: true, open: [-1, 0] }, { moment: 1 }, { moment: -5 }, { moment: 99 }]) {
      const drawn = thoughts(hostile, width, state);
      const high = Number(drawn.svg.attributes.height);
      for (const { box: [x, y, wide, tall] } of drawn.targets) {
        assert.ok(x >= 0 && y >= 0 && x + wide <= width + 1e-9 && y + tall <= high, `${width}`);
      }
      for (const mark of ["rect", "text", "path", "line"].flatMap((tag) => all(drawn.svg, tag))) {
        assert.ok(!JSON.stringify(mark.attributes).match(/NaN|undefined|Infinity/), JSON.stringify(mark.attributes));
      }
      assert.equal(all(drawn.svg, "script").length + all(drawn.svg, "img").length, 0);
    }
  }
  assert.ok(thoughts(spec(0, { nodes: [], says: {}, chosen: null }), 400).svg);
});

const written = {
  title: "Step 1",
  scale: "amount",
  items: [
    { label: "before", tokens: ["1", "2", "+"], values: [], warning: null },
    { label: "written", tokens: ["+", "3"], values: [0.9, 0.2], warning: null },
  ],
  maps: [
    { name: "mean", weights: [[0.5, 0.5, null], [0.1, 0.1, 0.8]] },
    { name: "head 0", weights: [[1, 0, null], [0, 1, 0]] },
  ],
  query: 0,
  likely: [[["+", 0.9], ["-", 0.1]], [["4", 0.7], ["3", 0.2]]],
}; // prettier-ignore

test("tokens as they were written have what was looked at before each, and what else was likely", () => {
  const drawn = tokens(written, 700);
  assert.ok(texts(drawn.svg, "text").some((words) => words.startsWith("Attention when + was generated: 1 50")));
  assert.deepEqual(drawn.controls[0].options.map(({ name }) => name), ["mean", "head 0"]);
  const head = tokens(written, 700, { map: 1, token: 1 });
  assert.ok(texts(head.svg, "text").some((words) => words.startsWith("Attention when 3 was generated: 2 100")));
  assert.ok(texts(head.svg, "text").includes("Most likely tokens at the position of 3"));
  const bars = all(head.svg, "rect").filter((rect) => rect.attributes.class?.startsWith("bar"));
  assert.deepEqual(bars.map((rect) => rect.attributes.class), ["bar", "bar split-test"]);
  assert.ok(Math.abs(bars[0].attributes.width / bars[1].attributes.width - 3.5) < 1e-9);
  assert.equal(drawn.targets[2].tip[1], "generated after +");
  assert.equal(drawn.targets[3].tip[1].slice(0, 14), "probability 90");
  for (const width of WIDTHS) for (const rect of all(tokens(written, width).svg, "rect")) {
    assert.ok(Number(rect.attributes.x) + Number(rect.attributes.width) <= width);
  }
});

test("without attention the probabilities are shown alone", () => {
  const drawn = tokens({ ...written, maps: [] }, 700, { token: 1 });
  assert.ok(texts(drawn.svg, "text").includes("Most likely tokens at the position of 3"));
  assert.deepEqual(drawn.controls, []);
  assert.deepEqual(drawn.targets[4].set, { token: 1 });
});
