// Blocks within blocks: what is open is seen, a click opens and shuts, and everything stays within its width.

import "./page.js";

import assert from "node:assert/strict";
import { test } from "node:test";

import { tree } from "../../src/cutaway/draw/tree.js";
import { all, texts } from "./page.js";

const WIDTHS = [300, 368, 700, 1200, 2000];

function leaf(full, cells, words = ["weight: 2·3 = 6", "6 weights × 4 places = 24 MACs"]) {
  return { name: full.split(".").at(-1), full, note: "Linear  7", cells, words };
}

function spec(more = {}) {
  const block = { name: "blocks", full: "blocks", note: "ModuleList  7", cells: [30, 90, null], inside: [] };
  block.inside.push({ ...leaf("blocks.0", [10, 30, 1.5]), words: undefined, inside: [leaf("blocks.0.fc", [10, 30, 1.5])] });
  block.inside.push({ ...leaf("blocks.1", [20, 60, 3]), name: "1 to 2", times: 2, words: ["2 blocks, the same"] });
  return {
    title: "Blocks",
    columns: [
      { name: "parameters", format: "count" },
      { name: "MACs", format: "count" },
      { name: "memory, kB", format: "number" },
    ],
    rows: [leaf("stem", [5, 0, 0.2]), block, leaf("head", [1_000_000, 12_345_678_901, 400])],
    open: ["blocks"],
    ...more,
  };
}

const opened = (drawn) => drawn.targets.map((target) => target.key);

test("the lines that are open are seen, in order, and no others", () => {
  assert.deepEqual(opened(tree(spec({ open: [] }), 900)), ["stem", "blocks", "head"]);
  assert.deepEqual(opened(tree(spec(), 900)), ["stem", "blocks", "blocks.0", "blocks.1", "head"]);
  const deeper = tree(spec(), 900, { open: ["blocks", "blocks.0"] });
  assert.deepEqual(opened(deeper), ["stem", "blocks", "blocks.0", "blocks.0.fc", "blocks.1", "head"]);
  assert.deepEqual(opened(tree(spec(), 900, { open: ["blocks.0"] })), ["stem", "blocks", "head"], "what is around is shut");
});

test("a click opens a line and another shuts it, and the rest stays", () => {
  const shut = tree(spec({ open: [] }), 900);
  const state = shut.targets[1].set;
  assert.deepEqual(state, { open: ["blocks"] });
  const drawn = tree(spec({ open: [] }), 900, state);
  assert.deepEqual(drawn.targets[2].set, { open: ["blocks", "blocks.0"] });
  assert.deepEqual(drawn.targets[1].set, { open: [] });
  assert.match(drawn.targets[1].tip.at(-1), /collapse/);
  assert.match(shut.targets[1].tip.at(-1), /expand/);
  assert.match(shut.targets[0].tip.at(-1), /calculation/);
});

test("a layer that is open says its arithmetic, wrapped into its width", () => {
  for (const width of WIDTHS) {
    const shut = texts(tree(spec(), width).svg, "text");
    const drawn = tree(spec(), width, { open: ["stem"] });
    const more = texts(drawn.svg, "text").filter((text) => !shut.includes(text));
    assert.ok(more.join(" ").includes("weight: 2·3 = 6"));
    const named = (/** @type {string[]} */ all) => all.join(" ").split("MACs").length;
    assert.ok(named(texts(drawn.svg, "text")) > named(shut));
    assert.ok(drawn.targets[1].box[1] - drawn.targets[0].box[1] > tree(spec(), width).targets[1].box[1] - tree(spec(), width).targets[0].box[1]);
  }
});

test("lines lie one below the other, within the width, and nothing is missing a number", () => {
  for (const width of WIDTHS) {
    for (const open of [[], ["blocks"], ["blocks", "blocks.0", "blocks.0.fc", "stem", "head"]]) {
      const drawn = tree(spec(), width, { open });
      assert.equal(drawn.columns, 1);
      const height = Number(drawn.svg.attributes.height);
      drawn.targets.forEach(({ box: [x, y, wide, high] }, i) => {
        assert.ok(x >= 0 && x + wide <= width && y + high <= height);
        if (i > 0) assert.ok(y >= drawn.targets[i - 1].box[1] + drawn.targets[i - 1].box[3]);
      });
      for (const mark of [...all(drawn.svg, "rect"), ...all(drawn.svg, "text"), ...all(drawn.svg, "path")]) {
        assert.ok(!JSON.stringify(mark.attributes).includes("NaN"), JSON.stringify(mark.attributes));
      }
      for (const bar of all(drawn.svg, "rect")) {
        assert.ok(Number(bar.attributes.x) + Number(bar.attributes.width) <= width + 1e-9);
        assert.ok(Number(bar.attributes.width) > 0);
      }
    }
  }
});

test("a block that is open has its number and no bar; those within it have theirs", () => {
  const rects = (open) => all(tree(spec(), 1200, { open }).svg, "rect").length;
  assert.equal(rects([]), 2 + 2 + 3);
  assert.equal(rects(["blocks"]), 2 + 0 + 3 + 3 + 3);
});

test("what is not known is said to be, and names are text", () => {
  const hostile = { ...leaf("<img onerror=alert(1)>", [1, null, 0]), note: "</svg><script>" };
  const drawn = tree(spec({ rows: [hostile], open: [] }), 1200);
  assert.ok(texts(drawn.svg, "text").includes("–"));
  assert.ok(texts(drawn.svg, "text").includes("<img onerror=alert(1)>"));
  assert.equal(all(drawn.svg, "img").length, 0);
  assert.ok(drawn.targets[0].tip.includes("MACs: unknown"));
});

test("a tree of nothing is empty", () => {
  assert.deepEqual(tree(spec({ rows: [], columns: [] }), 400).targets, []);
});
