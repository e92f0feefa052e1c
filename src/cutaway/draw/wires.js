// The weights between two columns of a network: curves, coloured by sign, the wider the larger.

import { signed } from "./colour.js";
import { svg, tint } from "./dom.js";

/**
 * @typedef {{ from: [number, number], to: [number, number], weight: number, key: string, tip: string[],
 *   act?: object }} Wire
 * @typedef {import("./explore.js").Target} Target
 */

const PIECES = 10; // straight pieces that a curve is measured by
const NEAR = 14; // pixels from a curve within which the pointer means it

/**
 * A curve, by the cubic Bézier with level ends.
 * @param {Wire} wire @param {number} most the largest weight there is @param {"" | "strong" | "faint"} look
 */
export function wire({ from: [x1, y1], to: [x2, y2], weight }, most, look) {
  const part = most > 0 ? Math.min(1, Math.abs(weight) / most) : 0;
  const middle = (x1 + x2) / 2;
  const path = svg("path", {
    class: `wire ${look}`,
    d: `M${x1} ${y1.toFixed(1)}C${middle} ${y1.toFixed(1)} ${middle} ${y2.toFixed(1)} ${x2} ${y2.toFixed(1)}`,
    "stroke-width": (0.6 + 3.9 * part + (look === "strong" ? 1 : 0)).toFixed(2),
  });
  return tint(path, signed(Math.sign(weight) * (0.35 + 0.65 * part)), "stroke");
}

/**
 * Where a curve is after a part t of it.
 * @param {Wire} wire @param {number} t @returns {[number, number]}
 */
export function along({ from: [x1, y1], to: [x2, y2] }, t) {
  const s = 1 - t;
  const middle = (x1 + x2) / 2;
  const bent = 3 * s * s * t + 3 * s * t * t;
  return [
    s * s * s * x1 + bent * middle + t * t * t * x2,
    (s * s * s + 3 * s * s * t) * y1 + (t * t * t + 3 * s * t * t) * y2,
  ];
}

/**
 * What can be looked at between two columns: for the pointer the nearest curve, for the keyboard each at a place of its
 * own, near where it ends.
 * @param {Wire[]} wires @param {number} sources how many there are @returns {Target[]}
 */
export function wireTargets(wires, sources) {
  if (wires.length === 0) return [];
  const ys = wires.flatMap(({ from, to }) => [from[1], to[1]]);
  const [left, right] = [wires[0].from[0], wires[0].to[0]];
  const [top, bottom] = [Math.min(...ys) - 8, Math.max(...ys) + 8];
  const single = wires.map((one) => {
    const [x, y] = along(one, 1 - 1 / (sources + 2));
    return { ...said(one), box: [x - 3, y - 3, 6, 6] };
  });
  const all = {
    box: [left, top, right - left, bottom - top],
    tip: single[0].tip,
    hover: {},
    at: (/** @type {number} */ x, /** @type {number} */ y) => {
      let [best, least, at] = [wires[0], Infinity, [0, 0]];
      for (const one of wires) {
        for (let k = 0; k <= PIECES; k++) {
          const [u, v] = along(one, k / PIECES);
          const far = Math.abs(v - y) + 0.6 * Math.abs(u - x);
          if (far < least) [best, least, at] = [one, far, [u, v]];
        }
      }
      return {
        ...said(best),
        box: [at[0] - 3, at[1] - 3, 6, 6],
        ...(least > NEAR ? { act: undefined, set: undefined } : {}),
      };
    },
  };
  return [all, ...single];
}

/** @param {Wire} one */
function said({ key, tip, act }) {
  return { tip, key, hover: { edge: key }, ...(act ? { act } : {}) };
}
