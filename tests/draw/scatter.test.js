// The drawing of places: where points stand, what they are called, who is tied to whom.

import "./page.js";

import assert from "node:assert/strict";
import { test } from "node:test";

import { fitToFrame, scatter } from "../../src/cutaway/draw/scatter.js";
import { marker } from "../../src/cutaway/draw/marker.js";
import { all, texts } from "./page.js";

const WIDTHS = [320, 400, 880, 2000];

function spec(count, more = {}) {
  // A ring, whose neighbours are those beside.
  const points = Array.from({ length: count }, (_, i) => ({ label: `point ${i}`, group: i % 3 }));
  const ring = points.map((_, i) => [Math.cos((2 * Math.PI * i) / count), Math.sin((2 * Math.PI * i) / count)]);
  const of = points.map((_, i) => (count > 2 ? [(i + 1) % count, (i + count - 1) % count] : []));
  return {
    title: "Ring",
    points,
    groups: ["one", "two", "three"],
    places: [
      { name: "PCA", x: "1st", y: "2nd", at: ring },
      { name: "t-SNE", x: "", y: "", at: ring.map(([a, b]) => [2 * b, a]) },
    ],
    measures: [
      { name: "cosine", of, values: of.map((row) => row.map(() => 0.5)) },
      { name: "dot", of: of.map((row) => row.toReversed()), values: of.map((row) => row.map(() => 7)) },
    ],
    labels: true,
    ...more,
  };
}

const spots = (drawn) => drawn.targets.filter((target) => target.hover?.point !== undefined);

test("every point has a target within the drawing, from left to right", () => {
  for (const width of WIDTHS) {
    for (const count of [1, 2, 7, 300]) {
      const drawn = scatter(spec(count), width);
      const found = spots(drawn);
      assert.equal(found.length, count);
      for (const { box: [x, y, w, h] } of found) {
        assert.ok(x >= 0 && x + w <= width && y >= 0 && y + h <= Number(drawn.svg.attributes.height), `${width} ${count}`);
      }
      const lefts = found.map(({ box }) => box[0]);
      assert.deepEqual(lefts, [...lefts].sort((a, b) => a - b));
    }
  }
});

test("one unit across is as long as one up, whatever the frame", () => {
  const at = [[0, 0], [1, 0], [0, 1], [5, 2]];
  for (const frame of [{ x: 0, y: 0, width: 900, height: 200 }, { x: 10, y: 30, width: 300, height: 800 }]) {
    const [origin, across, up] = fitToFrame(at, frame);
    assert.ok(Math.abs(across[0] - origin[0] - (origin[1] - up[1])) < 1e-9);
    assert.ok(across[0] > origin[0] && up[1] < origin[1], "up is up");
  }
});

test("points that are all in one place stand in the middle", () => {
  const frame = { x: 0, y: 0, width: 100, height: 60 };
  assert.deepEqual(fitToFrame([[3, 3], [3, 3]], frame), [[50, 30], [50, 30]]);
});

test("names do not lie over each other", () => {
  for (const width of WIDTHS) {
    const names = all(scatter(spec(120), width).svg, "text").filter((t) => t.attributes.class?.startsWith("name"));
    assert.ok(names.length > 5);
    for (const a of names) {
      for (const b of names) {
        if (a === b) continue;
        const wide = (t) => t.children[0].length * 12 * 0.6;
        const over = a.attributes.x < b.attributes.x + wide(b) && b.attributes.x < a.attributes.x + wide(a);
        assert.ok(!over || Math.abs(a.attributes.y - b.attributes.y) >= 14);
      }
    }
  }
});

test("the point that is pointed at is tied to its neighbours and says who they are", () => {
  const given = spec(9);
  const drawn = scatter(given, 700, { point: 4 });
  assert.equal(all(drawn.svg, "line").filter((l) => l.attributes.class === "tie").length, 2);
  assert.ok(texts(drawn.svg, "text").includes("point 4 is nearest to point 5 0.5, point 3 0.5"));
  assert.ok(texts(scatter(given, 700, { point: 4, measure: 1 }).svg, "text").includes("point 4 is nearest to point 3 7, point 5 7"));
  assert.equal(all(scatter(given, 700).svg, "line").length, 0);
});

test("what is said of a place stands below it, on as many lines as it takes, above the key", () => {
  const note = "Sizes of clusters and distances between them mean nothing.";
  const noted = { ...spec(6), places: [{ ...spec(6).places[1], note }] };
  for (const width of WIDTHS) {
    const drawn = scatter(noted, width).svg;
    const lines = texts(drawn, "text").filter((one) => one && note.includes(one));
    assert.equal(lines.join(" "), note);
    assert.ok(width > 400 || lines.length > 1);
    assert.ok(!texts(scatter(spec(6), width).svg, "text").some((one) => one && note.includes(one)));
  }
});

test("places and measures are chosen from lists, where there is a choice", () => {
  const drawn = scatter(spec(6), 700);
  const found = drawn.controls.map(({ key, value, options }) => [key, value, options.map((option) => option.name)]);
  assert.deepEqual(found, [["place", 0, ["PCA", "t-SNE"]], ["measure", 0, ["cosine", "dot"]]]);
  assert.equal(scatter({ ...spec(6), places: spec(6).places.slice(0, 1), measures: [] }, 700).controls.length, 0);
  const other = scatter(spec(6), 700, { place: 1 });
  assert.notDeepEqual(spots(other).map((t) => t.hover.point), spots(drawn).map((t) => t.hover.point));
  assert.ok(texts(drawn.svg, "text").includes("1st →"));
  assert.ok(!texts(other.svg, "text").includes("1st →"));
});

test("fifty-six groups can be told apart, the first seven by colour alone and by shape alone", () => {
  const signs = Array.from({ length: 56 }, (_, g) => marker(g, 5));
  assert.equal(new Set(signs.map(({ colour, path }) => `${colour.light} ${path}`)).size, 56);
  assert.equal(new Set(signs.slice(0, 7).map(({ colour }) => colour.dark)).size, 7);
  assert.equal(new Set(signs.slice(0, 7).map(({ path }) => path)).size, 7);
});

test("a group that is pointed at lets the others fade", () => {
  const drawn = scatter(spec(9), 700, { group: 1 });
  const faint = all(drawn.svg, "path").filter((path) => path.attributes.class === "spot faint");
  assert.equal(faint.length, 6);
});

test("only images that lie in the page are shown", () => {
  const given = spec(3, { point: 0 });
  given.points[0].image = "data:image/png;base64,AA==";
  given.points[1].image = "https://example.org/a.png";
  given.points[2].image = "data:text/html,x";
  assert.equal(all(scatter(given, 700).svg, "image").length, 1);
});

test("paths join their points in order, and a state beyond the points does no harm", () => {
  const drawn = scatter(spec(5, { paths: [[0, 1, 2], [3, 4]] }), 500, { point: 99, place: 9, measure: -3 });
  assert.equal(all(drawn.svg, "path").filter((path) => path.attributes.class === "thread").length, 2);
  assert.equal(all(drawn.svg, "line").length, 0);
});

test("what is written in the data stays words", () => {
  const given = spec(3, { groups: ["<b>x</b>", "two", "three"], point: 0 });
  given.points[0].label = "<script>a</script>";
  const drawn = scatter(given, 900);
  assert.equal(all(drawn.svg, "script").length, 0);
  assert.ok(texts(drawn.svg, "text").includes("<script>a</script>"));
});
