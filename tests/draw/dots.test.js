// Marks by two numbers: where they stand, what they say, and the steps through some of them.

import "./page.js";

import assert from "node:assert/strict";
import { test } from "node:test";

import { dots } from "../../src/cutaway/draw/dots.js";
import { all, texts } from "./page.js";

const WIDTHS = [320, 400, 880, 2000];

function spec(more = {}) {
  return {
    title: "Accuracy and cost",
    x: "MACs",
    x_format: "count",
    log_x: true,
    y: "accuracy",
    format: "fraction",
    groups: ["finished", "pruned"],
    dots: [[1000, 0.5, 0], [40000, 0.9, 0], [2000, 0.8, 1], [2000, 0.3, 0]].map(([x, y, group], i) => ({
      x, y, group, tip: [`trial ${i}`],
    })),
    steps: [[1000, 0.5], [40000, 0.9]],
    steps_name: "Pareto front",
    chosen: 1,
    name: "trial 1",
    ...more,
  };
}

test("every mark has a target within the drawing that says its numbers", () => {
  for (const width of WIDTHS) {
    for (const more of [{}, { log_x: false }, { steps: [], chosen: null }]) {
      const drawn = dots(spec(more), width);
      assert.equal(drawn.targets.length, 4);
      for (const { box: [x, y, w, h] } of drawn.targets) {
        assert.ok(x >= 0 && x + w <= width && y >= 0 && y + h <= Number(drawn.svg.attributes.height), `${width}`);
      }
      assert.deepEqual(drawn.targets[0].tip, ["trial 0", "MACs 1\u202f000", "accuracy 50.0\u202f%"]);
    }
  }
});

test("on a logarithmic axis equal ratios are equally far apart", () => {
  const places = [1, 10, 100].map((x) => ({ x, y: 0.5, group: 0, tip: [] }));
  const lefts = dots(spec({ dots: places, steps: [], chosen: null }), 800).targets.map(({ box }) => box[0]);
  assert.ok(Math.abs(lefts[1] - lefts[0] - (lefts[2] - lefts[1])) < 1e-6);
});

test("the steps go through their places and level to the right edge", () => {
  const path = all(dots(spec(), 800).svg, "path").find((p) => p.attributes.class === "curve");
  assert.match(String(path.attributes.d), /^M[\d.]+ [\d.]+H[\d.]+V[\d.]+H786$/);
  const bare = all(dots(spec({ steps: [] }), 800).svg, "path").filter((p) => p.attributes.class === "curve");
  assert.equal(bare.length, 0);
});

test("a key names the groups that there are, and the steps", () => {
  const words = texts(dots(spec(), 800).svg, "text");
  for (const name of ["finished", "pruned", "Pareto front", "trial 1"]) assert.ok(words.includes(name), name);
  const one = texts(dots(spec({ dots: spec().dots.slice(0, 2), steps: [] }), 800).svg, "text");
  assert.ok(!one.includes("finished"), "one kind alone needs no key");
});

test("names stand below where x is the number of one", () => {
  const places = [0, 1, 1].map((x, i) => ({ x, y: 0.1 * i, group: 0, tip: [`trial ${i}`] }));
  const drawn = dots(spec({ categories: ["adam", "sgd"], x: "optimizer", log_x: false, dots: places, steps: [] }), 600);
  assert.ok(texts(drawn.svg, "text").includes("adam"));
  assert.deepEqual(drawn.targets[0].tip.slice(0, 2), ["trial 0", "optimizer adam"]);
});
