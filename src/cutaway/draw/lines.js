// Curves over a common x, each named where it ends, or below where there are too many for that.

import { heading, xAxis, yAxis } from "./axes.js";
import { category, dash } from "./colour.js";
import { canvas, shorten, svg, textWidth, tint } from "./dom.js";
import { number, tick, written } from "./format.js";
import { apart, around, linear, logarithmic } from "./scale.js";

/**
 * @typedef {{ name: string, split?: string, dots?: boolean, points: [number, number | null][] }} Series
 *   `split`: train, val or test, which have their colours; without it a series has one by its place in the list
 * @typedef {{ title: string, x: string, x_format?: string, format: string, log: boolean, log_x?: boolean, zero: boolean,
 *   series: Series[], mark: { x: number, label: string } | null, ring?: Ring }} Lines
 * @typedef {{ x: number, y: number, label: string, left?: boolean }} Ring a place that is pointed out, its name to the right
 *   of it unless `left`
 * @typedef {import("./scale.js").Scale} Scale
 */

const BELOW = 46; // pixels for the x axis
const LINE = 16; // of a name
const SAMPLE = 22; // of line beside a name below
const SHORT = 16; // of line beside a name at the end
const SAID = 12; // series that one tip tells of

/**
 * @param {Lines} spec @param {number} width
 * @returns {import("./explore.js").Drawn}
 */
export function lines(spec, width) {
  const chart = Math.round(Math.max(210, Math.min(width * 0.62, 360)));
  const series = spec.log_x ? spec.series.map(positive) : spec.series;
  const values = series.flatMap((s) => s.points.map((point) => point[1])).filter((value) => value !== null);
  const most = spec.format === "fraction" ? 1 : Infinity;
  const domain = around(spec.zero ? [0, ...values] : values, { log: spec.log, most });
  const span = [chart - BELOW, 46];
  const y = spec.log ? logarithmic(domain, span) : linear(domain, span);
  const left = 14 + Math.max(...y.ticks.map((t) => textWidth(written(t, spec.format), 12)));
  const names = Math.max(0, ...series.map((s) => textWidth(s.name, 13, 600) + (s.split === undefined ? SHORT + 6 : 0)));
  const named = series.filter((s) => s.name !== "").length;
  const below = named > 1 && (named * LINE > chart - 76 || names > Math.max(120, width * 0.3));
  const right = width - 10 - (below ? 8 : names);
  const xs = [...new Set(series.flatMap((s) => s.points.map(([at]) => at)))].sort((a, b) => a - b);
  const x = spec.log_x ? alongPowers(xs, left, right) : along(xs, left, right);

  const ends = (below ? [] : series.map((one, i) => ({ one, i })))
    .flatMap(({ one, i }) => {
      const last = one.points.findLast((point) => point[1] !== null);
      return last ? [{ one, i, x: x(last[0]), y: y(Number(last[1])) }] : [];
    })
    .sort((a, b) => a.y - b.y);
  const places = apart(ends.map((end) => end.y), ends.map(() => LINE), 30, chart - 40);
  const legend = below ? namesBelow(series, chart + 12, width, names) : { parts: [], height: 0 };
  const logged = [spec.log && "log scale", spec.log_x && `log ${spec.x}`].filter(Boolean).join(", ");
  const drawing = canvas(
    width,
    chart + legend.height,
    heading(spec.title + (logged ? `, ${logged}` : "")),
    yAxis(y, left, right, spec.format),
    xAxis(x, chart - BELOW, spec.x, spec.x_format ?? (xs.every(Number.isInteger) ? "count" : "number")),
    spec.mark && mark(spec.mark.label, x(spec.mark.x), right, chart - BELOW),
    ...series.flatMap((one, i) => curve(one, i, x, y)),
    ...(spec.ring ? ringed(spec.ring, x(spec.ring.x), y(spec.ring.y), right, chart - BELOW) : []),
    ...ends.flatMap((end, k) => label(end.one, end.i, end.x + 8, places[k] + 4)),
    ...legend.parts,
  );
  const at = series.map((s) => new Map(s.points));
  const targets = xs.map((value) => {
    const here = series.flatMap((s, i) => (at[i].has(value) ? [{ s, y: at[i].get(value) }] : []));
    return {
      box: [x(value), 40, 0, chart - 86],
      get tip() {
        return [
          `${spec.x} ${spec.x_format ? tick(value, spec.x_format) : Number.isInteger(value) ? value : number(value)}`,
          ...here.slice(0, SAID).map(({ s, y }) => `${s.name || spec.title} ${written(y, spec.format)}`),
          ...(here.length > SAID ? [`and ${here.length - SAID} more`] : []),
        ];
      },
      key: String(value),
    };
  });
  return { svg: drawing, targets, columns: 1 };
}

/** @param {Series} series without what a logarithmic x has no place for @returns {Series} */
function positive(series) {
  return { ...series, points: series.points.filter(([at]) => at > 0) };
}

/**
 * @param {number[]} xs rising @param {number} left @param {number} right
 * @returns {Scale}
 */
function along(xs, left, right) {
  const [first, last] = [xs[0] ?? 0, xs.at(-1) ?? 1];
  if (!xs.every(Number.isInteger)) return linear([first, last > first ? last : first + 1], [left, right], right / 80);
  const x = linear([first, last > first ? last : first + 1], [left, right], Math.min(last - first, right / 80) || 1);
  x.ticks = x.ticks.filter((t) => Number.isInteger(t) && t <= last);
  return x;
}

/**
 * @param {number[]} xs rising, above 0 @param {number} left @param {number} right
 * @returns {Scale}
 */
function alongPowers(xs, left, right) {
  const [first, last] = [xs[0] ?? 1, xs.at(-1) ?? 10];
  return logarithmic([first, last > first ? last : first * 10], [left, right]);
}

/**
 * A colour for what belongs to a series: that of its split of the data, or one by its place in the list.
 * @template {SVGElement} E
 * @param {E} element @param {Series} series @param {number} i @param {"fill" | "stroke"} what
 * @returns {E}
 */
function coloured(element, { split }, i, what) {
  if (split !== undefined) return element;
  if (what === "stroke" && dash(i)) element.setAttribute("stroke-dasharray", String(dash(i)));
  return tint(element, category(i), what);
}

/**
 * One curve, broken where a value is missing; with dots where they are few enough to be seen as such. Or dots alone.
 * @param {Series} series @param {number} i @param {Scale} x @param {Scale} y
 */
function curve(series, i, x, y) {
  const { split, points } = series;
  if (series.dots) return marks(series, i, points, x, y);
  let path = "";
  let drawing = false;
  for (const [at, value] of points) {
    if (value !== null) path += `${drawing ? "L" : "M"}${x(at).toFixed(1)} ${y(value).toFixed(1)}`;
    drawing = value !== null;
  }
  const style = split === undefined ? "" : ` split-${split}`;
  return [
    coloured(svg("path", { class: `curve${style}`, d: path }), series, i, "stroke"),
    ...marks(series, i, points.length > 24 ? [] : points, x, y),
  ];
}

/**
 * A dot at each point.
 * @param {Series} series @param {number} i @param {[number, number | null][]} points @param {Scale} x @param {Scale} y
 */
function marks(series, i, points, x, y) {
  const style = series.split === undefined ? "" : ` split-${series.split}`;
  const found = points.flatMap(([at, v]) => (v === null ? [] : [[x(at), y(v)]]));
  return found.map(([cx, cy]) =>
    coloured(svg("circle", { class: `dot${style}`, cx, cy, r: series.dots ? 1.5 : 2.5 }), series, i, "fill"),
  );
}

/**
 * The name of a series.
 * @param {Series} series @param {number} i @param {number} x @param {number} y
 */
function label({ name, split }, i, x, y) {
  if (name === "") return [];
  if (split !== undefined) return [svg("text", { class: `label split-${split}`, x, y }, name)];
  return [sample({ name, split, points: [] }, i, x, y - 4, SHORT), svg("text", { class: "label", x: x + SHORT + 6, y }, name)];
}

/**
 * A piece of the line of a series.
 * @param {Series} series @param {number} i @param {number} x @param {number} y @param {number} long
 */
function sample(series, i, x, y, long) {
  const style = series.split === undefined ? "curve" : `curve split-${series.split}`;
  return coloured(svg("path", { class: style, d: `M${x + 1} ${y}H${x + long}` }), series, i, "stroke");
}

/**
 * All names below, in columns, each beside a piece of its line.
 * @param {Series[]} series @param {number} top @param {number} width @param {number} widest
 */
function namesBelow(series, top, width, widest) {
  const wide = Math.min(width, SAMPLE + 24 + widest);
  const columns = Math.max(1, Math.floor(width / wide));
  const rows = Math.ceil(series.length / columns);
  const parts = series.flatMap((one, i) => {
    const [x, y] = [Math.floor(i / rows) * wide, top + (i % rows) * LINE];
    return [
      sample(one, i, x, y, SAMPLE),
      svg("text", { class: "tick", x: x + SAMPLE + 6, y: y + 4 }, shorten(one.name, wide - SAMPLE - 10, 12)),
    ];
  });
  return { parts, height: rows * LINE + 20 };
}

/**
 * A ring around a place, with its name below on the side where there is room.
 * @param {Ring} spec @param {number} x @param {number} y @param {number} right @param {number} bottom
 */
function ringed({ label, left }, x, y, right, bottom) {
  const before = left || x + 14 + textWidth(label, 12) > right;
  const place = { x: before ? x - 10 : x + 10, y: y + 18 > bottom ? y - 8 : y + 18, "text-anchor": before ? "end" : "start" };
  return [svg("circle", { class: "ring", cx: x, cy: y, r: 5 }), svg("text", { class: "name", ...place }, label)];
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
