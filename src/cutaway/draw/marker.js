// Markers for groups of points: each group has a colour and a shape.

import { categoryColour } from "./colour.js";

const SHAPES = [
  (/** @type {number} */ r) => `M${-r} 0a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0Z`,
  (/** @type {number} */ r) => `M${-r} ${-r}h${2 * r}v${2 * r}h${-2 * r}Z`,
  (/** @type {number} */ r) => `M0 ${-1.25 * r}L${1.2 * r} ${r}H${-1.2 * r}Z`,
  (/** @type {number} */ r) => `M0 ${-1.35 * r}L${1.35 * r} 0L0 ${1.35 * r}L${-1.35 * r} 0Z`,
  (/** @type {number} */ r) => `M0 ${1.25 * r}L${1.2 * r} ${-r}H${-1.2 * r}Z`,
  (/** @type {number} */ r) => `M${-0.4 * r} ${-1.2 * r}h${0.8 * r}v${0.8 * r}h${0.8 * r}v${0.8 * r}h${-0.8 * r}v${0.8 * r}h${-0.8 * r}v${-0.8 * r}h${-0.8 * r}v${-0.8 * r}h${0.8 * r}Z`,
  (/** @type {number} */ r) => `M${-1.5 * r} ${-0.6 * r}h${3 * r}v${1.2 * r}h${-3 * r}Z`,
  (/** @type {number} */ r) => `M${-0.6 * r} ${-1.5 * r}h${1.2 * r}v${3 * r}h${-1.2 * r}Z`,
];

/**
 * Return the colour and shape of a group: both are unique among the first 7 groups, their pair among 56.
 * @param {number | null} group @param {number} r
 */
export function marker(group, r) {
  const n = group ?? 0;
  return { colour: categoryColour(n), path: SHAPES[n % SHAPES.length](r) };
}
