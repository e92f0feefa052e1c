// A glance at each toy data set: a few points by its own formula, as small as a stamp.

import { svg } from "../draw/dom.js";

/** @typedef {[number, number, number][]} Points x and y between −1 and 1, and the class */

const TURN = 2 * Math.PI;

/** Even steps from 0 up to, but not including, 1. @param {number} n */
const along = (n) => Array.from({ length: n }, (_, i) => (i + 0.5) / n);

/** Places all over the square, the same each time. @param {number} n */
const spread = (n) => along(n).map((t, i) => [2 * ((i * 0.618034) % 1) - 1, 2 * t - 1]);

/** @type {Record<string, () => Points>} */
const SHAPES = {
  moons: () =>
    along(14).flatMap((t) => [
      [Math.cos(t * Math.PI) * 0.6 - 0.3, 0.25 - Math.sin(t * Math.PI) * 0.6, 0],
      [0.3 - Math.cos(t * Math.PI) * 0.6, Math.sin(t * Math.PI) * 0.6 - 0.25, 1],
    ]),
  circles: () => [...ring(18, 0.85, 0), ...ring(10, 0.4, 1)],
  spirals: () => [0, 1, 2].flatMap((arm) => along(11).map((t) => at(t * 0.9, t * 0.62 + arm / 3, arm))),
  spiral: () => [0, 1].flatMap((arm) => along(16).map((t) => at(t * 0.9, t * 0.9 + arm / 2, arm))),
  xor: () => [[-1, -1], [1, 1], [-1, 1], [1, -1]].flatMap(([x, y]) => cloud(8, x * 0.55, y * 0.55, x === y ? 0 : 1)),
  blobs: () => [...cloud(14, -0.45, 0.4, 0), ...cloud(14, 0.45, -0.4, 1)],
  gaussians: () => [...cloud(14, -0.45, 0.4, 0), ...cloud(14, 0.45, -0.4, 1)],
  linear: () => spread(36).map(([x, y]) => [x * 0.9, y * 0.9, x > y ? 1 : 0]),
  line: () => along(16).map((t, i) => [1.8 * t - 0.9, 0.7 - 1.4 * t + 0.14 * Math.sin(i * 5), 1]),
  wave: () => along(24).map((t) => [1.8 * t - 0.9, 0.6 * Math.sin(t * TURN), 1]),
  plane: () => spread(36).map(([x, y]) => [x * 0.9, y * 0.9, x - y > 0.4 ? 1 : x - y < -0.4 ? 0 : 2]),
  checkerboard: () => spread(64).map(([x, y]) => [x * 0.9, y * 0.9, (Math.floor(x * 2) + Math.floor(y * 2)) & 1]),
};

/**
 * A drawing of the toy, or nothing where its shape is not known here.
 * @param {string} name
 */
export function stamp(name) {
  const points = shape(name);
  if (points.length === 0) return null;
  const dots = points.map(([x, y, group]) => svg("circle", { class: `group-${group}`, cx: x * 20, cy: y * 20, r: 1.6 }));
  return svg("svg", { class: "stamp", viewBox: "-22 -22 44 44", "aria-hidden": "true" }, ...dots);
}

/** @param {string} name @returns {Points} */
export function shape(name) {
  return SHAPES[name]?.() ?? [];
}

/** @param {number} n @param {number} radius @param {number} group @returns {Points} */
function ring(n, radius, group) {
  return along(n).map((t) => at(radius, t, group));
}

/** @param {number} radius @param {number} turn @param {number} group @returns {[number, number, number]} */
function at(radius, turn, group) {
  return [radius * Math.cos(turn * TURN), radius * Math.sin(turn * TURN), group];
}

/** @param {number} n @param {number} x @param {number} y @param {number} group @returns {Points} */
function cloud(n, x, y, group) {
  return along(n).map((t, i) => {
    const [dx, dy] = at(0.36 * Math.sqrt(t), i * 0.381966, group);
    return [x + dx, y + dy, group];
  });
}
