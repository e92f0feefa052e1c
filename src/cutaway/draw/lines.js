// Line chart: curves over a common x axis, labelled at their ends, or in a legend below if there are many.

import { heading, xAxis, yAxis } from "./axes.js";
import { categoryColour, dashPattern } from "./colour.js";
import { canvas, shorten, svg, textWidth, setColour } from "./dom.js";
import { number, formatTick, formatValue } from "./format.js";
import { spreadOut, niceDomain, linear, logarithmic } from "./scale.js";

/**
 * @typedef {{ name: string, split?: string, dots?: boolean, fill?: boolean, points: [number, number | null][] }} Series
 *   `fill`: shade the area between the curve and y = 0; `split`: train, val or test, which have fixed colours; other series are coloured by their index
 * @typedef {{ title: string, x: string, x_format?: string, format: string, log: boolean, log_x?: boolean, zero: boolean,
 *   series: Series[], mark: { x: number, label: string } | null, ring?: Ring }} Lines
 * @typedef {{ x: number, y: number, label: string, left?: boolean }} Ring a highlighted point, its label to the
 *   right unless `left`
 * @typedef {import("./scale.js").Scale} Scale
 */

const BELOW = 46; // pixels for the x axis
const LINE = 16; // pixels of a label
const SAMPLE = 22; // pixels of a line sample in the legend
const SHORT = 16; // pixels of a line sample at the end of a curve
const MAX_TIP_SERIES = 12; // series in one tooltip

/**
 * @param {Lines} spec @param {number} width
 * @returns {import("./explore.js").Drawn}
 */
export function lines(spec, width) {
  const chart = Math.round(Math.max(210, Math.min(width * 0.62, 360)));
  const series = spec.log_x ? spec.series.map(positive) : spec.series;
  const values = series.flatMap((s) => s.points.map((point) => point[1])).filter((value) => value !== null);
  const most = spec.format === "fraction" ? 1 : Infinity;
  const domain = niceDomain(spec.zero ? [0, ...values] : values, { log: spec.log, most });
  const span = [chart - BELOW, 46];
  const y = spec.log ? logarithmic(domain, span) : linear(domain, span);
  const left = 14 + Math.max(...y.ticks.map((t) => textWidth(formatValue(t, spec.format), 12)));
  const names = Math.max(0, ...series.map((s) => textWidth(s.name, 13, 600) + (s.split === undefined ? SHORT + 6 : 0)));
  const named = series.filter((s) => s.name !== "").length;
  const below = named > 1 && (named * LINE > chart - 76 || names > Math.max(120, width * 0.3));
  const right = width - 10 - (below ? 8 : names);
  const xs = [...new Set(series.flatMap((s) => s.points.map(([at]) => at)))].sort((a, b) => a - b);
  const x = spec.log_x ? logScale(xs, left, right) : linearScale(xs, left, right);

  const ends = (below ? [] : series.map((one, i) => ({ one, i })))
    .flatMap(({ one, i }) => {
      const last = one.points.findLast((point) => point[1] !== null);
      return last ? [{ one, i, x: x(last[0]), y: y(Number(last[1])) }] : [];
    })
    .sort((a, b) => a.y - b.y);
  const places = spreadOut(ends.map((end) => end.y), ends.map(() => LINE), 30, chart - 40);
  const legend = below ? namesBelow(series, chart + 12, width, names) : { parts: [], height: 0 };
  const logged = [spec.log && "log scale", spec.log_x && `log ${spec.x}`].filter(Boolean).join(", ");
  const drawing = canvas(
    width,
    chart + legend.height,
    heading(spec.title + (logged ? `, ${logged}` : "")),
    yAxis(y, left, right, spec.format),
    xAxis(x, chart - BELOW, spec.x, spec.x_format ?? (xs.every(Number.isInteger) ? "count" : "number")),
    spec.mark && verticalMark(spec.mark.label, x(spec.mark.x), right, chart - BELOW),
    ...series.flatMap((one, i) => curve(one, i, x, y)),
    ...(spec.ring ? drawRing(spec.ring, x(spec.ring.x), y(spec.ring.y), right, chart - BELOW) : []),
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
          `${spec.x} ${spec.x_format ? formatTick(value, spec.x_format) : Number.isInteger(value) ? value : number(value)}`,
          ...here.slice(0, MAX_TIP_SERIES).map(({ s, y }) => `${s.name || spec.title} ${formatValue(y, spec.format)}`),
          ...(here.length > MAX_TIP_SERIES ? [`and ${here.length - MAX_TIP_SERIES} more`] : []),
        ];
      },
      key: String(value),
    };
  });
  return { svg: drawing, targets, columns: 1 };
}

/** @param {Series} series without points that a logarithmic x cannot show @returns {Series} */
function positive(series) {
  return { ...series, points: series.points.filter(([at]) => at > 0) };
}

/**
 * @param {number[]} xs sorted @param {number} left @param {number} right
 * @returns {Scale}
 */
function linearScale(xs, left, right) {
  const [first, last] = [xs[0] ?? 0, xs.at(-1) ?? 1];
  if (!xs.every(Number.isInteger)) return linear([first, last > first ? last : first + 1], [left, right], right / 80);
  const x = linear([first, last > first ? last : first + 1], [left, right], Math.min(last - first, right / 80) || 1);
  x.ticks = x.ticks.filter((t) => Number.isInteger(t) && t <= last);
  return x;
}

/**
 * @param {number[]} xs sorted, above 0 @param {number} left @param {number} right
 * @returns {Scale}
 */
function logScale(xs, left, right) {
  const [first, last] = [xs[0] ?? 1, xs.at(-1) ?? 10];
  return logarithmic([first, last > first ? last : first * 10], [left, right]);
}

/**
 * Set the colour of a series' element: that of its split, or by its index.
 * @template {SVGElement} E
 * @param {E} element @param {Series} series @param {number} i @param {"fill" | "stroke"} what
 * @returns {E}
 */
function setSeriesColour(element, { split }, i, what) {
  if (split !== undefined) return element;
  if (what === "stroke" && dashPattern(i)) element.setAttribute("stroke-dasharray", String(dashPattern(i)));
  return setColour(element, categoryColour(i), what);
}

/**
 * Draw a curve, interrupted at missing values, with dots if there are few points; or only dots.
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
  const known = points.filter((point) => point[1] !== null);
  const area =
    series.fill && known.length > 1
      ? `${path}L${x(known[known.length - 1][0]).toFixed(1)} ${y(0).toFixed(1)}L${x(known[0][0]).toFixed(1)} ${y(0).toFixed(1)}Z`
      : "";
  return [
    ...(area ? [setSeriesColour(svg("path", { class: `area${style}`, d: area }), series, i, "fill")] : []),
    setSeriesColour(svg("path", { class: `curve${style}`, d: path }), series, i, "stroke"),
    ...marks(series, i, points.length > 24 ? [] : points, x, y),
  ];
}

/**
 * Draw a dot at each point.
 * @param {Series} series @param {number} i @param {[number, number | null][]} points @param {Scale} x @param {Scale} y
 */
function marks(series, i, points, x, y) {
  const style = series.split === undefined ? "" : ` split-${series.split}`;
  const found = points.flatMap(([at, v]) => (v === null ? [] : [[x(at), y(v)]]));
  return found.map(([cx, cy]) =>
    setSeriesColour(svg("circle", { class: `dot${style}`, cx, cy, r: series.dots ? 1.5 : 2.5 }), series, i, "fill"),
  );
}

/**
 * Draw the label of a series.
 * @param {Series} series @param {number} i @param {number} x @param {number} y
 */
function label({ name, split }, i, x, y) {
  if (name === "") return [];
  if (split !== undefined) return [svg("text", { class: `label split-${split}`, x, y }, name)];
  return [lineSample({ name, split, points: [] }, i, x, y - 4, SHORT), svg("text", { class: "label", x: x + SHORT + 6, y }, name)];
}

/**
 * Draw a sample of the line of a series.
 * @param {Series} series @param {number} i @param {number} x @param {number} y @param {number} long
 */
function lineSample(series, i, x, y, long) {
  const style = series.split === undefined ? "curve" : `curve split-${series.split}`;
  return setSeriesColour(svg("path", { class: style, d: `M${x + 1} ${y}H${x + long}` }), series, i, "stroke");
}

/**
 * Draw the legend below the chart, in columns.
 * @param {Series[]} series @param {number} top @param {number} width @param {number} widest
 */
function namesBelow(series, top, width, widest) {
  const wide = Math.min(width, SAMPLE + 24 + widest);
  const columns = Math.max(1, Math.floor(width / wide));
  const rows = Math.ceil(series.length / columns);
  const parts = series.flatMap((one, i) => {
    const [x, y] = [Math.floor(i / rows) * wide, top + (i % rows) * LINE];
    return [
      lineSample(one, i, x, y, SAMPLE),
      svg("text", { class: "tick", x: x + SAMPLE + 6, y: y + 4 }, shorten(one.name, wide - SAMPLE - 10, 12)),
    ];
  });
  return { parts, height: rows * LINE + 20 };
}

/**
 * Draw a ring around a point, with its label on the side that has room.
 * @param {Ring} spec @param {number} x @param {number} y @param {number} right @param {number} bottom
 */
function drawRing({ label, left }, x, y, right, bottom) {
  const before = left || x + 14 + textWidth(label, 12) > right;
  const place = { x: before ? x - 10 : x + 10, y: y + 18 > bottom ? y - 8 : y + 18, "text-anchor": before ? "end" : "start" };
  return [svg("circle", { class: "ring", cx: x, cy: y, r: 5 }), svg("text", { class: "name", ...place }, label)];
}

/**
 * Draw a dashed vertical line with a label.
 * @param {string} label @param {number} x @param {number} right end of the chart
 * @param {number} bottom
 */
function verticalMark(label, x, right, bottom) {
  const before = x + 6 + textWidth(label, 12) > right;
  return svg(
    "g",
    {},
    svg("line", { class: "mark", x1: x, x2: x, y1: 30, y2: bottom }),
    svg("text", { class: "tick", x: before ? x - 6 : x + 6, y: 36, "text-anchor": before ? "end" : "start" }, label),
  );
}
