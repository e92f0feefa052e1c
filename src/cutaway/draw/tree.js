// Tree of nested blocks: one line each, with bars. A click expands a line.

import { heading } from "./axes.js";
import { canvas, shorten, svg, textWidth, wrapText } from "./dom.js";
import { formatValue } from "./format.js";

/**
 * `full`: unique name of a line. A line has child lines `inside`, or `words` that explain its numbers; `times`: number of
 * identical blocks it stands for. `open`: lines expanded at first.
 * @typedef {{ name: string, full: string, note: string, cells: (number | null)[], inside?: Line[], words?: string[],
 *   times?: number }} Line
 * @typedef {{ title: string, columns: { name: string, format: string }[], rows: Line[], open: string[] }} Tree
 * @typedef {{ open?: string[] }} State
 */

const HIGH = 24; // pixels of a line
const LOW = 17; // pixels of a line of text
const TOP = 56;
const STEP = 16; // indentation per level
const MARK = 16; // for the triangle
const LEAST = 112; // minimum pixels of a column next to the names; otherwise columns go below

/**
 * @param {Tree} spec @param {number} width @param {State} [state]
 * @returns {import("./explore.js").Drawn}
 */
export function tree(spec, width, state = {}) {
  const open = state.open ?? spec.open;
  const lines = visibleLines(spec.rows, open, 0);
  const names = Math.max(0, ...lines.map(({ line, depth }) => depth * STEP + textWidth(line.name))) + MARK + 14;
  const notes = Math.max(0, ...lines.map(({ line }) => textWidth(line.note, 12))) + 20;
  const sideBySide = width - names - notes >= LEAST * spec.columns.length;
  const left = sideBySide ? names + notes : 0;
  const each = (width - left) / spec.columns.length;
  const scales = spec.columns.map((_, k) => {
    const closed = lines.filter(({ line }) => !open.includes(line.full) || !line.inside);
    return Math.max(...closed.map(({ line }) => line.cells[k] ?? 0)) || 1;
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
    const high = sideBySide ? HIGH : 2 * HIGH - 6;
    const room = (sideBySide ? names - 10 : width) - x - MARK;
    const note = sideBySide ? shorten(line.note, notes - 16, 12) : "";
    marks.push(
      svg("path", { class: "fold", d: shown ? triangleDown(x, y + HIGH / 2) : triangleRight(x, y + HIGH / 2) }),
      svg("text", { class: line.inside ? "name label" : "name", x: x + MARK, y: y + HIGH / 2 + 4 }, shorten(line.name, room)),
      sideBySide
        ? svg("text", { class: "tick", x: names, y: y + HIGH / 2 + 4 }, note)
        : below(line.note, x + MARK + Math.min(room, textWidth(line.name, 13, 600)) + 10, y + HIGH / 2 + 4, width),
    );
    const bars = sideBySide ? y : y + HIGH - 6;
    spec.columns.forEach((column, k) => {
      marks.push(...cell(line, column.format, k, left + k * each, bars, each - 14, scales[k], shown));
    });
    targets.push({
      box: [0, y, width, high],
      tip: tooltip(line, spec.columns, shown),
      set: { open: shown ? open.filter((name) => name !== line.full) : [...open, line.full] },
      key: line.full,
    });
    y += high;
    for (const words of shown ? (line.words ?? []) : []) {
      for (const part of wrapText(words, width - x - MARK - 8, 12)) {
        marks.push(svg("text", { class: "tick", x: x + MARK, y: y + LOW - 5 }, part));
        y += LOW;
      }
    }
    if (shown && line.words) y += 6;
  }
  return { svg: canvas(width, y + 6, heading(spec.title), ...marks), targets, columns: 1 };
}

/**
 * Return the visible lines from top to bottom.
 * @param {Line[]} lines @param {string[]} open @param {number} depth
 * @returns {{ line: Line, depth: number }[]}
 */
export function visibleLines(lines, open, depth) {
  return lines.flatMap((line) => [
    { line, depth },
    ...(line.inside && open.includes(line.full) ? visibleLines(line.inside, open, depth + 1) : []),
  ]);
}

/**
 * Draw a number with its bar; of an expanded block only the number, as its children have the bars.
 * @param {Line} line @param {string} format @param {number} k @param {number} x @param {number} y
 * @param {number} room @param {number} most @param {boolean} shown
 * @returns {(SVGElement | null)[]}
 */
function cell(line, format, k, x, y, room, most, shown) {
  const value = line.cells[k];
  if (!value) return [value === null ? svg("text", { class: "tick", x, y: y + HIGH / 2 + 4 }, "–") : null];
  const text = formatValue(value, format);
  const isSplit = shown && line.inside;
  const long = isSplit ? 0 : Math.max(1, (value / most) * Math.max(8, room - textWidth(text, 12) - 6));
  return [
    isSplit ? null : svg("rect", { class: "bar", x, y: y + HIGH / 2 - 5, width: long, height: 10, rx: 1 }),
    svg("text", { class: "tick", x: x + (isSplit ? 0 : long + 6), y: y + HIGH / 2 + 4 }, text),
  ];
}

/** @param {string} text @param {number} x @param {number} y @param {number} width */
function below(text, x, y, width) {
  return width - x < 40 ? null : svg("text", { class: "tick", x, y }, shorten(text, width - x, 12));
}

/** @param {Line} line @param {Tree["columns"]} columns @param {boolean} shown */
function tooltip(line, columns, shown) {
  const numbers = columns.map(({ name, format }, k) => `${name}: ${formatValue(line.cells[k], format)}`);
  const more = shown ? "Press Enter or click to collapse" : line.inside ? "Press Enter or click to expand" : "Press Enter or click for the calculation";
  return [line.full, line.note, ...(line.times ? [`${line.times} identical blocks`] : []), ...numbers, more];
}

/** A triangle that points to the right. @param {number} x @param {number} y */
function triangleRight(x, y) {
  return `M${x + 1} ${y - 4.5}L${x + 8} ${y}L${x + 1} ${y + 4.5}Z`;
}

/** A triangle that points down. @param {number} x @param {number} y */
function triangleDown(x, y) {
  return `M${x} ${y - 3}H${x + 9}L${x + 4.5} ${y + 4}Z`;
}
