// Scatter plot with linear, logarithmic or categorical axes, and optional steps such as a Pareto front.

import { heading, xAxis, yAxis } from "./axes.js";
import { canvas, shorten, svg, textWidth, setColour } from "./dom.js";
import { formatTick, formatValue } from "./format.js";
import { niceDomain, linear, logarithmic, ticks } from "./scale.js";
import { marker } from "./marker.js";

/**
 * `categories`: names indexed by x. `steps`: points joined by steps from left to right, the last level extended to the
 * right edge; `steps_name`: their label. `chosen`: index of the dot with a ring and a name. The `name` of any dot is
 * shown next to it if there is room.
 * @typedef {{ x: number, y: number, group: number, tip: string[], name?: string }} Dot
 * @typedef {{ title: string, x: string, x_format: string, y: string, format: string, log_x: boolean, dots: Dot[],
 *   groups: string[], categories?: string[], steps?: [number, number][], steps_name?: string, chosen?: number | null, name?: string }} Dots
 * @typedef {import("./scale.js").Scale} Scale
 */

const BELOW = 46; // pixels for the x axis
const LINE = 18; // pixels of a line of the legend
const R = 4.5;

/**
 * @param {Dots} spec @param {number} width
 * @returns {import("./explore.js").Drawn}
 */
export function dots(spec, width) {
  const { dots: all, categories } = spec;
  const chart = Math.round(Math.max(230, Math.min(width * 0.6, 380)));
  const bottom = chart - BELOW;
  const most = spec.format === "fraction" ? 1 : Infinity;
  const y = linear(niceDomain(all.map((dot) => dot.y), { most }), [bottom - 8, 58]);
  const left = 14 + Math.max(...y.ticks.map((value) => textWidth(formatTick(value, spec.format), 12)));
  const right = width - 14;
  const x = xScale(spec, left + 10, right - 6);
  const stepPoints = spec.steps ?? [];
  const steps = stepPoints.map(([at, value], i) => `${i ? `H${x(at).toFixed(1)}V` : `M${x(at).toFixed(1)} `}${y(value).toFixed(1)}`);
  const chosen = typeof spec.chosen === "number" ? all[spec.chosen] : undefined;
  const key = legend(spec, width, chart);
  const drawing = canvas(
    width,
    key.bottom,
    heading(spec.title),
    svg("text", { class: "tick", x: 0, y: 38 }, `↑ ${spec.y}`),
    yAxis(y, left, right, spec.format),
    categories ? categoryAxis(x, categories, bottom, spec.x) : xAxis(x, bottom, `${spec.x}${spec.log_x ? ", log scale" : ""} →`, spec.x_format),
    stepPoints.length ? svg("path", { class: "curve", d: `${steps.join("")}H${right}` }) : null,
    ...all.map((dot) => {
      const { colour, path } = marker(dot.group, R);
      return setColour(svg("path", { class: "spot", d: path, transform: `translate(${x(dot.x)} ${y(dot.y)})` }), colour);
    }),
    ...(chosen ? ring(x(chosen.x), y(chosen.y), spec.name ?? "", right, bottom) : []),
    ...names(all, stepPoints.map(([at, value]) => [x(at), y(value)]), x, y, [left, right], bottom),
    ...key.parts,
  );
  const order = [...all].sort((a, b) => a.x - b.x || a.y - b.y);
  const targets = order.map((dot) => ({
    box: [x(dot.x) - 6, y(dot.y) - 6, 12, 12],
    tip: [
      ...dot.tip,
      `${spec.x} ${categories ? categories[dot.x] : formatValue(dot.x, spec.x_format)}`,
      `${spec.y} ${formatValue(dot.y, spec.format)}`,
    ],
  }));
  return { svg: drawing, targets, columns: 0 };
}

/**
 * @param {Dots} spec @param {number} from @param {number} to
 * @returns {Scale}
 */
function xScale({ dots: all, categories, log_x: log }, from, to) {
  if (categories) return linear([-0.5, categories.length - 0.5], [from, to]);
  const values = all.map((dot) => dot.x);
  if (log && values.every((value) => value > 0)) {
    const scale = logarithmic(niceDomain(values, { log: true }), [from, to]);
    if (scale.ticks.length < 3) scale.ticks = ticks(scale.domain[0], scale.domain[1], Math.max(2, (to - from) / 110));
    return scale;
  }
  return linear(niceDomain(values), [from, to], Math.max(2, (to - from) / 110));
}

/**
 * Return a horizontal axis with names of categories.
 * @param {Scale} x @param {string[]} categories @param {number} bottom @param {string} name
 */
function categoryAxis(x, categories, bottom, name) {
  const room = Math.abs(x(1) - x(0)) - 6;
  const [from, to] = x.domain.map(x);
  return svg(
    "g",
    {},
    svg("line", { class: "axis", x1: from, x2: to, y1: bottom, y2: bottom }),
    ...categories.map((category, i) =>
      svg("text", { class: "tick", x: x(i), y: bottom + 18, "text-anchor": "middle" }, shorten(category, room, 12)),
    ),
    svg("text", { class: "tick", x: to, y: bottom + 36, "text-anchor": "end" }, name),
  );
}

/**
 * Draw a ring around a dot, with its name on the side that has room.
 * @param {number} x @param {number} y @param {string} name @param {number} right @param {number} bottom
 */
function ring(x, y, name, right, bottom) {
  const before = x + 16 + textWidth(name, 12) > right;
  const place = { x: before ? x - 11 : x + 11, y: y + 20 > bottom ? y - 10 : y + 20, "text-anchor": before ? "end" : "start" };
  return [svg("circle", { class: "ring", cx: x, cy: y, r: R + 4 }), svg("text", { class: "name", ...place }, name)];
}

/**
 * Place the names of dots above, below, right or left, where they cover no dot, step or other name.
 * @param {Dot[]} all @param {number[][]} steps in pixels @param {Scale} x @param {Scale} y @param {number[]} sides @param {number} bottom
 */
function names(all, steps, x, y, [left, right], bottom) {
  const occupied = all.map((dot) => [x(dot.x) - 8, y(dot.y) - 8, x(dot.x) + 8, y(dot.y) + 8]);
  steps.forEach(([from, level], i) => {
    const [to, next] = steps[i + 1] ?? [right, level];
    occupied.push([from, level - 2, to, level + 2], [to - 2, Math.min(level, next), to + 2, Math.max(level, next)]);
  });
  return all.flatMap((dot) => {
    if (!dot.name) return [];
    const [cx, cy, wide] = [x(dot.x), y(dot.y), textWidth(dot.name, 12)];
    const from = Math.max(left, Math.min(cx - wide / 2, right - wide));
    const starts = [[from, cy - 12], [from, cy + 21], [cx + 12, cy + 4], [cx - 12 - wide, cy + 4]];
    const free = starts.find(([at, base]) => {
      const covers = occupied.some(([a, b, c, d]) => at < c && at + wide > a && base - 10 < d && base + 3 > b);
      return at >= left && at + wide <= right && base + 3 < bottom && !covers;
    });
    if (!free) return [];
    occupied.push([free[0], free[1] - 10, free[0] + wide, free[1] + 3]);
    return [svg("text", { class: "tick", x: free[0], y: free[1] }, dot.name)];
  });
}

/**
 * Return the legend of the markers, if there are several groups, and of the steps.
 * @param {Dots} spec @param {number} width @param {number} top
 */
function legend({ groups, dots: all, steps, steps_name }, width, top) {
  const present = groups.flatMap((name, group) => (all.some((dot) => dot.group === group) ? [{ name, group }] : []));
  /** @type {Element[]} */
  const parts = [];
  let [x, y] = [0, top + 14];
  const entries = [...(present.length > 1 ? present : []), ...(steps?.length ? [{ name: steps_name ?? "", group: -1 }] : [])];
  for (const { name, group } of entries) {
    const wide = 24 + textWidth(name, 12) + 18;
    if (x > 0 && x + wide > width) [x, y] = [0, y + LINE];
    if (group < 0) {
      parts.push(svg("path", { class: "curve", d: `M${x} ${y}h8v-5h8` }));
    } else {
      const { colour, path } = marker(group, R);
      parts.push(setColour(svg("path", { class: "spot", d: path, transform: `translate(${x + 7} ${y - 4})` }), colour));
    }
    parts.push(svg("text", { class: "tick", x: x + 22, y }, name));
    x += wide;
  }
  return { parts, bottom: entries.length ? y + 10 : top };
}
