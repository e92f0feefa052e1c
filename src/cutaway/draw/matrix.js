// Heatmap with labelled rows and columns. Hovering a value highlights its row and column.

import { heading } from "./axes.js";
import { valueColour, textColour, colourRange } from "./colour.js";
import { canvas, shorten, svg, textWidth, setColour } from "./dom.js";
import { formatTick, formatValue } from "./format.js";
import { COLOUR_BAR_HEIGHT, colourBar } from "./colour_bar.js";
import { hatching, heatmap } from "./raster.js";

/**
 * @typedef {{ title: string, rows: string[], columns: string[], values: (number | null)[][],
 *   scale: "signed" | "amount", format?: "number" | "fraction" | "count", low?: number, high?: number, row_name: string,
 *   column_name: string, note?: string }} Matrix
 */

const CELLS = 900; // up to this number, cells are drawn separately; more become one image
const MOST = 4096; // up to this number, the keyboard moves by cells; otherwise by rows
const LINE = 14; // pixels of a label

/**
 * @param {Matrix} spec @param {number} width @param {{ row?: number, column?: number }} [state]
 * @returns {import("./explore.js").Drawn}
 */
export function matrix(spec, width, state = {}) {
  const { rows, columns, values, title } = spec;
  const format = spec.format ?? "number";
  const own = colourRange([values], spec.scale);
  const range = { ...own, low: spec.low ?? own.low, high: spec.high ?? own.high };
  const [n, m] = [rows.length, columns.length];

  const longest = (/** @type {string[]} */ names) => Math.max(0, ...names.map((name) => textWidth(name, 12)));
  const most = Math.min(width * 0.3, 160);
  const room = Math.max(Math.min(longest(rows), most), Math.min(textWidth(`${spec.row_name} ↓`, 12, 600), most));
  const left = room + 12;
  const texts = n * m <= CELLS ? values.map((row) => row.map((value) => shortNumber(value, format))) : [];
  const needed = longest(texts.flat()) + 8;
  const wide = Math.min((width - left) / m, Math.max(needed, 400 / m, 22), 72);
  const high = Math.min(Math.max(wide, m > n ? 22 : 0), Math.max(20, 640 / n), wide > 40 ? 32 : wide * 1.4);
  const upright = longest(columns) > wide - 6; // names wider than a column are rotated
  const above = Math.min(longest(columns), most);
  const top = 50 + (upright ? above : 14);
  const [namedRows, namedColumns] = [labelStep(LINE / high), labelStep(upright ? LINE / wide : 1)];

  const place = { x: left, y: top, width: m * wide, height: n * high };
  const single = n * m <= CELLS && wide > 5;
  const body = single ? cells(spec, range, place, texts, needed - 6 <= wide && high >= 15) : [heatmap(values, range, place)];
  const at = state.row !== undefined || state.column !== undefined;
  const strong = (/** @type {boolean} */ on) => (on ? "tick strong" : "tick");
  const names = [
    ...rows.map((name, i) => {
      if (i % namedRows && i !== state.row) return null;
      const attributes = { class: strong(i === state.row), x: left - 8, y: top + (i + 0.5) * high + 4, "text-anchor": "end" };
      return svg("text", attributes, shorten(name, room, 12));
    }),
    ...columns.map((name, j) => {
      if (j % namedColumns && j !== state.column) return null;
      const middle = left + (j + 0.5) * wide;
      const where = upright
        ? { transform: `translate(${middle + 4} ${top - 6}) rotate(-90)` }
        : { x: middle, y: top - 6, "text-anchor": "middle" };
      return svg("text", { class: strong(j === state.column), ...where }, shorten(name, upright ? above : wide - 2, 12));
    }),
  ];
  const marks = at ? highlight(place, wide, high, state) : [];
  const end = top + n * high + 18;
  const drawing = canvas(
    width,
    end + COLOUR_BAR_HEIGHT + (spec.note ? 20 : 0),
    heading(title),
    svg("text", { class: "tick strong", x: left, y: 38 }, `${spec.column_name} →`),
    svg("text", { class: "tick strong", x: 0, y: upright ? top - 8 : 38 }, shorten(`${spec.row_name} ↓`, room, 12, 600)),
    ...body,
    ...names,
    ...marks,
    colourBar(left, end, Math.max(80, Math.min(220, width - left)), range, format),
  );
  const cell = (/** @type {number} */ i, /** @type {number} */ j) => ({
    box: [left + j * wide, top + i * high, wide, high],
    get tip() {
      return [formatCell(values[i]?.[j], format), `${spec.row_name}: ${rows[i]}`, `${spec.column_name}: ${columns[j]}`];
    },
    hover: { row: i, column: j },
    key: `${i},${j}`,
  });
  if (n * m <= MOST) {
    const targets = rows.flatMap((_, i) => columns.map((_, j) => cell(i, j)));
    return { svg: drawing, targets, columns: m };
  }
  const targets = rows.map((name, i) => ({
    box: [left, top + i * high, m * wide, high],
    get tip() {
      return [`${spec.row_name}: ${name}`, ...topValues(spec, i, format)];
    },
    hover: { row: i },
    key: `${i}`,
    at: (/** @type {number} */ x, /** @type {number} */ y) => {
      const [row, column] = [Math.floor((y - top) / high), Math.floor((x - left) / wide)];
      return row >= 0 && column >= 0 && row < n && column < m ? cell(row, column) : null;
    },
  }));
  return { svg: drawing, targets, columns: 1 };
}

/**
 * Draw the cells separately, with their values if they fit.
 * @param {Matrix} spec @param {import("./colour.js").Range} range @param {import("./raster.js").Place} place
 * @param {string[][]} texts @param {boolean} fit
 */
function cells({ values, rows, columns }, range, place, texts, fit) {
  const [wide, high] = [place.width / columns.length, place.height / rows.length];
  const gap = Math.min(wide, high) > 8 ? 1 : 0;
  return values.flatMap((row, i) =>
    row.flatMap((value, j) => {
      const shape = { x: place.x + j * wide, y: place.y + i * high, width: wide - gap, height: high - gap };
      if (typeof value !== "number") return [svg("rect", { class: "mat", ...shape }), hatching(shape)];
      const colour = valueColour(value, range);
      const cell = setColour(svg("rect", shape), colour);
      if (!fit) return [cell];
      const where = { x: shape.x + shape.width / 2, y: shape.y + shape.height / 2 + 4, "text-anchor": "middle" };
      return [cell, setColour(svg("text", { class: "cell", ...where }, texts[i][j]), textColour(colour))];
    }),
  );
}

/**
 * Return the step between labelled rows or columns, so that labels do not overlap.
 * @param {number} crowd
 */
function labelStep(crowd) {
  return [1, 2, 5, 10, 20, 50, 100, 200, 500].find((step) => step >= crowd) ?? 1000;
}

/**
 * Draw outlines around the hovered row and column.
 * @param {import("./raster.js").Place} place @param {number} wide @param {number} high
 * @param {{ row?: number, column?: number }} state
 */
function highlight(place, wide, high, { row, column }) {
  return [
    row === undefined
      ? null
      : svg("rect", { class: "chosen", x: place.x, y: place.y + row * high, width: place.width, height: high }),
    column === undefined
      ? null
      : svg("rect", { class: "chosen", x: place.x + column * wide, y: place.y, width: wide, height: place.height }),
  ];
}

/**
 * Return the largest values of a row, for keyboard navigation by rows.
 * @param {Matrix} spec @param {number} i @param {string} format
 */
function topValues({ values, columns }, i, format) {
  const known = values[i].map((value, j) => ({ value, j })).filter(({ value }) => typeof value === "number");
  known.sort((a, b) => Math.abs(Number(b.value)) - Math.abs(Number(a.value)));
  return known.slice(0, 3).map(({ value, j }) => `${columns[j]}: ${formatCell(value, format)}`);
}

/** @param {number | null | undefined} value @param {string} format */
function formatCell(value, format) {
  return typeof value === "number" ? formatValue(value, format) : "no value";
}

/** @param {number | null} value @param {string} format @returns a short text for a cell */
function shortNumber(value, format) {
  if (typeof value !== "number") return "";
  if (format === "fraction") return value !== 0 && value < 0.005 ? "<1" : String(Math.round(100 * value));
  return formatTick(Number(value.toPrecision(2)), format);
}
