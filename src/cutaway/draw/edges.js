// Edges of a network: curves between two layers, coloured by the sign and as wide as the size of the weight.

import { signedColour } from "./colour.js";
import { svg, setColour } from "./dom.js";

/**
 * @typedef {{ from: [number, number], to: [number, number], weight: number, key: string, tip: string[],
 *   act?: object }} Wire
 * @typedef {import("./explore.js").Target} Target
 */

const PIECES = 10; // segments per curve for distance computations
const NEAR = 14; // pixels within which a curve is hit by the pointer

/**
 * Draw an edge as a cubic Bézier curve with horizontal ends.
 * @param {Wire} wire @param {number} most largest absolute weight @param {"" | "strong" | "faint"} look
 */
export function drawEdge({ from: [x1, y1], to: [x2, y2], weight }, most, look) {
  const part = most > 0 ? Math.min(1, Math.abs(weight) / most) : 0;
  const middle = (x1 + x2) / 2;
  const path = svg("path", {
    class: `wire ${look}`,
    d: `M${x1} ${y1.toFixed(1)}C${middle} ${y1.toFixed(1)} ${middle} ${y2.toFixed(1)} ${x2} ${y2.toFixed(1)}`,
    "stroke-width": (0.6 + 3.9 * part + (look === "strong" ? 1 : 0)).toFixed(2),
  });
  return setColour(path, signedColour(Math.sign(weight) * (0.35 + 0.65 * part)), "stroke");
}

/**
 * Return the point of a curve at t in [0, 1].
 * @param {Wire} wire @param {number} t @returns {[number, number]}
 */
export function pointOnCurve({ from: [x1, y1], to: [x2, y2] }, t) {
  const s = 1 - t;
  const middle = (x1 + x2) / 2;
  const bent = 3 * s * s * t + 3 * s * t * t;
  return [
    s * s * s * x1 + bent * middle + t * t * t * x2,
    (s * s * s + 3 * s * s * t) * y1 + (t * t * t + 3 * s * t * t) * y2,
  ];
}

/**
 * Return the hover targets of edges: the nearest curve for the pointer, and a box near the end of each curve for the
 * keyboard.
 * @param {Wire[]} wires @param {number} sources number of source neurons @returns {Target[]}
 */
export function edgeTargets(wires, sources) {
  if (wires.length === 0) return [];
  const ys = wires.flatMap(({ from, to }) => [from[1], to[1]]);
  const [left, right] = [wires[0].from[0], wires[0].to[0]];
  const [top, bottom] = [Math.min(...ys) - 8, Math.max(...ys) + 8];
  const single = wires.map((edge) => {
    const [x, y] = pointOnCurve(edge, 1 - 1 / (sources + 2));
    return { ...edgeTarget(edge), box: [x - 3, y - 3, 6, 6] };
  });
  const all = {
    box: [left, top, right - left, bottom - top],
    tip: single[0].tip,
    hover: {},
    at: (/** @type {number} */ x, /** @type {number} */ y) => {
      let [best, least, at] = [wires[0], Infinity, [0, 0]];
      for (const edge of wires) {
        for (let k = 0; k <= PIECES; k++) {
          const [u, v] = pointOnCurve(edge, k / PIECES);
          const distance = Math.abs(v - y) + 0.6 * Math.abs(u - x);
          if (distance < least) [best, least, at] = [edge, distance, [u, v]];
        }
      }
      return {
        ...edgeTarget(best),
        box: [at[0] - 3, at[1] - 3, 6, 6],
        ...(least > NEAR ? { act: undefined, set: undefined } : {}),
      };
    },
  };
  return [all, ...single];
}

/** @param {Wire} one */
function edgeTarget({ key, tip, act }) {
  return { tip, key, hover: { edge: key }, ...(act ? { act } : {}) };
}
