// Histogram; with a `scale`, bars are coloured by the sign of their values.

import { heading, xAxis, yAxis } from "./axes.js";
import { signedColour } from "./colour.js";
import { canvas, svg, textWidth, setColour } from "./dom.js";
import { count, formatTick } from "./format.js";
import { niceDomain, linear } from "./scale.js";

/**
 * @typedef {{ title: string, edges: number[], counts: number[], of?: string, x?: string, x_format?: string,
 *   below?: string, above?: string, scale?: number }} Histogram
 *   `of`: name of the quantity, "error" by default; `scale`: the value of the strongest colour
 */

/**
 * @param {Histogram} spec @param {number} width
 * @returns {import("./explore.js").Drawn}
 */
export function histogram(spec, width) {
  const { edges, counts, of = "error", x_format: format = "number", scale } = spec;
  const height = Math.round(Math.max(240, Math.min(width * 0.7, 420)));
  const bottom = height - 46;
  const y = linear(niceDomain([0, ...counts]), [bottom, 46], 4);
  y.ticks = y.ticks.filter(Number.isInteger);
  const left = 14 + Math.max(...y.ticks.map((t) => textWidth(formatTick(t, "number"), 12)));
  const [first, last] = [edges[0], edges[edges.length - 1]];
  const end = width - Math.max(12, textWidth(formatTick(last, format), 12) / 2); // leaves room for half of the last label
  const x = linear([first, last], [left, end], width / 100);
  const zero = x(0);
  const bars = counts.map((n, i) => {
    const box = { x: x(edges[i]) + 0.5, y: y(n), width: Math.max(x(edges[i + 1]) - x(edges[i]) - 1, 0.5) };
    const bar = svg("rect", { ...box, height: bottom - y(n), class: scale ? null : "bar split-test" });
    return scale ? setColour(bar, signedColour((edges[i] + edges[i + 1]) / 2 / scale)) : bar;
  });
  const drawing = canvas(
    width,
    height,
    heading(spec.title),
    yAxis(y, left, end, "number"),
    ...bars,
    xAxis(x, bottom, spec.x ?? "", format),
    scale ? svg("line", { class: "mark", x1: zero, x2: zero, y1: 30, y2: bottom }) : null,
    spec.below && first < 0 ? sideLabel(`← ${spec.below}`, zero - 8, "end") : null,
    spec.above && last > 0 ? sideLabel(`${spec.above} →`, zero + 8, "start") : null,
  );
  const targets = counts.map((n, i) => ({
    box: [x(edges[i]), y(n), x(edges[i + 1]) - x(edges[i]), bottom - y(n)],
    tip: [`${count(n)} ${n === 1 ? "example" : "examples"}`, `${of} ${formatTick(edges[i], format)} to ${formatTick(edges[i + 1], format)}`],
  }));
  return { svg: drawing, targets, columns: 1 };
}

/**
 * Return the label of one side of zero.
 * @param {string} text @param {number} x @param {string} anchor
 */
function sideLabel(text, x, anchor) {
  return svg("text", { class: "tick strong", x, y: 38, "text-anchor": anchor }, text);
}
