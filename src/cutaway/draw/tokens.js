// Tokens in reading order, shaded by a value, or by the attention of a selected token. For generated tokens, the most
// likely alternatives are listed below.

import { heading } from "./axes.js";
import { valueColour, textColour } from "./colour.js";
import { canvas, shorten, svg, textWidth, setColour, wrapText } from "./dom.js";
import { formatValue } from "./format.js";
import { colourBar, COLOUR_BAR_HEIGHT } from "./colour_bar.js";

/**
 * `values`: one number per token, or null. `range`: the strongest shade is the largest value of each item ("unit", the
 * default) or of all items ("global").
 *
 * With `weights`, attention of shape (T, S), the hovered token shades the others by its row. One item: self-attention.
 * Two items: tokens of the second attend to those of the first, and are shaded by their own values, if any. `query`: row
 * shown at first, by default the last. `maps`: named weights to select from.
 *
 * With `likely`, [token, probability] for each row, the second item is generated text: a row of weights is the attention
 * at the step that generated a token, and the most likely tokens of that step are listed below.
 * @typedef {{ label: string, tokens: string[], values: (number | null)[], warning: string | null }} Item
 * @typedef {{ title: string, scale: "signed" | "amount", items: Item[], range?: "unit" | "global", format?: string,
 *   weights?: (number | null)[][], maps?: { name: string, weights: (number | null)[][] }[], query?: number,
 *   likely?: [string, number][][], key?: boolean }} Tokens `key`: false to omit the colour bar
 */

const HIGH = 26; // pixels of a token's box
const PADDING = 6; // pixels left and right of the text in a box
const GAP = 3;
const KEY_WIDE = 180;
const BAR = 20; // pixels of a line of a likely token
const LONGEST = 420; // pixels of the longest bar

/**
 * @param {Tokens} spec @param {number} width
 * @param {{ token?: number, map?: number }} [state] `token`: selected row
 * @returns {import("./explore.js").Drawn}
 */
export function tokens(spec, width, state = {}) {
  const { maps = [], likely } = spec;
  const map = Math.max(0, Math.min(state.map ?? 0, maps.length - 1));
  const weights = maps[map]?.weights ?? spec.weights;
  const format = spec.format ?? (weights ? "fraction" : "number");
  const queryItem = spec.items.length - 1; // the item whose tokens are queries
  const rows = weights?.length ?? likely?.length ?? 0;
  const query = rows > 0 ? Math.max(0, Math.min(state.token ?? spec.query ?? rows - 1, rows - 1)) : -1;
  const values = spec.items.map((item, k) => (weights && k === 0 ? (weights[query] ?? []) : item.values));
  const ranges = colourRanges(spec, values);
  if (likely) ranges[queryItem] = { ...ranges[queryItem], high: 1 }; // probabilities
  /** @type {Element[]} */
  const parts = [];
  /** @type {import("./explore.js").Target[]} */
  const targets = [];
  let y = 28;
  if (weights && rows > 0) {
    const text = attentionSentence(spec, spec.items[queryItem].tokens[query], weights[query], format);
    parts.push(svg("text", { class: "tick", x: 0, y: y + 10 }, shorten(text, width, 12)));
    y += 24;
  }
  spec.items.forEach((item, k) => {
    if (item.label) {
      parts.push(svg("text", { class: "tick strong", x: 0, y: y + 12 }, shorten(item.label, width, 12, 600)));
      y += 22;
    }
    const boxes = layoutTokens(item.tokens, width);
    item.tokens.forEach((token, t) => {
      const { x, row, wide, word } = boxes[t];
      const place = { x, y: y + row * (HIGH + GAP), width: wide, height: HIGH };
      const value = values[k][t] ?? null;
      const chosen = k === queryItem && t === query ? " chosen" : "";
      const fade = likely && weights && k < queryItem && value === null ? 0.3 : null; // generated later
      const box = svg("rect", { class: `token${chosen}`, rx: 3, opacity: fade, ...place });
      const at = { x: x + wide / 2, y: place.y + 17, "text-anchor": "middle" };
      const words = svg("text", { class: "cell", opacity: fade, ...at }, word);
      if (value === null) parts.push(box, words);
      else parts.push(setColour(box, valueColour(value, ranges[k])), setColour(words, textColour(valueColour(value, ranges[k]))));
      targets.push({
        box: [place.x, place.y, wide, HIGH],
        tip: tip(spec, weights, k, t, value, query, format),
        ...(k === queryItem && t < rows ? { hover: { token: t }, set: { token: t } } : {}),
      });
    });
    y += (boxes.length ? boxes[boxes.length - 1].row + 1 : 0) * (HIGH + GAP) + 2;
    if (item.warning) {
      for (const line of wrapText(item.warning, width)) {
        parts.push(svg("text", { class: "tick", x: 0, y: y + 12 }, line));
        y += 17;
      }
    }
    if (spec.key !== false && !weights && spec.range !== "global" && item.tokens.length) {
      parts.push(colourBar(0, y + 6, Math.min(KEY_WIDE, width), ranges[k], format));
      y += COLOUR_BAR_HEIGHT + 8;
    }
    y += 10;
  });
  if (spec.key !== false && (weights || spec.range === "global")) {
    parts.push(colourBar(0, y, Math.min(KEY_WIDE, width), ranges[0], format));
    y += COLOUR_BAR_HEIGHT;
  }
  if (likely?.[query]) {
    parts.push(...bars(likely[query], spec.items[queryItem].tokens[query], y + 14, width));
    y += 30 + likely[query].length * BAR;
  }
  const named = maps.map(({ name }, value) => ({ value, name }));
  const controls = maps.length > 1 ? [{ key: "map", label: "Attention", value: map, options: named }] : [];
  return { svg: canvas(width, y + 6, heading(spec.title), ...parts), targets, columns: 0, controls };
}

/**
 * Draw the most likely tokens at a position, each with its bar.
 * @param {[string, number][]} likely @param {string} chosen the generated token
 * @param {number} y @param {number} width
 */
function bars(likely, chosen, y, width) {
  const names = Math.min(150, Math.max(...likely.map(([word]) => textWidth(visibleToken(word), 12, 600)))) + 12;
  const longest = Math.min(LONGEST, width - names - 70);
  const text = `Most likely tokens at the position of ${visibleToken(chosen)}`;
  return [
    svg("text", { class: "tick strong", x: 0, y: y + 6 }, shorten(text, width, 12, 600)),
    ...likely.flatMap(([word, p], k) => {
      const middle = y + 24 + k * BAR;
      const isChosen = word === chosen;
      const long = Math.max(1, p * longest);
      const place = { x: names, y: middle - 5, width: long, height: 10, rx: 1 };
      return [
        svg("text", { class: isChosen ? "cell label" : "cell", x: 0, y: middle + 4 }, shorten(visibleToken(word), names - 8, 12)),
        svg("rect", { class: isChosen ? "bar split-test" : "bar", ...place }),
        svg("text", { class: "tick", x: names + long + 6, y: middle + 4 }, formatValue(p, "fraction")),
      ];
    }),
  ];
}

/**
 * Return the colour range of each item.
 * @param {Tokens} spec @param {(number | null)[][]} values
 */
function colourRanges({ scale, range }, values) {
  const each = values.map((row) => row.reduce((/** @type {number} */ most, v) => Math.max(most, Math.abs(v ?? 0)), 0));
  const most = range === "global" ? each.map(() => Math.max(0, ...each)) : each;
  return most.map((high) => ({ scale, low: scale === "signed" ? -(high || 1) : 0, high: high || 1 }));
}

/**
 * Return a sentence about the tokens that a query attends to most.
 * @param {Tokens} spec @param {string} query @param {(number | null)[]} row @param {string} format
 */
function attentionSentence({ items, likely }, query, row, format) {
  const all = items[0].tokens.map((key, s) => ({ key, value: row[s] ?? 0 }));
  const most = all.sort((a, b) => b.value - a.value).slice(0, 3);
  const to = most.filter(({ value }) => value > 0).map(({ key, value }) => `${visibleToken(key)} ${formatValue(value, format)}`);
  const words = likely ? `Attention when ${visibleToken(query)} was generated:` : `${visibleToken(query)} attends to`;
  return `${words} ${to.length ? to.join(", ") : "nothing"}`;
}

/**
 * @param {Tokens} spec @param {Tokens["weights"]} weights @param {number} k @param {number} t
 * @param {number | null} value @param {number} query @param {string} format
 */
function tip(spec, weights, k, t, value, query, format) {
  const { items, likely } = spec;
  const head = `${visibleToken(items[k].tokens[t])}, position ${t}`;
  if (!weights && !likely) return [head, ...(items[k].label ? [items[k].label] : []), formatValue(value, format)];
  const queryItem = items.length - 1;
  const named = visibleToken(items[queryItem].tokens[query] ?? "");
  if (k === queryItem && t < (weights ?? likely ?? []).length) {
    // Hovering it makes it the query.
    const p = likely ? [`probability ${formatValue(value, "fraction")}`] : [];
    return [head, ...p, ...(weights ? [attentionSentence(spec, items[queryItem].tokens[t], weights[t], format)] : [])];
  }
  if (!weights) return [head];
  if (value === null && likely) return [head, `generated after ${named}`];
  return [head, `${formatValue(value, format)} of the attention ${likely ? `when ${named} was generated` : `of ${named}`}`];
}

/**
 * Return a token with symbols for whitespace.
 * @param {string} token
 */
export function visibleToken(token) {
  const shown = token.replace(/\n/g, "⏎").replace(/\t/g, "⇥").replace(/\r/g, "␍");
  return shown === "" ? "∅" : token.trim() === "" ? shown.replace(/[^⏎⇥␍]/gu, "␣") : shown;
}

/**
 * Lay out the boxes of tokens: position, width and row of each.
 * @param {string[]} words @param {number} width
 */
function layoutTokens(words, width) {
  let x = 0;
  let row = 0;
  return words.map((token) => {
    const word = shorten(visibleToken(token), Math.min(width - 2 * PADDING, 240), 12);
    const wide = Math.min(width, Math.max(16, textWidth(word, 12) + 2 * PADDING));
    if (x > 0 && x + wide > width) [x, row] = [0, row + 1];
    const box = { x, row, wide, word };
    x += wide + GAP;
    return box;
  });
}
