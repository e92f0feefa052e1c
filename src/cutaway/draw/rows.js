// Named rows with numbers in columns: bars, signed bars, or dots with intervals.

import { heading, tickAnchor } from "./axes.js";
import { signedColour } from "./colour.js";
import { canvas, shorten, svg, textWidth, setColour } from "./dom.js";
import { formatTick, formatValue } from "./format.js";
import { linear } from "./scale.js";

/**
 * @typedef {{ value: number | null, low?: number | null, high?: number | null }} Cell
 * @typedef {{ name: string, format: string, mark: "bar" | "signed" | "dot", split?: string, domain?: number[] }} Column
 * @typedef {{ label: string, note?: string, cells: Cell[], tip: string[] }} Row
 * @typedef {{ title: string, columns: Column[], rows: Row[] }} Rows
 */

const HIGH = 22; // pixels of a row
const TOP = 60;
const END = { "text-anchor": "end" };

/**
 * @param {Rows} spec @param {number} width
 * @returns {import("./explore.js").Drawn}
 */
export function rows(spec, width) {
  const widest = (/** @type {string[]} */ texts) => Math.max(0, ...texts.map((t) => textWidth(t)));
  const most = width * (spec.columns.length === 1 ? 0.55 : 0.34);
  const label = Math.min(widest(spec.rows.map((r) => r.label)), most) + 14;
  const noteWidth = widest(spec.rows.map((r) => r.note ?? "")) + 18;
  const note = (width - label - noteWidth) / spec.columns.length > 110 ? noteWidth : 0; // notes are omitted if there is no room
  const each = (width - label - note) / spec.columns.length;
  const left = (/** @type {number} */ k) => label + note + k * each;

  const bodies = spec.columns.flatMap((column, k) => {
    const cells = spec.rows.map((row) => row.cells[k]);
    const draw = { bar: bars, signed: signedBars, dot: dots }[column.mark];
    return [
      ...headerLines(column.name, each - 8).map((line, i) =>
        svg("text", { class: "tick strong", x: left(k), y: TOP - 22 + 14 * i }, line),
      ),
      ...draw(column, cells, left(k), each - 28),
    ];
  });
  const names = spec.rows.flatMap((row, i) => [
    svg("text", { class: "name", x: 0, y: rowCentre(i) + 4 }, shorten(row.label, label - 10)),
    note && row.note ? svg("text", { class: "tick", x: label + note - 18, y: rowCentre(i) + 4, ...END }, row.note) : null,
  ]);
  const targets = spec.rows.map((row, i) => ({
    box: [0, TOP + i * HIGH, width, HIGH],
    tip: row.tip,
  }));
  const height = TOP + spec.rows.length * HIGH + 6;
  return { svg: canvas(width, height, heading(spec.title), ...names, ...bodies), targets, columns: 1 };
}

/**
 * Return the name of a column, on up to two truncated lines.
 * @param {string} name @param {number} room
 * @returns {string[]}
 */
function headerLines(name, room) {
  const lines = textWidth(name, 12, 600) > room ? name.split(" · ") : [name];
  return lines.slice(0, 2).map((line) => shorten(line, room, 12, 600));
}

/** @param {number} i */
function rowCentre(i) {
  return TOP + (i + 0.5) * HIGH;
}

/**
 * Draw bars from zero, each followed by its number.
 * @param {Column} column @param {Cell[]} cells @param {number} left @param {number} width
 * @returns {(SVGElement | null)[]}
 */
function bars(column, cells, left, width) {
  const text = cells.map((c) => formatValue(c.value, column.format));
  const most = Math.max(...cells.map((c) => c.value ?? 0)) || 1;
  const room = Math.max(10, width - 8 - Math.max(...text.map((t) => textWidth(t, 12))));
  return cells.flatMap(({ value }, i) => {
    const long = Math.max(1, ((value ?? 0) / most) * room);
    return [
      value ? svg("rect", { class: "bar", x: left, y: rowCentre(i) - 5, width: long, height: 10, rx: 1 }) : null,
      svg("text", { class: "tick", x: left + (value ? long + 6 : 0), y: rowCentre(i) + 4 }, text[i]),
    ];
  });
}

/**
 * Draw bars to both sides of zero, with right-aligned numbers.
 * @param {Column} column @param {Cell[]} cells @param {number} left @param {number} width
 * @returns {(SVGElement | null)[]}
 */
function signedBars(column, cells, left, width) {
  const text = cells.map((c) => formatValue(c.value, column.format));
  const room = Math.max(0, ...text.map((t) => textWidth(t, 12))) + 10;
  const values = cells.map((c) => c.value ?? 0);
  const [low, high] = [Math.min(0, ...values), Math.max(0, ...values)];
  const x = linear([low, high > low ? high : low + 1], [left + 2, left + Math.max(14, width - room)]);
  const bottom = TOP + cells.length * HIGH;
  const bar = (/** @type {number} */ value, /** @type {number} */ i) => {
    const from = Math.min(x(0), x(value));
    const shape = { x: from, y: rowCentre(i) - 5, width: Math.max(1, Math.abs(x(value) - x(0))), height: 10, rx: 1 };
    return setColour(svg("rect", shape), signedColour(value < 0 ? -1 : 1));
  };
  return [
    svg("line", { class: "grid", x1: x(0), x2: x(0), y1: TOP, y2: bottom }),
    ...cells.flatMap(({ value }, i) => [
      value ? bar(value, i) : null,
      svg("text", { class: "tick", x: left + width, y: rowCentre(i) + 4, ...END }, text[i]),
    ]),
  ];
}

/**
 * Draw dots with intervals on a common scale.
 * @param {Column} column @param {Cell[]} cells @param {number} left @param {number} width
 * @returns {(SVGElement | null)[]}
 */
function dots(column, cells, left, width) {
  const room = width > 180 ? 64 : 0; // pixels for the numbers after the scale
  const x = linear(column.domain ?? [0, 1], [left + 4, left + width - room - 4], (width - room) / 90);
  const bottom = TOP + cells.length * HIGH;
  const ends = x.domain.map((value) => textWidth(formatTick(value, column.format), 12));
  if (x.ticks.length < 2) x.ticks = width - room > ends[0] + ends[1] + 16 ? x.domain : x.domain.slice(1);
  const words = x.ticks.reduce((sum, value) => sum + textWidth(formatTick(value, column.format), 12) + 8, -8);
  if (words > width - room - 8) x.ticks = x.ticks.slice(-1);
  const grid = x.ticks.flatMap((value) => [
    svg("line", { class: "grid", x1: x(value), x2: x(value), y1: TOP, y2: bottom }),
    svg("text", { class: "tick", x: x(value), y: TOP - 5, ...tickAnchor(value, x) }, formatTick(value, column.format)),
  ]);
  const marks = cells.flatMap(({ value, low, high }, i) => {
    const y = rowCentre(i);
    if (value === null) return [svg("text", { class: "tick", x: left + 4, y: y + 4 }, "no examples")];
    const known = low !== null && low !== undefined && high !== null && high !== undefined;
    return [
      known ? svg("line", { class: `interval split-${column.split}`, x1: x(low), x2: x(high), y1: y, y2: y }) : null,
      svg("circle", { class: `dot split-${column.split}`, cx: x(value), cy: y, r: 4 }),
      room ? svg("text", { class: "tick", x: left + width, y: y + 4, ...END }, formatValue(value, column.format)) : null,
    ];
  });
  return [...grid, ...marks];
}
