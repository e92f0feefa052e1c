// The drawings that look inside: tiles, matrices, equations, overlays, and the images that they are made of.

import assert from "node:assert/strict";
import test from "node:test";
import { inflateSync } from "node:zlib";

import { all, texts } from "./page.js";
import { buildPalette, scalePosition, colourRange } from "../../src/cutaway/draw/colour.js";
import { equation, relatedCells } from "../../src/cutaway/draw/equation.js";
import { nextTarget } from "../../src/cutaway/draw/explore.js";
import { lines } from "../../src/cutaway/draw/lines.js";
import { matrix } from "../../src/cutaway/draw/matrix.js";
import { overlay, wrapLabel } from "../../src/cutaway/draw/overlay.js";
import { png, sizeOf } from "../../src/cutaway/draw/png.js";
import { heatmap, rasterImage } from "../../src/cutaway/draw/raster.js";
import { tiles } from "../../src/cutaway/draw/tiles.js";

const WIDTHS = [368, 640, 1200, 2400];
const grid = (rows, columns, value) =>
  [...Array(rows).keys()].map((i) => [...Array(columns).keys()].map((j) => value(i, j)));

/** The chunks of a PNG in a data: URL, their checksums verified. */
function chunks(url) {
  const bytes = Buffer.from(url.replace("data:image/png;base64,", ""), "base64");
  assert.deepEqual([...bytes.subarray(0, 8)], [137, 80, 78, 71, 13, 10, 26, 10]);
  const found = {};
  for (let at = 8; at < bytes.length; ) {
    const length = bytes.readUInt32BE(at);
    const name = bytes.toString("latin1", at + 4, at + 8);
    let crc = ~0;
    for (const byte of bytes.subarray(at + 4, at + 8 + length)) {
      crc ^= byte;
      for (let k = 0; k < 8; k++) crc = crc & 1 ? (crc >>> 1) ^ 0xedb88320 : crc >>> 1;
    }
    assert.equal(~crc >>> 0, bytes.readUInt32BE(at + 8 + length), name);
    found[name] = bytes.subarray(at + 8, at + 8 + length);
    at += length + 12;
  }
  return found;
}

for (const [width, height] of [[1, 1], [3, 2], [28, 28], [300, 400]]) {
  test(`an image of ${width} × ${height} is a PNG that others read, pixel by pixel`, () => {
    const pixels = Uint8Array.from({ length: width * height }, (_, i) => (i * 7) % 256);
    const palette = [...Array(256).keys()].map((i) => [i, 255 - i, 3, i ? 255 : 0]);
    const url = png(width, height, pixels, palette);
    const { IHDR, PLTE, tRNS, IDAT } = chunks(url);
    assert.deepEqual([IHDR.readUInt32BE(0), IHDR.readUInt32BE(4), ...IHDR.subarray(8)], [width, height, 8, 3, 0, 0, 0]);
    assert.deepEqual([...PLTE.subarray(0, 6)], [0, 255, 3, 1, 254, 3]);
    assert.equal(tRNS[0], 0);
    const raw = inflateSync(IDAT);
    for (let row = 0; row < height; row++) {
      const line = raw.subarray(row * (width + 1), (row + 1) * (width + 1));
      assert.equal(line[0], 0);
      assert.ok(line.subarray(1).equals(Buffer.from(pixels.subarray(row * width, (row + 1) * width))));
    }
    assert.deepEqual(sizeOf(url), [width, height]);
  });
}

test("the size of what is no PNG is not known", () => {
  for (const url of ["", "data:image/jpeg;base64,AAAA", "data:image/png;base64,AA==", "https://example.org/a.png"]) {
    assert.equal(sizeOf(url), null);
  }
});

test("signed maps have 0 in the middle whatever they hold, amounts begin at 0", () => {
  assert.deepEqual(colourRange([[[-1, 3]]], "signed"), { scale: "signed", low: -3, high: 3 });
  assert.deepEqual(colourRange([[[1, 3]], [[7, null]]], "amount"), { scale: "amount", low: 0, high: 7 });
  for (const values of [[[0, 0]], [[null]], [[]], []]) {
    const range = colourRange([values], "signed");
    assert.equal(scalePosition(0, range), 0.5);
    assert.ok(range.high > range.low);
  }
  assert.equal(scalePosition(9, colourRange([[[1, 3]]], "amount")), 1);
});

test("the colours of an image are those of the scale, and clear where there is no value", () => {
  const range = { scale: "signed", low: -2, high: 2 };
  const image = rasterImage([[-2, 0, 2, null, NaN]], range, { x: 0, y: 0, width: 50, height: 10 });
  const { PLTE, tRNS, IDAT } = chunks(image.attributes.href);
  const pixels = [...inflateSync(IDAT).subarray(1)];
  const palette = buildPalette("signed", "light", 255);
  const colour = (i) => [...PLTE.subarray(3 * i, 3 * i + 3)];
  [0, 127, 254].forEach((level, k) => assert.deepEqual(colour(pixels[k]), palette[level].slice(0, 3)));
  assert.deepEqual(pixels.slice(3).map((i) => tRNS[i]), [0, 0]);
  assert.equal(image.attributes.class, "picture");
  assert.equal(all(heatmap([[1, null]], range, { x: 0, y: 0, width: 9, height: 9 }), "path").length, 1);
  assert.equal(all(heatmap([[1, 2]], range, { x: 0, y: 0, width: 9, height: 9 }), "path").length, 0);
});

test("an image that lets what is under it through is clear at 0 and full at its ends", () => {
  const opacity = buildPalette("signed", "dark", 255, true).map((colour) => colour[3]);
  assert.deepEqual([opacity[0], opacity[127], opacity[254]], [255, 0, 255]);
});

const six = (scale = "signed") => [...Array(6).keys()].map((k) => ({
  label: `filter ${k}`, group: k < 3 ? "conv1" : "conv2", values: grid(5, 5, (i, j) => (k + 1) * (i - j)), tip: [`number ${k}`],
}));

test("tiles stay within their width, each with its words, its range and the value under the pointer", () => {
  for (const width of WIDTHS) {
    const { targets, controls } = tiles({ title: "Filters", scale: "signed", range: "layer", tiles: six() }, width);
    assert.deepEqual(targets.map((t) => t.tip[0]), six().map((tile) => tile.tip[0]));
    assert.equal(targets[1].tip[1], "from −8 to 8");
    for (const { box: [x, , wide] } of targets) assert.ok(x >= 0 && x + wide <= width);
    assert.deepEqual(controls[0].options.map((o) => o.value), ["unit", "layer", "global"]);
    const [x, y, wide, high] = targets[1].box;
    const under = targets[1].at(x + wide * 0.9, y + high * 0.1);
    assert.deepEqual(under.tip, ["−8", "number 1", "row 1, column 5"]);
    assert.equal(targets[1].at(x - 5, y), null);
  }
});

test("the range of colours is that of each map, of its group, or of all", () => {
  const keys = (range) => texts(tiles({ title: "", scale: "signed", tiles: six() }, 800, { range }).svg, "text").filter((t) => /^[−+]?(\d+|most)$/.test(t));
  assert.deepEqual(keys("unit"), ["−most", "0", "+most"]);
  assert.deepEqual(keys("layer"), ["−12", "0", "12", "−24", "0", "24"]);
  assert.deepEqual(keys("global"), ["−24", "0", "24"]);
});

test("a tile that is opened has a target for every value, and one that is open closes", () => {
  const spec = { title: "Filters", scale: "signed", tiles: six() };
  const closed = tiles(spec, 800);
  assert.deepEqual(closed.targets[2].set, { open: 2 });
  const open = tiles(spec, 800, { open: 2 });
  assert.equal(open.targets.length, 25 + 6);
  assert.deepEqual(open.targets[2].set, { open: null });
  assert.deepEqual(open.targets.slice(0, 3).map((t) => t.box), closed.targets.slice(0, 3).map((t) => t.box)); // none moves
  assert.deepEqual(open.targets[3].set, { open: null });
  assert.deepEqual(open.targets[3].tip, ["0", "number 2", "row 1, column 1"]);
  assert.equal(open.targets.at(-1).tip[0], "number 5");
  assert.equal(tiles(spec, 800, { open: 99 }).targets.length, 6); // another checkpoint may have fewer
  const large = [{ label: "map", group: "", values: grid(64, 64, (i) => i), tip: ["map"] }];
  assert.equal(tiles({ title: "", scale: "amount", tiles: large }, 800, { open: 0 }).targets.length, 2);
});

test("tiles can be empty, of images alone, of one value, or of none", () => {
  const image = "data:image/png;base64,AA==";
  for (const some of [
    [],
    [{ label: "a", image, values: null, tip: [] }],
    [{ label: "a", image: "https://example.org/a.png", tip: ["a"] }],
    [{ label: "a", values: [[1]], tip: ["a"] }],
    [{ label: "a", values: [[null]], tip: ["a"] }],
    [{ label: "a", values: [], tip: ["a"] }],
    [{ label: "a", values: [[1, 2, 3, 4, 5, 6, 7, 8]], tip: ["a"] }, { label: "b", values: grid(300, 2, () => 0), tip: ["b"] }],
  ]) {
    const drawn = tiles({ title: "T", scale: "amount", tiles: some }, 368);
    const shown = JSON.stringify([...all(drawn.svg, "rect"), ...all(drawn.svg, "image")].map((e) => ({ ...e.attributes })));
    assert.ok(!/NaN|Infinity|null/.test(shown), shown);
    assert.ok(!shown.includes("example.org"));
    assert.equal(drawn.targets.length, some.length);
  }
});

const named = (n, m, more = {}) => ({
  title: "Attention", rows: [...Array(n).keys()].map((i) => `row ${i}`), columns: [...Array(m).keys()].map((i) => `column ${i}`),
  values: grid(n, m, (i, j) => (i === 0 && j === 1 ? null : (i + j) / (n + m))), scale: "amount", format: "fraction", low: 0, high: 1,
  row_name: "query", column_name: "key", ...more,
});

test("a matrix has a target for every value, its names in the tip, and fits", () => {
  for (const width of WIDTHS) {
    for (const [n, m] of [[1, 1], [3, 9], [30, 30], [40, 60]]) {
      const { targets, columns } = matrix(named(n, m), width);
      assert.equal(targets.length, n * m);
      assert.equal(columns, m);
      assert.ok(targets.every(({ box: [x, , wide] }) => x >= 0 && x + wide <= width + 1e-6));
      assert.deepEqual(targets.at(-1).tip.slice(1), [`query: row ${n - 1}`, `key: column ${m - 1}`]);
      assert.deepEqual(targets.at(-1).hover, { row: n - 1, column: m - 1 });
    }
    assert.equal(matrix(named(3, 3), width).targets[1].tip[0], "no value");
  }
});

test("a matrix too large for the keyboard has a target for every row, and every value under the pointer", () => {
  const { targets } = matrix(named(100, 100), 800);
  assert.equal(targets.length, 100);
  const [x, y, wide, high] = targets[7].box;
  const { tip, hover } = targets[7].at(x + (wide * 3.5) / 100, y + high / 2);
  assert.deepEqual(tip, ["5.0\u202f%", "query: row 7", "key: column 3"]);
  assert.deepEqual(hover, { row: 7, column: 3 });
  assert.equal(targets[7].at(x - 3, y), null);
});

test("the row and the column that are pointed at are marked, and named where names are left out", () => {
  const small = all(matrix(named(3, 3), 800, { row: 1, column: 2 }).svg, "rect").filter((r) => r.attributes.class === "chosen");
  assert.equal(small.length, 2);
  const shown = (state) => texts(matrix(named(90, 90), 400, state).svg, "text");
  assert.ok(!shown({}).includes("row 13"));
  assert.ok(shown({ row: 13, column: 0 }).some((t) => t.startsWith("row 13")));
});

test("values are written in cells that have room, and stand out on them", () => {
  assert.ok(texts(matrix(named(4, 4), 800).svg, "text").includes("25"));
  assert.ok(!texts(matrix(named(28, 28), 368).svg, "text").includes("50"));
  const cell = all(matrix(named(4, 4), 800).svg, "text").find((t) => t.attributes.class === "cell");
  assert.ok(["#000000", "#ffffff"].includes(cell.colours["--light"]));
});

const product = [
  { name: "A", values: [[1, 2], [3, 4], [5, 6]], scale: "signed" }, "·",
  { name: "B", values: [[1, 0], [2, -1]], scale: "signed" }, "=",
  { name: "C", values: [[5, -2], [11, -4], [17, -6]], scale: "signed" }, "softmax",
  { name: "P", values: [[1, 0], [1, 0], [1, 0]], scale: "amount" },
];

test("a number of a product marks the row and the column that make it", () => {
  assert.deepEqual(relatedCells(product, { part: 4, row: 1, column: 0 }), [{ part: 4, row: 1, column: 0 }, { part: 0, row: 1 }, { part: 2, column: 0 }]);
  assert.deepEqual(relatedCells(product, { part: 0, row: 2, column: 1 }).slice(1), [{ part: 2, row: 1 }, { part: 4, row: 2 }]);
  assert.deepEqual(relatedCells(product, { part: 2, row: 0, column: 1 }).slice(1), [{ part: 0, column: 0 }, { part: 4, column: 1 }]);
  assert.deepEqual(relatedCells(product, { part: 6, row: 0, column: 1 }).slice(1), [{ part: 4, row: 0 }]);
  assert.deepEqual(relatedCells(product, {}), []);
  const wrong = [product[0], "·", product[0], "=", product[4]]; // sizes that do not agree
  assert.ok(relatedCells(wrong, { part: 4, row: 1, column: 0 }).every((mark) => mark.row !== undefined));
});

test("an equation says the sum that makes a number, and goes on in a new line where it has no room", () => {
  for (const width of WIDTHS) {
    const { targets, svg } = equation({ title: "Product", parts: product }, width);
    const found = targets.find((t) => t.key === "4,1,0");
    assert.deepEqual(found.tip, ["11", "C: row 2, column 1", "= 3 · 1 + 4 · 2"]);
    assert.ok(targets.every(({ box: [x, , wide] }) => x >= 0 && x + wide <= width));
    assert.ok(texts(svg, "text").includes("softmax"));
  }
  const lines = (width) => new Set(equation({ title: "", parts: product }, width).targets.map((t) => t.box[1])).size;
  assert.ok(lines(200) > lines(2400));
});

test("parts of an equation that are too large for numbers are images", () => {
  const large = [{ name: "Q", values: grid(40, 64, (i, j) => i - j), scale: "signed" }, "+", { name: "P", values: grid(40, 64, () => 1), scale: "signed" }];
  for (const width of WIDTHS) {
    const { svg, targets } = equation({ title: "Sum", parts: large }, width);
    assert.equal(all(svg, "image").length, 2);
    assert.ok(targets.every(({ box: [x, , wide] }) => x + wide <= width + 1e-6));
  }
});

test("a warning stands on its image, in lines that fit", () => {
  const warning = "fails its check: the parts sum to 3.1, the output is 7.9";
  const image = png(8, 8, new Uint8Array(64), [[0, 0, 0, 255]]);
  const item = { label: "gradient", image, values: grid(4, 4, (i) => i - 1), tip: ["gradient"] };
  for (const width of WIDTHS) {
    const drawn = overlay({ title: "Why", scale: "signed", opacity: 0.5, items: [{ ...item, warning }, { ...item, warning: null }] }, width);
    const ribbons = all(drawn.svg, "g").filter((g) => g.attributes.class === "ribbon");
    assert.equal(ribbons.length, 1);
    const [x, y, wide, high] = drawn.targets[0].box;
    const { attributes } = all(ribbons[0], "rect")[0];
    const [left, top, across, height] = ["x", "y", "width", "height"].map((name) => Number(attributes[name]));
    assert.ok(left >= x && top >= y && left + across <= x + wide + 1e-9 && top + height <= y + high + 1e-9);
    assert.equal(texts(ribbons[0], "text").join(" "), warning);
    assert.ok(drawn.targets[0].tip.includes(warning));
    assert.equal(drawn.controls[0].value, 0.5);
    assert.equal(all(drawn.svg, "image").filter((i) => Number(i.attributes.opacity) === 0.5).length, 2);
    assert.ok(x + wide <= width);
  }
  assert.deepEqual(wrapLabel("a bb ccc", 12 * 0.6 * 4, 9), ["a bb", "ccc"]);
  assert.equal(wrapLabel("a bb ccc dddd", 12 * 0.6 * 4, 2).length, 2);
});

test("an overlay without images has no slider, and no image from elsewhere", () => {
  const items = [null, "https://example.org/a.png"].map((image) => ({ label: "map", image, values: [[1]], tip: [], warning: null }));
  const drawn = overlay({ title: "Why", scale: "amount", opacity: 0.5, items }, 500);
  assert.ok(!JSON.stringify(all(drawn.svg, "image").map((i) => i.attributes)).includes("example.org"));
  assert.equal(overlay({ title: "", scale: "amount", opacity: 1, items: items.slice(0, 1) }, 500).controls.length, 0);
});

const curve = (k) => ({ name: `unit ${k}`, points: [[0.5, k], [1.25, 2 * k], [2, null]] });

test("curves can be many, over parts of a second, and each is named", () => {
  for (const width of WIDTHS) {
    const spec = { title: "Units", x: "time (s)", format: "number", log: false, zero: false, mark: null };
    const drawn = lines({ ...spec, series: [...Array(30).keys()].map(curve) }, width);
    assert.deepEqual(drawn.targets.map((t) => t.tip[0]), ["time (s) 0.5", "time (s) 1.25", "time (s) 2"]);
    assert.equal(drawn.targets[0].tip.at(-1), "and 18 more");
    const names = all(drawn.svg, "text").filter((t) => String(t.children[0]).startsWith("unit "));
    assert.equal(names.length, 30);
    assert.ok(names.every((t) => Number(t.attributes.y) < Number(drawn.svg.attributes.height)));
    assert.equal(new Set(all(drawn.svg, "path").map((p) => p.attributes["stroke-dasharray"])).size, 4);
  }
});

test("series with different x are told of where they have a value, and a log axis leaves out what is not above 0", () => {
  const series = [{ name: "a", points: [[0, 1], [0.1, 2]] }, { name: "b", points: [[10, 3]] }];
  const spec = { title: "Loss", x: "rate", format: "number", log: false, log_x: true, zero: false, mark: null, series };
  const drawn = lines(spec, 600);
  assert.deepEqual(drawn.targets.map((t) => t.tip), [["rate 0.1", "a 2"], ["rate 10", "b 3"]]);
  const [first, last] = drawn.targets.map((t) => t.box[0]);
  const only = lines({ ...spec, series: [{ name: "a", points: [[0.1, 1], [1, 1], [10, 1]] }] }, 600).targets.map((t) => t.box[0]);
  assert.ok(first < last && Math.abs(only[1] - (only[0] + only[2]) / 2) < 1e-9);
  assert.ok(!JSON.stringify(all(drawn.svg, "path").map((p) => p.attributes)).includes("NaN"));
});

test("arrows lead to the nearest target in their direction where targets form no grid", () => {
  const targets = [[0, 0], [50, 0], [100, 0], [0, 50], [0, 100], [50, 103]].map(([x, y]) => ({ box: [x, y, 40, 40], tip: [] }));
  const drawn = { targets, columns: 0 };
  const path = (from, ...keys) => keys.reduce((at, key) => nextTarget(drawn, at, key), from);
  assert.equal(path(0, "ArrowRight"), 1);
  assert.equal(path(0, "ArrowDown"), 3);
  assert.equal(path(0, "ArrowDown", "ArrowDown", "ArrowRight"), 5);
  assert.equal(path(5, "ArrowLeft"), 4);
  assert.equal(path(2, "ArrowRight"), 3); // on to the next line
  assert.equal(path(0, "ArrowLeft"), 0);
  assert.equal(path(3, "Home"), 0);
  assert.equal(path(3, "End"), 5);
  assert.equal(path(3, "x"), null);
});
