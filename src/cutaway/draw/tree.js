// Blocks within blocks: one line each, with bars; a click opens a line to what is within, down to words.

import { heading } from "./axes.js";
import { canvas, shorten, svg, textWidth } from "./dom.js";
import { wrapped } from "./figure.js";
import { written } from "./format.js";

/**
 * `full` names a line among all. A line has lines `inside`, or `words` that say how its numbers come about; one that
 * stands for several that are alike says for how many `times`. `open` are the lines that are open to begin with.
 * @typedef {{ name: string, full: string, note: string, cells: (number | null)[], inside?: Line[], words?: string[],
 *   times?: number }} Line
 * @typedef {{ title: string, columns: { name: string, format: string }[], rows: Line[], open: string[] }} Tree
 * @typedef {{ open?: string[] }} State
 */

const HIGH = 24; // pixels of a line
const LOW = 17; // of a line of words
const TOP = 56;
const STEP = 16; // by which what is within is moved in
const MARK = 16; // for the triangle
const LEAST = 112; // pixels of a column beside the names; where there are fewer, columns go below them

/**
 * @param {Tree} spec @param {number} width @param {State} [state]
 * @returns {import("./explore.js").Drawn}
 */
export function tree(spec, width, state = {}) {
  const open = state.open ?? spec.open;
  const lines = flat(spec.rows, open, 0);
  const names = Math.max(0, ...lines.map(({ line, depth }) => depth * STEP + textWidth(line.name))) + MARK + 14;
  const notes = Math.max(0, ...lines.map(({ line }) => textWidth(line.note, 12))) + 20;
  const beside = width - names - notes >= LEAST * spec.columns.length;
  const left = beside ? names + notes : 0;
  const each = (width - left) / spec.columns.length;
  const scales = spec.columns.map((_, k) => {
    const shut = lines.filter(({ line }) => !open.includes(line.full) || !line.inside);
    return Math.max(...shut.map(({ line }) => line.cells[k] ?? 0)) || 1;
  });

  const size = spec.columns.every(({ name }) => textWidth(name, 12, 600) <= each - 8) ? 12 : 10.5;
  /** @type {(SVGElement | null)[]} */
  const marks = spec.columns.map((column, k) => {
    const place = { x: left + k * each, y: TOP - 18, "font-size": size };
    return svg("text", { class: "tick strong", ...place }, shorten(column.name, each - 4, size, 600));
  });
  /** @type {import("./explore.js").Target[]} */
  const targets = [];
  let y = TOP;
  for (const { line, depth } of lines) {
    const shown = open.includes(line.full);
    const x = depth * STEP;
    const high = beside ? HIGH : 2 * HIGH - 6;
    const room = (beside ? names - 10 : width) - x - MARK;
    const told = beside ? shorten(line.note, notes - 16, 12) : "";
    marks.push(
      svg("path", { class: "fold", d: shown ? down(x, y + HIGH / 2) : right(x, y + HIGH / 2) }),
      svg("text", { class: line.inside ? "name label" : "name", x: x + MARK, y: y + HIGH / 2 + 4 }, shorten(line.name, room)),
      beside
        ? svg("text", { class: "tick", x: names, y: y + HIGH / 2 + 4 }, told)
        : below(line.note, x + MARK + Math.min(room, textWidth(line.name, 13, 600)) + 10, y + HIGH / 2 + 4, width),
    );
    const bars = beside ? y : y + HIGH - 6;
    spec.columns.forEach((column, k) => {
      marks.push(...cell(line, column.format, k, left + k * each, bars, each - 14, scales[k], shown));
    });
    targets.push({
      box: [0, y, width, high],
      tip: tipOf(line, spec.columns, shown),
      set: { open: shown ? open.filter((name) => name !== line.full) : [...open, line.full] },
      key: line.full,
    });
    y += high;
    for (const words of shown ? (line.words ?? []) : []) {
      for (const part of wrapped(words, width - x - MARK - 8, 12)) {
        marks.push(svg("text", { class: "tick", x: x + MARK, y: y + LOW - 5 }, part));
        y += LOW;
      }
    }
    if (shown && line.words) y += 6;
  }
  return { svg: canvas(width, y + 6, heading(spec.title), ...marks), targets, columns: 1 };
}

/**
 * The lines that are seen, from above to below.
 * @param {Line[]} lines @param {string[]} open @param {number} depth
 * @returns {{ line: Line, depth: number }[]}
 */
export function flat(lines, open, depth) {
  return lines.flatMap((line) => [
    { line, depth },
    ...(line.inside && open.includes(line.full) ? flat(line.inside, open, depth + 1) : []),
  ]);
}

/**
 * One number with its bar; of a block that is open the number alone, as its bar is cut into those within.
 * @param {Line} line @param {string} format @param {number} k @param {number} x @param {number} y
 * @param {number} room @param {number} most @param {boolean} shown
 * @returns {(SVGElement | null)[]}
 */
function cell(line, format, k, x, y, room, most, shown) {
  const value = line.cells[k];
  if (!value) return [value === null ? svg("text", { class: "tick", x, y: y + HIGH / 2 + 4 }, "–") : null];
  const text = written(value, format);
  const whole = shown && line.inside;
  const long = whole ? 0 : Math.max(1, (value / most) * Math.max(8, room - textWidth(text, 12) - 6));
  return [
    whole ? null : svg("rect", { class: "bar", x, y: y + HIGH / 2 - 5, width: long, height: 10, rx: 1 }),
    svg("text", { class: "tick", x: x + (whole ? 0 : long + 6), y: y + HIGH / 2 + 4 }, text),
  ];
}

/** @param {string} text @param {number} x @param {number} y @param {number} width */
function below(text, x, y, width) {
  return width - x < 40 ? null : svg("text", { class: "tick", x, y }, shorten(text, width - x, 12));
}

/** @param {Line} line @param {Tree["columns"]} columns @param {boolean} shown */
function tipOf(line, columns, shown) {
  const numbers = columns.map(({ name, format }, k) => `${name}: ${written(line.cells[k], format)}`);
  const more = shown ? "Enter or a click shuts it" : line.inside ? "Enter or a click opens it" : "Enter or a click shows how";
  return [line.full, line.note, ...(line.times ? [`${line.times} of them`] : []), ...numbers, more];
}

/** A triangle that points to the right. @param {number} x @param {number} y */
function right(x, y) {
  return `M${x + 1} ${y - 4.5}L${x + 8} ${y}L${x + 1} ${y + 4.5}Z`;
}

/** A triangle that points down. @param {number} x @param {number} y */
function down(x, y) {
  return `M${x} ${y - 3}H${x + 9}L${x + 4.5} ${y + 4}Z`;
}
