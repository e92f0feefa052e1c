// The drawing of a graph: where nodes stand, how wide links are, who sends to whom.

import "./page.js";

import assert from "node:assert/strict";
import { test } from "node:test";

import { graph, incoming } from "../../src/cutaway/draw/graph.js";
import { all, texts } from "./page.js";

const WIDTHS = [320, 400, 880, 2000];

/** A ring of nodes; each sends 1 to the next and 0.5 to the one before, and 0.25 to itself. */
function spec(count, more = {}) {
  const nodes = Array.from({ length: count }, (_, i) => ({
    label: `node ${i}`,
    at: [Math.cos((2 * Math.PI * i) / count), Math.sin((2 * Math.PI * i) / count)],
    key: String(i),
  }));
  const links = nodes.flatMap((_, i) => [[i, i], ...(count > 2 ? [[i, (i + 1) % count]] : [])]);
  const values = links.map(([a, b]) => (a === b ? [0.25, null] : [0.5, 1]));
  const weights = [{ name: "layers.0", values }, { name: "layers.1", values: values.map(() => [null, 0]) }];
  const colours = [
    { name: "class", groups: ["one", "two"], of: nodes.map((_, i) => (i === 0 ? null : i % 2)) },
    { name: "hops away", groups: ["node 0", "1 hop", "2 hops"], of: nodes.map((_, i) => Math.min(i, 2)), ordered: true },
  ];
  return { title: "Ring", nodes, links, weights, colours, node: 0, labels: true, ...more };
}

const spots = (drawn) => drawn.targets.filter((target) => target.hover?.node !== undefined);
const wires = (drawn) => all(drawn.svg, "line").filter((line) => String(line.attributes.class).startsWith("link"));

test("every node has a target within the drawing, from left to right", () => {
  for (const width of WIDTHS) {
    for (const count of [1, 2, 7, 150]) {
      const drawn = graph(spec(count), width);
      const found = spots(drawn);
      assert.equal(found.length, count);
      for (const { box: [x, y, w, h] } of drawn.targets) {
        assert.ok(x >= 0 && x + w <= width && y >= 0 && y + h <= Number(drawn.svg.attributes.height), `${width} ${count}`);
      }
      const lefts = found.map(({ box }) => box[0]);
      assert.deepEqual(lefts, [...lefts].sort((a, b) => a - b));
      assert.ok(!JSON.stringify(all(drawn.svg, "line").map((line) => line.attributes)).includes("NaN"));
    }
  }
});

test("what comes to a node is what its neighbours send it, the strongest first", () => {
  const { nodes, links, weights } = spec(4);
  const sent = incoming({ nodes, links }, weights[0]);
  // from the one before comes 1, from the next 0.5, from itself 0.25
  assert.deepEqual(sent[1].map(({ from, value }) => [from, value]), [[0, 1], [2, 0.5], [1, 0.25]]);
  const oneWay = incoming({ nodes, links }, weights[1]);
  assert.deepEqual(oneWay[1].map(({ from }) => from), [0], "null: nothing goes that way");
});

test("pointing at a node leaves what comes to it, and says so", () => {
  const drawn = graph(spec(6), 900, { node: 2 });
  const into = wires(drawn).filter((line) => line.attributes.class === "link into");
  assert.equal(into.length, 3);
  assert.equal(wires(drawn).filter((line) => line.attributes.class === "link").length, 0);
  const widths = into.map((line) => Number(line.attributes["stroke-width"])).sort((a, b) => a - b);
  assert.deepEqual(widths, [1.63, 2.75, 5], "as wide as what comes, of a most of 5");
  assert.ok(texts(drawn.svg, "text").includes("node 2 receives messages from node 1 (1), node 3 (0.5), itself (0.25)"));
  assert.equal(all(drawn.svg, "path").filter((mark) => mark.attributes.class === "spot faint").length, 3);
});

test("nothing chosen: every link is as wide as the mean of both ways", () => {
  const drawn = graph(spec(6), 900);
  const widths = new Set(wires(drawn).map((line) => line.attributes["stroke-width"]));
  assert.deepEqual([...widths].sort(), ["1.63", "3.88"]);
  assert.ok(texts(drawn.svg, "text").includes("Hover over a node to see the messages it receives."));
});

test("layers and colours can be chosen; a single one needs no list", () => {
  const drawn = graph(spec(6), 900, { weights: 1, colours: 1 });
  assert.deepEqual(drawn.controls.map(({ key, value }) => [key, value]), [["weights", 1], ["colours", 1]]);
  assert.ok(wires(drawn).every((line) => line.attributes["stroke-width"] === "0.50"), "all weights are 0");
  const one = spec(6);
  const few = graph({ ...one, weights: one.weights.slice(1), colours: one.colours.slice(1) }, 900, { weights: 7 });
  assert.deepEqual(few.controls, []);
});

test("a legend names each group and those without one", () => {
  const drawn = graph(spec(5), 900);
  const tips = drawn.targets.filter((target) => target.hover && "group" in target.hover).map(({ tip }) => tip);
  assert.deepEqual(tips, [["one", "2 shown"], ["two", "2 shown"], ["unknown", "1 shown"]]);
  const faded = graph(spec(5), 900, { group: 1 });
  assert.equal(all(faded.svg, "path").filter((mark) => mark.attributes.class === "spot faint").length, 3);
});

test("a graph without links, weights, colours or a middle can be drawn", () => {
  const bare = { title: "Bare", nodes: spec(3).nodes, links: [], weights: [], colours: [], node: null };
  for (const state of [{}, { node: 1 }, { node: 9 }]) {
    const drawn = graph(bare, 400, state);
    assert.equal(spots(drawn).length, 3);
    assert.equal(wires(drawn).length, 0);
  }
  assert.equal(graph({ ...bare, nodes: [] }, 400).targets.length, 0);
});

test("names from data are text and nothing else", () => {
  const nodes = [{ label: "<img src=x onerror=alert(1)>", at: [0, 0] }, { label: "\n", at: [1, 1] }];
  const drawn = graph({ title: "<b>", nodes, links: [], weights: [], colours: [], node: 0 }, 900);
  assert.deepEqual(all(drawn.svg, "img"), []);
  assert.ok(texts(drawn.svg, "text").some((text) => text.startsWith("<img src=x")));
  assert.equal(spots(drawn)[0].tip[0], "<img src=x onerror=alert(1)>");
});
