// Curves over a common x, each named where it ends.

import { heading, xAxis, yAxis } from "./axes.js";
import { canvas, svg, textWidth } from "./dom.js";
import { written } from "./format.js";
import { apart, around, linear, logarithmic } from "./scale.js";

/**
 * @typedef {{ name: string, part: string, points: [number, number | null][] }} Series
 * @typedef {{ title: string, x: string, format: string, log: boolean, zero: boolean, series: Series[],
 *   mark: { x: number, label: string } | null }} Lines
 */

/**
 * @param {Lines} spec @param {number} width
 * @returns {import("./explore.js").Drawn}
 */
export function lines(spec, width) {
  const height = Math.round(Math.max(210, Math.min(width * 0.62, 360)));
  const values = spec.series.flatMap((s) => s.points.map((point) => point[1])).filter((value) => value !== null);
  const most = spec.format === "share" ? 1 : Infinity;
  const domain = around(spec.zero ? [0, ...values] : values, { log: spec.log, most });
  const span = [height - 46, 46];
  const y = spec.log ? logarithmic(domain, span) : linear(domain, span);
  const left = 14 + Math.max(...y.ticks.map((t) => textWidth(written(t, spec.format), 12)));
  const right = width - 10 - Math.max(...spec.series.map((s) => textWidth(s.name, 13, 600)));
  const xs = spec.series[0].points.map(([at]) => at); // those of all series
  const [first, last] = [Math.min(...xs), Math.max(...xs)];
  const x = linear([first, last > first ? last : first + 1], [left, right], Math.min(last - first, right / 80) || 1);
  x.ticks = x.ticks.filter((t) => Number.isInteger(t) && t <= last);

  const ends = spec.series
    .flatMap((series) => {
      const last = series.points.findLast((point) => point[1] !== null);
      return last ? [{ series, x: x(last[0]), y: y(Number(last[1])) }] : [];
    })
    .sort((a, b) => a.y - b.y);
  const places = apart(ends.map((end) => end.y), ends.map(() => 16), 30, height - 40);
  const drawing = canvas(
    width,
    height,
    heading(spec.title + (spec.log ? ", log scale" : "")),
    yAxis(y, left, right, spec.format),
    xAxis(x, height - 46, spec.x, "count"),
    spec.mark && mark(spec.mark.label, x(spec.mark.x), right, height - 46),
    ...spec.series.flatMap((s) => curve(s, x, y)),
    ...ends.map((end, i) =>
      svg("text", { class: `label part-${end.series.part}`, x: end.x + 8, y: places[i] + 4 }, end.series.name),
    ),
  );
  const targets = xs.map((at, i) => ({
    box: [x(at), 40, 0, height - 86],
    tip: [
      `${spec.x} ${at}`,
      ...spec.series.map((s) => `${s.name || spec.title} ${written(s.points[i][1], spec.format)}`),
    ],
  }));
  return { svg: drawing, targets, columns: 1 };
}

/**
 * One curve, broken where a value is missing; with dots where they are few enough to be seen as such.
 * @param {Series} series
 * @param {import("./scale.js").Scale} x @param {import("./scale.js").Scale} y
 */
function curve({ part, points }, x, y) {
  let path = "";
  let drawing = false;
  for (const [at, value] of points) {
    if (value !== null) path += `${drawing ? "L" : "M"}${x(at).toFixed(1)} ${y(value).toFixed(1)}`;
    drawing = value !== null;
  }
  const dots = points.length > 24 ? [] : points.flatMap(([at, v]) => (v === null ? [] : [[x(at), y(v)]]));
  return [
    svg("path", { class: `curve part-${part}`, d: path }),
    ...dots.map(([cx, cy]) => svg("circle", { class: `dot part-${part}`, cx, cy, r: 2.5 })),
  ];
}

/**
 * A dashed line at a place that has a name.
 * @param {string} label @param {number} x @param {number} right where there is no more room for words
 * @param {number} bottom
 */
function mark(label, x, right, bottom) {
  const before = x + 6 + textWidth(label, 12) > right;
  return svg(
    "g",
    {},
    svg("line", { class: "mark", x1: x, x2: x, y1: 30, y2: bottom }),
    svg("text", { class: "tick", x: before ? x - 6 : x + 6, y: 36, "text-anchor": before ? "end" : "start" }, label),
  );
}
