// Thumbnails of the toy data sets: a few points from the formula of each.

import { svg } from "../draw/dom.js";

/** @typedef {[number, number, number][]} Points x and y between −1 and 1, and the class */

const TURN = 2 * Math.PI;

/** Return n evenly spaced numbers between 0 and 1. @param {number} n */
const evenSteps = (n) => Array.from({ length: n }, (_, i) => (i + 0.5) / n);

/** Return n points spread over the square, always the same. @param {number} n */
const spreadPoints = (n) => evenSteps(n).map((t, i) => [2 * ((i * 0.618034) % 1) - 1, 2 * t - 1]);

/** @type {Record<string, () => Points>} */
const SHAPES = {
  moons: () =>
    evenSteps(14).flatMap((t) => [
      [Math.cos(t * Math.PI) * 0.6 - 0.3, 0.25 - Math.sin(t * Math.PI) * 0.6, 0],
      [0.3 - Math.cos(t * Math.PI) * 0.6, Math.sin(t * Math.PI) * 0.6 - 0.25, 1],
    ]),
  circles: () => [...ring(18, 0.85, 0), ...ring(10, 0.4, 1)],
  spirals: () => [0, 1, 2].flatMap((arm) => evenSteps(11).map((t) => polarPoint(t * 0.9, t * 0.62 + arm / 3, arm))),
  spiral: () => [0, 1].flatMap((arm) => evenSteps(16).map((t) => polarPoint(t * 0.9, t * 0.9 + arm / 2, arm))),
  xor: () => [[-1, -1], [1, 1], [-1, 1], [1, -1]].flatMap(([x, y]) => cloud(8, x * 0.55, y * 0.55, x === y ? 0 : 1)),
  blobs: () => [...cloud(14, -0.45, 0.4, 0), ...cloud(14, 0.45, -0.4, 1)],
  gaussians: () => [...cloud(14, -0.45, 0.4, 0), ...cloud(14, 0.45, -0.4, 1)],
  linear: () => spreadPoints(36).map(([x, y]) => [x * 0.9, y * 0.9, x > y ? 1 : 0]),
  line: () => evenSteps(16).map((t, i) => [1.8 * t - 0.9, 0.7 - 1.4 * t + 0.14 * Math.sin(i * 5), 1]),
  wave: () => evenSteps(24).map((t) => [1.8 * t - 0.9, 0.6 * Math.sin(t * TURN), 1]),
  plane: () => spreadPoints(36).map(([x, y]) => [x * 0.9, y * 0.9, x - y > 0.4 ? 1 : x - y < -0.4 ? 0 : 2]),
  checkerboard: () => spreadPoints(64).map(([x, y]) => [x * 0.9, y * 0.9, (Math.floor(x * 2) + Math.floor(y * 2)) & 1]),
};

/**
 * Return a thumbnail of a toy data set, or null if it is unknown.
 * @param {string} name
 */
export function thumbnail(name) {
  const points = samplePoints(name);
  if (points.length === 0) return null;
  const dots = points.map(([x, y, group]) => svg("circle", { class: `group-${group}`, cx: x * 20, cy: y * 20, r: 1.6 }));
  return svg("svg", { class: "stamp", viewBox: "-22 -22 44 44", "aria-hidden": "true" }, ...dots);
}

/** @param {string} name @returns {Points} */
export function samplePoints(name) {
  return SHAPES[name]?.() ?? [];
}

/** @param {number} n @param {number} radius @param {number} group @returns {Points} */
function ring(n, radius, group) {
  return evenSteps(n).map((t) => polarPoint(radius, t, group));
}

/** @param {number} radius @param {number} turn @param {number} group @returns {[number, number, number]} */
function polarPoint(radius, turn, group) {
  return [radius * Math.cos(turn * TURN), radius * Math.sin(turn * TURN), group];
}

/** @param {number} n @param {number} x @param {number} y @param {number} group @returns {Points} */
function cloud(n, x, y, group) {
  return evenSteps(n).map((t, i) => {
    const [dx, dy] = polarPoint(0.36 * Math.sqrt(t), i * 0.381966, group);
    return [x + dx, y + dy, group];
  });
}
