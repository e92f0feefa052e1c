// Colour bar: the legend of a continuous colour scale, with labelled ends.

import { valueColour } from "./colour.js";
import { svg, textWidth, setColour } from "./dom.js";
import { formatTick } from "./format.js";

const STEPS = 24;
export const COLOUR_BAR_HEIGHT = 30; // pixels, including its labels

/**
 * Draw a colour bar; its labels stay within its width.
 * @param {number} x @param {number} y @param {number} width
 * @param {import("./colour.js").Range} range @param {string} [format]
 * @param {string[]} [names] labels of both ends (and the middle), instead of numbers
 * @param {number} [opacity] of a transparent map
 */
export function colourBar(x, y, width, range, format = "number", names, opacity) {
  const { low, high, scale } = range;
  const middle = scale === "signed" && low < 0 && high > 0 ? [0] : [];
  const values = [low, ...middle, high];
  const labels = names ?? values.map((value) => formatTick(Number(value.toPrecision(2)), format));
  const labelX = (/** @type {number} */ k) => x + (k / (labels.length - 1)) * width;
  const anchor = (/** @type {number} */ k) => (k === 0 ? "start" : k === labels.length - 1 ? "end" : "middle");
  const fits = labels.reduce((sum, word) => sum + textWidth(word, 12) + 8, 0) <= width + 8;
  return svg(
    "g",
    { class: "key" },
    ...[...Array(STEPS).keys()].map((i) => {
      const value = low + ((i + 0.5) / STEPS) * (high - low);
      const cellWidth = width / STEPS + (i < STEPS - 1 && !opacity ? 0.5 : 0); // overlap, to avoid visible seams
      return setColour(svg("rect", { x: x + (i / STEPS) * width, y, width: cellWidth, height: 8, opacity }), valueColour(value, range));
    }),
    ...labels.map((word, k) => {
      if (!fits && k > 0 && k < labels.length - 1) return null;
      return svg("text", { class: "tick", x: labelX(k), y: y + 24, "text-anchor": anchor(k) }, word);
    }),
  );
}
