// What tells groups of points apart: a colour and a shape each.

import { category } from "./colour.js";

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
 * The colour and the shape of a group: both differ for the first seven, and one of them for fifty-six.
 * @param {number | null} group @param {number} r
 */
export function sign(group, r) {
  const n = group ?? 0;
  return { colour: category(n), path: SHAPES[n % SHAPES.length](r) };
}
