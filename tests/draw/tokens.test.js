// The drawing of words: where they stand, how they are shaded, and what pointing at one changes.

import "./page.js";

import assert from "node:assert/strict";
import { test } from "node:test";

import { visibleToken, tokens } from "../../src/cutaway/draw/tokens.js";
import { all, texts } from "./page.js";

const WIDTHS = [320, 400, 880, 2000];
const WORDS = "the cat sat on the mat and looked at it for as long as it could".split(" ");
const shades = (drawn) => boxes(drawn).map((box) => box.colours["--light"]);
const boxes = (drawn) => all(drawn.svg, "rect").filter((box) => (box.attributes.class ?? "").startsWith("token"));

function attention(size) {
  // Row t looks at token t and the one before it.
  return Array.from({ length: size }, (_, t) => Array.from({ length: size }, (_, s) => (s === t ? 0.75 : s === t - 1 ? 0.25 : 0)));
}

test("tokens stand in rows within the width, one target each, none above another", () => {
  for (const width of WIDTHS) {
    const items = [{ label: "film", tokens: [...WORDS, "x".repeat(500)], values: [...WORDS, 1].map((_, i) => i / 10), warning: null }];
    const drawn = tokens({ title: "Words", scale: "amount", items }, width);
    assert.equal(drawn.targets.length, WORDS.length + 1);
    for (const { box: [x, y, w, h] } of drawn.targets) {
      assert.ok(x >= 0 && x + w <= width + 0.01, `${x} ${w} in ${width}`);
      const over = drawn.targets.filter(({ box: [a, b, c] }) => b === y && x < a + c && a < x + w);
      assert.equal(over.length, 1);
      assert.ok(y + h <= Number(drawn.svg.attributes.height));
    }
  }
});

test("a value without a sign has one hue, and with one it is green below and purple above", () => {
  const items = [{ label: "", tokens: ["bad", "so", "good"], values: [-2, 0, 2], warning: null }];
  const [bad, so, good] = shades(tokens({ title: "t", scale: "signed", items }, 600));
  const channels = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
  assert.ok(channels(bad)[1] > channels(bad)[2] && channels(good)[2] > channels(good)[1]);
  assert.ok(Math.max(...channels(so)) - Math.min(...channels(so)) < 20, "grey at 0");
});

test("a value that is not there has no shade and is said to be unknown", () => {
  const items = [{ label: "", tokens: ["a", "b"], values: [null, 1], warning: null }];
  const drawn = tokens({ title: "t", scale: "amount", items }, 600);
  assert.equal(boxes(drawn)[0].colours["--light"], undefined);
  assert.equal(drawn.targets[0].tip.at(-1), "unknown");
});

test("the strongest shade is each item's own, or of all", () => {
  const item = (value) => ({ label: "", tokens: ["a"], values: [value], warning: null });
  const spec = { title: "t", scale: "amount", items: [item(1), item(100)] };
  const [one, other] = boxes(tokens(spec, 600)).map((box) => box.colours["--light"]);
  assert.equal(one, other);
  const [weak, strong] = boxes(tokens({ ...spec, range: "global" }, 600)).map((box) => box.colours["--light"]);
  assert.notEqual(weak, strong);
});

test("pointing at a token shades the others by its row, and without pointing the last asks", () => {
  const items = [{ label: "", tokens: WORDS, values: [], warning: null }];
  const spec = { title: "t", scale: "amount", items, weights: attention(WORDS.length) };
  const first = tokens(spec, 600);
  assert.deepEqual(first.targets[3].hover, { token: 3 });
  assert.ok(texts(first.svg, "text")[1].startsWith("could attends to could 75"));
  const drawn = tokens(spec, 600, first.targets[2].hover);
  assert.ok(texts(drawn.svg, "text")[1].startsWith("sat attends to sat 75"));
  const found = boxes(drawn).map((box) => box.colours["--light"]);
  assert.notEqual(found[1], found[0]);
  assert.equal(found[4], found[0]);
  assert.ok(boxes(drawn)[2].attributes.class.includes("chosen"));
});

test("across two texts the second asks and the first is shaded", () => {
  const items = [
    { label: "source", tokens: ["ein", "Hund"], values: [], warning: null },
    { label: "target", tokens: ["a", "dog", "runs"], values: [], warning: null },
  ];
  const spec = { title: "t", scale: "amount", items, weights: [[0.9, 0.1], [0.2, 0.8], [0.5, 0.5]], query: 1 };
  const drawn = tokens(spec, 600);
  assert.ok(texts(drawn.svg, "text").some((words) => words.startsWith("dog attends to Hund 80")));
  assert.deepEqual(drawn.targets.map((target) => target.hover?.token), [undefined, undefined, 0, 1, 2]);
  assert.equal(boxes(drawn).filter((box) => box.colours["--light"] !== undefined).length, 2);
});

test("a state beyond the tokens, no tokens, and rows of nothing do no harm", () => {
  const items = [{ label: "", tokens: ["a"], values: [], warning: null }];
  assert.ok(tokens({ title: "t", scale: "amount", items, weights: [[0]] }, 300, { token: 99 }).svg);
  assert.ok(tokens({ title: "t", scale: "amount", items, weights: [[null]] }, 300).svg);
  assert.equal(tokens({ title: "t", scale: "amount", items: [{ ...items[0], tokens: [] }] }, 300).targets.length, 0);
});

test("blanks and breaks are seen", () => {
  assert.deepEqual(["a", " the", "\n", " ", "", "a\nb", "\t "].map(visibleToken), ["a", " the", "⏎", "␣", "∅", "a⏎b", "⇥␣"]);
});

test("what is written in the data stays words", () => {
  const items = [{ label: "<b>x</b>", tokens: ["<img src=x onerror=alert(1)>"], values: [1], warning: "<i>" }];
  const drawn = tokens({ title: "<u>", scale: "amount", items }, 900);
  assert.equal(all(drawn.svg, "img").length, 0);
  assert.ok(texts(drawn.svg, "text").includes("<img src=x onerror=alert(1)>"));
});

test("a warning stands below its words, in lines that fit", () => {
  const items = [{ label: "", tokens: ["a"], values: [1], warning: "This map fails its check. ".repeat(10).trim() }];
  const drawn = tokens({ title: "t", scale: "amount", items }, 320);
  const lines = texts(drawn.svg, "text").filter((words) => words.includes("map"));
  assert.ok(lines.length > 2 && lines.every((line) => line.length * 12 * 0.6 <= 320));
});
