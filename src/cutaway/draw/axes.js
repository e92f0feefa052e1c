// Axes: grid lines at round values, tick labels, and the name of the quantity.

import { svg } from "./dom.js";
import { formatTick } from "./format.js";

/** @typedef {{ top: number, right: number, bottom: number, left: number }} Margin */

/**
 * Return the title of a drawing.
 * @param {string} text
 */
export function heading(text) {
  return svg("text", { class: "heading", x: 0, y: 14 }, text);
}

/**
 * Return a vertical axis: horizontal grid lines with labels on the left.
 * @param {import("./scale.js").Scale} y @param {number} left @param {number} right @param {string} format
 */
export function yAxis(y, left, right, format) {
  return svg(
    "g",
    {},
    ...y.ticks.flatMap((value) => [
      svg("line", { class: "grid", x1: left, x2: right, y1: y(value), y2: y(value) }),
      svg("text", { class: "tick", x: left - 8, y: y(value) + 4, "text-anchor": "end" }, formatTick(value, format)),
    ]),
  );
}

/**
 * Return the text anchor of a tick label, such that the labels at both ends stay within the axis.
 * @param {number} value @param {import("./scale.js").Scale} scale
 */
export function tickAnchor(value, { domain: [first, last] }) {
  return { "text-anchor": value === first ? "start" : value === last ? "end" : "middle" };
}

/**
 * Return a horizontal axis: tick labels, and the name of the quantity below them.
 * @param {import("./scale.js").Scale} x @param {number} bottom @param {string} name @param {string} format
 */
export function xAxis(x, bottom, name, format) {
  const [from, to] = x.domain.map(x);
  return svg(
    "g",
    {},
    svg("line", { class: "axis", x1: from, x2: to, y1: bottom, y2: bottom }),
    ...x.ticks.map((value) =>
      svg("text", { class: "tick", x: x(value), y: bottom + 18, "text-anchor": "middle" }, formatTick(value, format)),
    ),
    svg("text", { class: "tick", x: to, y: bottom + 36, "text-anchor": "end" }, name),
  );
}
