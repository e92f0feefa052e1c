// One dot for each example, what was said over what it was, coloured by the sign of the error.

import { heading, xAxis, yAxis } from "./axes.js";
import { signed } from "./colour.js";
import { canvas, svg, textWidth, tint } from "./dom.js";
import { number, tick } from "./format.js";
import { around, linear } from "./scale.js";

/** @typedef {{ title: string, x: string, points: [number, number][], scale: number }} Points */

/**
 * @param {Points} spec @param {number} width
 * @returns {import("./explore.js").Drawn}
 */
export function points(spec, width) {
  const domain = around(spec.points.flat());
  const left = 14 + Math.max(...linear(domain, [0, 1]).ticks.map((t) => textWidth(tick(t, "number"), 12)));
  const half = textWidth(tick(domain[1], "number"), 12) / 2; // of the last number, which stands in the middle
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
    ...sorted.map(([was, said]) => {
      const dot = svg("circle", { class: "point", cx: x(was), cy: y(said), r: sorted.length > 500 ? 2.5 : 3.5 });
      return tint(dot, signed((said - was) / spec.scale));
    }),
  );
  const targets = sorted.map(([was, said]) => ({
    box: [x(was) - 5, y(said) - 5, 10, 10],
    tip: [`actual ${number(was)}`, `predicted ${number(said)}`, `error ${said > was ? "+" : ""}${number(said - was)}`],
  }));
  return { svg: drawing, targets, columns: 1 };
}
