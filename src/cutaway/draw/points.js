// Scatter plot of predicted over actual values, coloured by the error.

import { heading, xAxis, yAxis } from "./axes.js";
import { signedColour } from "./colour.js";
import { canvas, svg, textWidth, setColour } from "./dom.js";
import { number, formatTick } from "./format.js";
import { niceDomain, linear } from "./scale.js";

/** @typedef {{ title: string, x: string, points: [number, number][], scale: number }} Points */

/**
 * @param {Points} spec @param {number} width
 * @returns {import("./explore.js").Drawn}
 */
export function points(spec, width) {
  const domain = niceDomain(spec.points.flat());
  const left = 14 + Math.max(...linear(domain, [0, 1]).ticks.map((t) => textWidth(formatTick(t, "number"), 12)));
  const half = textWidth(formatTick(domain[1], "number"), 12) / 2; // half of the last tick label, which is centred
  const side = Math.min(width - left - Math.max(12, half), 520);
  const x = linear(domain, [left, left + side], side / 90);
  const y = linear(domain, [34 + side, 34]);
  const [low, high] = domain;
  const sorted = [...spec.points].sort((a, b) => a[0] - b[0]);
  const drawing = canvas(
    width,
    side + 80,
    heading(spec.title),
    yAxis(y, left, left + side, "number"),
    xAxis(x, 34 + side, spec.x, "number"),
    svg("line", { class: "mark", x1: x(low), y1: y(low), x2: x(high), y2: y(high) }),
    svg("text", { class: "tick", x: x(high) - 14, y: y(high) + 6, "text-anchor": "end" }, "exact"),
    ...sorted.map(([actual, predicted]) => {
      const dot = svg("circle", { class: "point", cx: x(actual), cy: y(predicted), r: sorted.length > 500 ? 2.5 : 3.5 });
      return setColour(dot, signedColour((predicted - actual) / spec.scale));
    }),
  );
  const targets = sorted.map(([actual, predicted]) => ({
    box: [x(actual) - 5, y(predicted) - 5, 10, 10],
    tip: [`actual ${number(actual)}`, `predicted ${number(predicted)}`, `error ${predicted > actual ? "+" : ""}${number(predicted - actual)}`],
  }));
  return { svg: drawing, targets, columns: 1 };
}
