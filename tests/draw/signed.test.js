import assert from "node:assert/strict";
import test from "node:test";

import { all, texts } from "./page.js";
import { rows } from "../../src/cutaway/draw/rows.js";

const columns = [{ name: "integrated gradients", format: "number", mark: "signed" }];
const drawn = (values, width) =>
  rows({ title: "Columns", columns, rows: values.map((value) => ({ label: "a", cells: [{ value }], tip: [] })) }, width);

test("signed bars meet at zero, negative ones to its left, and keep within their column", () => {
  for (const width of [368, 640, 1600]) {
    const { svg } = drawn([3, -1.5, 0, null], width);
    const [up, down] = all(svg, "rect").map((bar) => [Number(bar.attributes.x), Number(bar.attributes.width)]);
    const zero = Number(all(svg, "line")[0].attributes.x1);
    assert.equal(all(svg, "rect").length, 2);
    assert.ok(Math.abs(up[0] - zero) < 1e-9);
    assert.ok(Math.abs(down[0] + down[1] - zero) < 1e-9);
    assert.ok(Math.abs(up[1] - 2 * down[1]) < 1e-9);
    assert.ok(up[0] + up[1] < width);
    assert.ok(texts(svg, "text").includes("−1.5"));
  }
});

test("signed bars can be all zero, all of one sign, or unknown", () => {
  for (const values of [[0, 0], [2, 5], [-2, -5], [null]]) {
    const marks = JSON.stringify(all(drawn(values, 400).svg, "rect").map((bar) => bar.attributes));
    assert.ok(!marks.includes("NaN"));
  }
});

test("names of columns keep clear of each other: on two lines where there is no room, and cut short", () => {
  const two = [{ ...columns[0], name: "integrated gradients · fails its check" }, { ...columns[0], name: "KernelShap" }];
  const given = [{ label: "joined (cos of year)", cells: [{ value: 1 }, { value: 2 }], tip: [] }];
  const heads = (width) => texts(rows({ title: "", columns: two, rows: given }, width).svg, "text");
  assert.ok(heads(1200).includes("integrated gradients · fails its check"));
  assert.ok(heads(640).includes("fails its check"));
  assert.ok(heads(360).every((text) => !text.includes(" · ")));
});
