// The key to a scale of colours: a bar from its lowest to its highest, with the numbers that they stand for.

import { ofValue } from "./colour.js";
import { svg, textWidth, tint } from "./dom.js";
import { tick } from "./format.js";

const STEPS = 24;
export const KEY_HIGH = 30; // pixels, with its numbers

/**
 * The key, at a place; its numbers stand within its width.
 * @param {number} x @param {number} y @param {number} width
 * @param {import("./colour.js").Range} range @param {string} [format]
 * @param {string[]} [names] instead of numbers, for both ends (and the middle)
 * @param {number} [opacity] of a map that lets the paper through
 */
export function key(x, y, width, range, format = "number", names, opacity) {
  const { low, high, scale } = range;
  const middle = scale === "signed" && low < 0 && high > 0 ? [0] : [];
  const values = [low, ...middle, high];
  const written = names ?? values.map((value) => tick(Number(value.toPrecision(2)), format));
  const at = (/** @type {number} */ k) => x + (k / (written.length - 1)) * width;
  const anchor = (/** @type {number} */ k) => (k === 0 ? "start" : k === written.length - 1 ? "end" : "middle");
  const room = written.reduce((sum, word) => sum + textWidth(word, 12) + 8, 0) <= width + 8;
  return svg(
    "g",
    { class: "key" },
    ...[...Array(STEPS).keys()].map((i) => {
      const value = low + ((i + 0.5) / STEPS) * (high - low);
      const wide = width / STEPS + (i < STEPS - 1 && !opacity ? 0.5 : 0); // a little over the next, or seams show
      return tint(svg("rect", { x: x + (i / STEPS) * width, y, width: wide, height: 8, opacity }), ofValue(value, range));
    }),
    ...written.map((word, k) => {
      if (!room && k > 0 && k < written.length - 1) return null;
      return svg("text", { class: "tick", x: at(k), y: y + 24, "text-anchor": anchor(k) }, word);
    }),
  );
}
