// Words in the order in which they are read, each shaded by a number; or by how much a chosen one attends to it. Below
// words as they were written stands what else could have been.

import { heading } from "./axes.js";
import { ofValue, over } from "./colour.js";
import { canvas, shorten, svg, textWidth, tint } from "./dom.js";
import { written } from "./format.js";
import { key, KEY_HIGH } from "./key.js";

/**
 * `values` are one number for each token, null where there is none. `range` says what the strongest shade is: the
 * strongest value of each item ("unit", unless said) or of all ("global").
 *
 * With `weights`, (T, S) fractions, a token that is pointed at shades the others by its row. With one item its tokens
 * look at each other; with two the tokens of the second look at those of the first, shaded by values of their own if
 * there are any. `query` is the row shown at first, the last unless said. Of `maps` one is chosen and shown as `weights`.
 *
 * With `likely`, [word, probability] for each row, the second item is what was written: a row of weights is what the
 * network looked at before it wrote that token, and below stand the tokens that were likeliest there.
 * @typedef {{ label: string, tokens: string[], values: (number | null)[], warning: string | null }} Item
 * @typedef {{ title: string, scale: "signed" | "amount", items: Item[], range?: "unit" | "global", format?: string,
 *   weights?: (number | null)[][], maps?: { name: string, weights: (number | null)[][] }[], query?: number,
 *   likely?: [string, number][][], key?: boolean }} Tokens `key`: false where shades need none
 */

const HIGH = 26; // pixels of a token's box
const BESIDE = 6; // pixels within a box, on either side of its word
const GAP = 3;
const KEY_WIDE = 180;
const BAR = 20; // pixels of a likely token's line
const LONGEST = 420; // of its bar

/**
 * @param {Tokens} spec @param {number} width
 * @param {{ token?: number, map?: number }} [state] `token`: the row that is chosen
 * @returns {import("./explore.js").Drawn}
 */
export function tokens(spec, width, state = {}) {
  const { maps = [], likely } = spec;
  const map = Math.max(0, Math.min(state.map ?? 0, maps.length - 1));
  const weights = maps[map]?.weights ?? spec.weights;
  const format = spec.format ?? (weights ? "fraction" : "number");
  const asks = spec.items.length - 1; // the item whose tokens ask
  const rows = weights?.length ?? likely?.length ?? 0;
  const query = rows > 0 ? Math.max(0, Math.min(state.token ?? spec.query ?? rows - 1, rows - 1)) : -1;
  const values = spec.items.map((item, k) => (weights && k === 0 ? (weights[query] ?? []) : item.values));
  const ranges = rangesOf(spec, values);
  if (likely) ranges[asks] = { ...ranges[asks], high: 1 }; // probabilities
  /** @type {Element[]} */
  const parts = [];
  /** @type {import("./explore.js").Target[]} */
  const targets = [];
  let y = 28;
  if (weights && rows > 0) {
    const said = asking(spec, spec.items[asks].tokens[query], weights[query], format);
    parts.push(svg("text", { class: "tick", x: 0, y: y + 10 }, shorten(said, width, 12)));
    y += 24;
  }
  spec.items.forEach((item, k) => {
    if (item.label) {
      parts.push(svg("text", { class: "tick strong", x: 0, y: y + 12 }, shorten(item.label, width, 12, 600)));
      y += 22;
    }
    const boxes = flowing(item.tokens, width);
    item.tokens.forEach((token, t) => {
      const { x, row, wide, word } = boxes[t];
      const place = { x, y: y + row * (HIGH + GAP), width: wide, height: HIGH };
      const value = values[k][t] ?? null;
      const chosen = k === asks && t === query ? " chosen" : "";
      const coming = likely && weights && k < asks && value === null ? 0.3 : null; // it was written later
      const box = svg("rect", { class: `token${chosen}`, rx: 3, opacity: coming, ...place });
      const at = { x: x + wide / 2, y: place.y + 17, "text-anchor": "middle" };
      const words = svg("text", { class: "cell", opacity: coming, ...at }, word);
      if (value === null) parts.push(box, words);
      else parts.push(tint(box, ofValue(value, ranges[k])), tint(words, over(ofValue(value, ranges[k]))));
      targets.push({
        box: [place.x, place.y, wide, HIGH],
        tip: tip(spec, weights, k, t, value, query, format),
        ...(k === asks && t < rows ? { hover: { token: t }, set: { token: t } } : {}),
      });
    });
    y += (boxes.length ? boxes[boxes.length - 1].row + 1 : 0) * (HIGH + GAP) + 2;
    if (item.warning) {
      for (const line of wrapped(item.warning, width)) {
        parts.push(svg("text", { class: "tick", x: 0, y: y + 12 }, line));
        y += 17;
      }
    }
    if (spec.key !== false && !weights && spec.range !== "global" && item.tokens.length) {
      parts.push(key(0, y + 6, Math.min(KEY_WIDE, width), ranges[k], format));
      y += KEY_HIGH + 8;
    }
    y += 10;
  });
  if (spec.key !== false && (weights || spec.range === "global")) {
    parts.push(key(0, y, Math.min(KEY_WIDE, width), ranges[0], format));
    y += KEY_HIGH;
  }
  if (likely?.[query]) {
    parts.push(...bars(likely[query], spec.items[asks].tokens[query], y + 14, width));
    y += 30 + likely[query].length * BAR;
  }
  const named = maps.map(({ name }, value) => ({ value, name }));
  const controls = maps.length > 1 ? [{ key: "map", label: "Attention", value: map, options: named }] : [];
  return { svg: canvas(width, y + 6, heading(spec.title), ...parts), targets, columns: 0, controls };
}

/**
 * The likeliest tokens at a place, each with its bar.
 * @param {[string, number][]} likely @param {string} own the one that was written
 * @param {number} y @param {number} width
 */
function bars(likely, own, y, width) {
  const names = Math.min(150, Math.max(...likely.map(([word]) => textWidth(seen(word), 12, 600)))) + 12;
  const longest = Math.min(LONGEST, width - names - 70);
  const said = `What could have stood there instead of ${seen(own)}`;
  return [
    svg("text", { class: "tick strong", x: 0, y: y + 6 }, shorten(said, width, 12, 600)),
    ...likely.flatMap(([word, p], k) => {
      const middle = y + 24 + k * BAR;
      const is = word === own;
      const long = Math.max(1, p * longest);
      const place = { x: names, y: middle - 5, width: long, height: 10, rx: 1 };
      return [
        svg("text", { class: is ? "cell label" : "cell", x: 0, y: middle + 4 }, shorten(seen(word), names - 8, 12)),
        svg("rect", { class: is ? "bar split-test" : "bar", ...place }),
        svg("text", { class: "tick", x: names + long + 6, y: middle + 4 }, written(p, "fraction")),
      ];
    }),
  ];
}

/**
 * What the ends of the scale stand for, in each item.
 * @param {Tokens} spec @param {(number | null)[][]} values
 */
function rangesOf({ scale, range }, values) {
  const each = values.map((row) => row.reduce((/** @type {number} */ most, v) => Math.max(most, Math.abs(v ?? 0)), 0));
  const most = range === "global" ? each.map(() => Math.max(0, ...each)) : each;
  return most.map((high) => ({ scale, low: scale === "signed" ? -(high || 1) : 0, high: high || 1 }));
}

/**
 * In words: what a token attends to most.
 * @param {Tokens} spec @param {string} query @param {(number | null)[]} row @param {string} format
 */
function asking({ items, likely }, query, row, format) {
  const all = items[0].tokens.map((key, s) => ({ key, value: row[s] ?? 0 }));
  const most = all.sort((a, b) => b.value - a.value).slice(0, 3);
  const to = most.filter(({ value }) => value > 0).map(({ key, value }) => `${seen(key)} ${written(value, format)}`);
  const words = likely ? `Before ${seen(query)} was written: looked at` : `${seen(query)} attends to`;
  return `${words} ${to.length ? to.join(", ") : "nothing"}`;
}

/**
 * @param {Tokens} spec @param {Tokens["weights"]} weights @param {number} k @param {number} t
 * @param {number | null} value @param {number} query @param {string} format
 */
function tip(spec, weights, k, t, value, query, format) {
  const { items, likely } = spec;
  const head = `${seen(items[k].tokens[t])}, place ${t}`;
  if (!weights && !likely) return [head, ...(items[k].label ? [items[k].label] : []), written(value, format)];
  const asks = items.length - 1;
  const named = seen(items[asks].tokens[query] ?? "");
  if (k === asks && t < (weights ?? likely ?? []).length) {
    // Pointing at it makes it the one that asks.
    const p = likely ? [`probability ${written(value, "fraction")}`] : [];
    return [head, ...p, ...(weights ? [asking(spec, items[asks].tokens[t], weights[t], format)] : [])];
  }
  if (!weights) return [head];
  if (value === null && likely) return [head, `written after ${named}`];
  return [head, `${written(value, format)} of what ${likely ? `was looked at before ${named}` : `${named} takes`}`];
}

/**
 * A word that can be seen: blanks and breaks have signs.
 * @param {string} token
 */
export function seen(token) {
  const shown = token.replace(/\n/g, "⏎").replace(/\t/g, "⇥").replace(/\r/g, "␍");
  return shown === "" ? "∅" : token.trim() === "" ? shown.replace(/[^⏎⇥␍]/gu, "␣") : shown;
}

/**
 * Where each word's box begins, how wide it is, and in which row it stands.
 * @param {string[]} words @param {number} width
 */
function flowing(words, width) {
  let x = 0;
  let row = 0;
  return words.map((token) => {
    const word = shorten(seen(token), Math.min(width - 2 * BESIDE, 240), 12);
    const wide = Math.min(width, Math.max(16, textWidth(word, 12) + 2 * BESIDE));
    if (x > 0 && x + wide > width) [x, row] = [0, row + 1];
    const box = { x, row, wide, word };
    x += wide + GAP;
    return box;
  });
}

/**
 * Words in lines that fit.
 * @param {string} text @param {number} width
 */
function wrapped(text, width) {
  const lines = [""];
  for (const word of text.split(" ")) {
    const last = lines[lines.length - 1];
    if (last && textWidth(`${last} ${word}`, 12) > width) lines.push(word);
    else lines[lines.length - 1] = last ? `${last} ${word}` : word;
  }
  return lines;
}
