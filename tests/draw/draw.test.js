import assert from "node:assert/strict";
import test from "node:test";

import { all, texts } from "./page.js";
import { nearest } from "../../src/cutaway/draw/explore.js";
import { figure } from "../../src/cutaway/draw/figure.js";
import { gallery } from "../../src/cutaway/draw/gallery.js";
import { heat } from "../../src/cutaway/draw/heat.js";
import { histogram } from "../../src/cutaway/draw/histogram.js";
import { lines } from "../../src/cutaway/draw/lines.js";
import { rows } from "../../src/cutaway/draw/rows.js";
import { fractions } from "../../src/cutaway/draw/fractions.js";
import { drawTable } from "../../src/cutaway/draw/table.js";

const WIDTHS = [368, 640, 1600];

test("a table has a head for each column and writes each value in its column's format", () => {
  const columns = [{ name: "class", format: "text" }, { name: "recall", format: "fraction" }];
  const table = drawTable({ columns, rows: [["<b>", 0.5], ["cat", null]] }, "Classes");
  assert.deepEqual(texts(table, "th"), ["class", "recall"]);
  assert.deepEqual(texts(table, "td"), ["<b>", "50.0\u202f%", "cat", "unknown"]);
  assert.deepEqual(all(table, "td").map((cell) => cell.attributes.class), ["words", "number", "words", "number"]);
});

test("a curve is broken where a value is missing, and the tip says so", () => {
  const points = [[1, 2], [2, 1], [3, null], [4, 0.5]];
  const series = [{ name: "train", split: "train", points }];
  for (const width of WIDTHS) {
    const drawn = lines({ title: "Loss", x: "epoch", format: "number", log: false, zero: false, series, mark: null }, width);
    assert.equal(all(drawn.svg, "path")[0].attributes.d.match(/M/g).length, 2);
    assert.deepEqual(drawn.targets.map((t) => t.tip[1]), ["train 2", "train 1", "train unknown", "train 0.5"]);
  }
});

test("a run of one epoch, or one whose loss was never finite, can be drawn", () => {
  for (const points of [[[1, 0.5]], [[1, null], [2, null]]]) {
    const series = [{ name: "val", split: "val", points }];
    const drawn = lines({ title: "Loss", x: "epoch", format: "number", log: false, zero: false, series, mark: null }, 400);
    assert.ok(!JSON.stringify(all(drawn.svg, "circle").map((c) => c.attributes)).includes("NaN"));
    assert.equal(drawn.targets.length, points.length);
  }
});

test("a filled series shades its area down to zero, and a line alone has no area", () => {
  const points = [[0, 0], [1, 2], [2, null], [3, 1]]; // prettier-ignore
  const draw = (fill) => lines({ title: "A", x: "t", format: "number", log: false, zero: true, mark: null, series: [{ name: "p", fill, points }] }, 600);
  const areas = (drawn) => all(drawn.svg, "path").filter((path) => path.attributes.class.startsWith("area"));
  assert.equal(areas(draw(false)).length, 0);
  const [area] = areas(draw(true));
  const [curve] = all(draw(true).svg, "path").filter((path) => path.attributes.class.startsWith("curve"));
  assert.ok(area.attributes.d.startsWith(curve.attributes.d) && area.attributes.d.endsWith("Z"));
  const ends = area.attributes.d.match(/[\d.]+ [\d.]+/g).map((pair) => pair.split(" ").map(Number));
  assert.deepEqual(ends.at(-1), ends[0]); // back to the first point, which is at 0
});

test("dots alone have no line, and what has no name is not named", () => {
  const points = [...Array(40).keys()].map((i) => [i, i % 7]);
  const unnamed = [...Array(30)].map(() => ({ name: "", split: "train", points }));
  for (const width of WIDTHS) {
    const spec = { title: "y over x", x: "x", format: "number", log: false, zero: false, mark: null };
    const dotted = lines({ ...spec, series: [{ name: "training", split: "train", dots: true, points }] }, width).svg;
    assert.equal(all(dotted, "path").filter((path) => /\bcurve\b/.test(path.attributes.class)).length, 0);
    assert.equal(all(dotted, "circle").length, points.length);
    const many = lines({ ...spec, series: unnamed }, width).svg;
    assert.equal(all(many, "path").filter((path) => /\bcurve\b/.test(path.attributes.class)).length, unnamed.length);
    assert.equal(all(many, "text").filter((text) => /\blabel\b/.test(text.attributes.class ?? "")).length, 0);
  }
});

test("a matrix has a target for every cell, in rows of its size, within its width", () => {
  for (const n of [2, 10, 100]) {
    const names = [...Array(n).keys()].map((i) => `class ${i}`);
    const counts = names.map((_, i) => names.map((_, j) => (i === j ? 3 : 0)));
    for (const width of WIDTHS) {
      const { targets, columns } = heat({ title: "Confusion", names, counts }, width);
      assert.equal(targets.length, n * n);
      assert.equal(columns, n);
      const [x, , side] = targets[n - 1].box;
      assert.ok(x + side <= width + 1e-9);
      assert.deepEqual(targets[0].tip, ["class 0, correct", "3 of 3, 100\u202f%"]);
    }
  }
});

test("a class without examples has no interval and says why", () => {
  const cells = [{ value: null, low: null, high: null }];
  const columns = [{ name: "recall", format: "fraction", mark: "dot", split: "test", domain: [0, 1] }];
  const drawn = rows({ title: "Classes", columns, rows: [{ label: "cat", note: "0", cells, tip: ["cat"] }] }, 400);
  assert.ok(texts(drawn.svg, "text").includes("no examples"));
  assert.equal(all(drawn.svg, "circle").length, 0);
});

test("bars end where their numbers still have room, and what is unknown has none", () => {
  const columns = [{ name: "MACs", format: "count", mark: "bar" }];
  const cells = [40_000_000_000, 1, 0, null].map((value) => ({ label: "layer", cells: [{ value }], tip: [] }));
  for (const width of WIDTHS) {
    const drawn = rows({ title: "Layers", columns, rows: cells }, width);
    assert.equal(all(drawn.svg, "rect").length, 2);
    assert.ok(texts(drawn.svg, "text").includes("unknown"));
    const widest = all(drawn.svg, "rect")[0].attributes;
    assert.ok(Number(widest.x) + Number(widest.width) < width - 80);
  }
});

test("the figure keeps the words for the simplest guess clear of those for the interval", () => {
  const spec = { title: "Accuracy", phrase: "of 360 test images right", format: "fraction", split: "test", end: 1 };
  for (const width of WIDTHS) {
    for (const guess of [0.1, 0.9, 0.97]) {
      const baseline = { name: "always '3', the commonest class", value: guess };
      const drawn = figure({ ...spec, value: 0.975, low: 0.95, high: 0.99, baseline }, width);
      const [over, under] = ["95\u202f% interval", "always"].map((start) => {
        const found = all(drawn.svg, "text").find((t) => t.children[0].startsWith(start));
        return { ...found.attributes, half: (found.children[0].length * 13 * 0.6) / 2 };
      });
      const clear = Math.abs(over.x - under.x) >= over.half + under.half || Math.abs(over.y - under.y) >= 16;
      assert.ok(clear, `${width} ${guess}`);
    }
  }
});

test("a simplest guess with a long name stands within the drawing", () => {
  const baseline = { name: "each token as likely as it is in training, whatever stands around it, and whatever comes", value: 3.2 };
  const spec = { title: "Loss", phrase: "loss, over 54 windows", format: "number", split: "test", value: 2.1, low: 2, high: 2.2 };
  const words = texts(figure({ ...spec, end: null, baseline }, 368).svg, "text");
  assert.ok(words.filter((text) => baseline.name.includes(text.replace(/: .*/, ""))).length > 1, "on several lines");
  assert.ok(words.every((text) => text.length * 12 * 0.6 <= 368 || text.startsWith("95")));
});

test("what was said of an example is whole in the gallery, and a long text takes the lines that others leave", () => {
  const item = { name: "from 1959-11", image: null, note: "", words: "Passengers 471.6 (362 to 622) → 437.3 (412.3 to 456.1)" };
  const { svg, targets } = gallery({ title: "Worst", items: [{ ...item, lines: ["text one two three four five six seven eight nine"] }] }, 368);
  const shown = all(svg, "text").filter((text) => text.attributes.class === "name strong").map((text) => text.children[0]);
  assert.equal(shown.join(" "), item.words);
  assert.ok(texts(svg, "text").join(" ").includes("eight nine"));
  assert.ok(all(svg, "text").every((text) => Number(text.attributes.y) <= targets[0].box[1] + targets[0].box[3] + 4));
});

test("only images that lie in the page are shown", () => {
  const item = { name: "a", words: "cat → dog", note: "", lines: [] };
  const items = ["data:image/png;base64,AA==", "https://example.org/a.png", "data:text/html,x", null].map((image) => ({ ...item, image }));
  assert.equal(all(gallery({ title: "Worst", items }, 700).svg, "image").length, 1);
});

test("bars of a histogram are coloured by the side of zero on which they stand", () => {
  const spec = { title: "Errors", edges: [-2, 0, 2], counts: [3, 4], below: "less", above: "more", scale: 2 };
  const [below, above] = all(histogram(spec, 400).svg, "rect").map((bar) => bar.colours["--light"]);
  const channels = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
  assert.ok(channels(below)[1] > channels(below)[2], "green below");
  assert.ok(channels(above)[2] > channels(above)[1], "purple above");
});

test("the parts of a bar add up to its width, and their names do not overlap", () => {
  const parts = [{ name: "train", value: 9998 }, { name: "val", value: 1 }, { name: "test", value: 1 }];
  const { svg, targets } = fractions({ title: "Parts", parts }, 400);
  assert.deepEqual(targets.map((t) => t.tip[0]), ["train", "val", "test"]);
  const names = all(svg, "text").filter((t) => t.attributes.class.startsWith("label"));
  for (let i = 1; i < names.length; i++) assert.ok(names[i].attributes.x - names[i - 1].attributes.x >= 20);
});

test("the nearest target is the one that is under the pointer, or whose edge is closest", () => {
  const targets = [[0, 0, 10, 10], [20, 0, 10, 10], [0, 50, 100, 0]].map((box) => ({ box, tip: [] }));
  assert.deepEqual([[5, 5], [16, 5], [60, 40]].map(([x, y]) => nearest(targets, x, y)), [0, 1, 2]);
});

test("boxes stand where they are in an image that is not square, each told by its kind", () => {
  const wide = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAQAAAACCAAAAABegBxcAAAADklEQVR4nGNgYGBgAAAABQABXvMqOgAAAABJRU5ErkJggg=="; // 4 × 2
  const boxes = [
    { box: [0, 0, 0.5, 1], name: "cat", score: 0.91, kind: "right" },
    { box: [0.5, 0.5, 1, 1], name: "dog", score: null, kind: "missed" },
  ];
  const item = { name: "a.png", image: wide, words: "cat", note: "", lines: [], boxes };
  const { svg, targets } = gallery({ title: "Worst", items: [item] }, 400);
  const drawn = all(svg, "rect").filter((rect) => rect.attributes.class === undefined);
  const [y] = all(svg, "image").map((image) => Number(image.attributes.y));
  assert.deepEqual(drawn.map(({ attributes: a }) => [a.x, a.y - y, a.width, a.height].map(Number)), [[0, 48, 96, 96], [96, 96, 96, 48]]);
  assert.deepEqual(targets[0].tip.slice(-2), ["cat, 91 % sure, right", "dog, missed"]);
  const actual = gallery({ title: "Examples", items: [{ ...item, boxes: [{ ...boxes[1], kind: "actual" }] }] }, 400);
  assert.deepEqual(actual.targets[0].tip.slice(-1), ["dog"]);
});
