// Thin axes: faint lines at round values, their numbers beside them, the quantity's name above.

import { svg } from "./dom.js";
import { tick } from "./format.js";

/** @typedef {{ top: number, right: number, bottom: number, left: number }} Margin */

/**
 * A drawing's own name, above it on the left.
 * @param {string} text
 */
export function heading(text) {
  return svg("text", { class: "heading", x: 0, y: 14 }, text);
}

/**
 * Horizontal lines with numbers on the left.
 * @param {import("./scale.js").Scale} y @param {number} left @param {number} right @param {string} format
 */
export function yAxis(y, left, right, format) {
  return svg(
    "g",
    {},
    ...y.ticks.flatMap((value) => [
      svg("line", { class: "grid", x1: left, x2: right, y1: y(value), y2: y(value) }),
      svg("text", { class: "tick", x: left - 8, y: y(value) + 4, "text-anchor": "end" }, tick(value, format)),
    ]),
  );
}

/**
 * How a number is aligned where the axis takes all the room: those at its ends stand within it.
 * @param {number} value @param {import("./scale.js").Scale} scale
 */
export function within(value, { domain: [first, last] }) {
  return { "text-anchor": value === first ? "start" : value === last ? "end" : "middle" };
}

/**
 * Numbers below, with the name of the quantity on a line of its own under them.
 * @param {import("./scale.js").Scale} x @param {number} bottom @param {string} name @param {string} format
 */
export function xAxis(x, bottom, name, format) {
  const [from, to] = x.domain.map(x);
  return svg(
    "g",
    {},
    svg("line", { class: "axis", x1: from, x2: to, y1: bottom, y2: bottom }),
    ...x.ticks.map((value) =>
      svg("text", { class: "tick", x: x(value), y: bottom + 18, "text-anchor": "middle" }, tick(value, format)),
    ),
    svg("text", { class: "tick", x: to, y: bottom + 36, "text-anchor": "end" }, name),
  );
}
