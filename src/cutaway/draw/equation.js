// Matrix equations: heatmaps with operators between them. Hovering a number highlights its operands: in A · B = C the
// row of A and the column of B.

import { heading } from "./axes.js";
import { valueColour, textColour, colourRange } from "./colour.js";
import { canvas, shorten, svg, textWidth, setColour } from "./dom.js";
import { number } from "./format.js";
import { hatching, heatmap } from "./raster.js";

/**
 * @typedef {{ name: string, values: (number | null)[][], rows?: string[], columns?: string[],
 *   scale: "signed" | "amount", low?: number, high?: number, note?: string }} Part `low` and `high`: ends of its
 *   colour scale, if they differ from those of its values
 * @typedef {{ title: string, parts: (Part | string)[] }} Equation strings are operators: "·", "=", "+", "softmax"
 * @typedef {{ part?: number, row?: number, column?: number }} State the hovered number
 * @typedef {{ part: Part, index: number, x: number, y: number, wide: number, high: number, left: number, top: number,
 *   width: number, height: number, texts: string[][] | null }} Box a part with its position and the size of its cells
 */

const HIGH = 20; // pixels of a cell with its number
const HEAD = 40; // pixels for the name and the note
const GAP = 10;
const SIDE = 260; // maximum pixels of a part without numbers
const CELLS = 400; // up to this number, cells are drawn separately
const TERMS = 6; // written terms of a sum

/**
 * @param {Equation} spec @param {number} width @param {State} [state]
 * @returns {import("./explore.js").Drawn}
 */
export function equation(spec, width, state = {}) {
  const { boxes, signs, height } = layout(spec.parts, width);
  const marks = relatedCells(spec.parts, state);
  const drawing = canvas(
    width,
    height,
    heading(spec.title),
    ...signs.flatMap(({ x, y, text }) => sign(x, y, text)),
    ...boxes.flatMap((box) => drawPart(box, state)),
    ...boxes.flatMap((box) => marks.filter((mark) => mark.part === box.index).map((mark) => outline(box, mark))),
  );
  const targets = boxes.flatMap((box) => {
    const { values } = box.part;
    return values.flatMap((row, i) =>
      row.map((value, j) => ({
        box: [box.x + box.left + j * box.wide, box.y + box.top + i * box.high, box.wide, box.high],
        get tip() {
          return tooltip(spec.parts, box, i, j, value);
        },
        hover: { part: box.index, row: i, column: j },
        key: `${box.index},${i},${j}`,
      })),
    );
  });
  return { svg: drawing, targets, columns: 0 };
}

/**
 * Lay out parts and operators in lines; an operator stays with the part after it.
 * @param {(Part | string)[]} parts @param {number} width
 */
function layout(parts, width) {
  /** @type {{ boxes: Box[], signs: { x: number, text: string }[], width: number }[]} */
  const lines = [];
  let pendingSign = "";
  parts.forEach((part, index) => {
    if (typeof part === "string") {
      pendingSign = pendingSign ? `${pendingSign} ${part}` : part;
      return;
    }
    const sign = pendingSign ? signWidth(pendingSign) : 0;
    const box = measurePart(part, index, width - sign);
    let line = lines.at(-1);
    if (!line || line.width + sign + box.width > width) lines.push((line = { boxes: [], signs: [], width: 0 }));
    if (pendingSign) line.signs.push({ x: line.width, text: pendingSign });
    box.x = line.width + sign;
    line.boxes.push(box);
    line.width = box.x + box.width + GAP;
    pendingSign = "";
  });
  /** @type {{ x: number, y: number, text: string }[]} */
  const signs = [];
  let y = 30;
  for (const line of lines) {
    const head = Math.max(...line.boxes.map((box) => box.top));
    const body = Math.max(...line.boxes.map((box) => box.height - box.top));
    for (const box of line.boxes) box.y = y + head - box.top + (body - box.height + box.top) / 2;
    signs.push(...line.signs.map(({ x, text }) => ({ x, y: y + head + body / 2, text })));
    y += head + body + 26;
  }
  return { boxes: lines.flatMap((line) => line.boxes), signs, height: y };
}

/** Return the width of an operator, with margins. @param {string} sign */
function signWidth(sign) {
  return (sign.length > 2 ? textWidth(sign, 13) + 8 : Math.max(14, textWidth(sign, 22))) + GAP;
}

/**
 * Draw an operator; the name of a function is drawn above an arrow.
 * @param {number} x @param {number} y vertical centre @param {string} text
 */
function sign(x, y, text) {
  if (text === "·") return [svg("circle", { class: "dot", cx: x + 7, cy: y, r: 2.5 })];
  if (text.length <= 2) return [svg("text", { class: "sign", x: x + 2, y: y + 7 }, text)];
  const end = x + textWidth(text, 13) + 8;
  return [
    svg("text", { x: x + 2, y: y - 6 }, text),
    svg("path", { class: "arrow", d: `M${x} ${y + 2}H${end}m-5 -4l5 4l-5 4` }),
  ];
}

/**
 * Compute the size of a part and its cells: with numbers if they fit, otherwise smaller.
 * @param {Part} part @param {number} index @param {number} width available
 * @returns {Box}
 */
function measurePart(part, index, width) {
  const { values, rows, columns } = part;
  const [n, m] = [values.length, values[0]?.length ?? 0];
  const longest = (/** @type {string[]} */ names) => Math.max(0, ...names.map((name) => textWidth(name, 11)));
  let left = rows ? Math.min(longest(rows), 84) + 6 : 0;
  let [texts, needed, fits] = [/** @type {string[][]} */ ([]), 0, false];
  for (const fewer of [0, 1]) {
    if (fits || n * m > CELLS) break;
    texts = formatCells(values, fewer);
    needed = Math.max(26, longest(texts.flat()) + 8);
    fits = left + m * needed <= width;
  }
  const most = Math.max(1, Math.min(SIDE, width - left));
  const small = Math.min(most / m, SIDE / n, HIGH);
  const [wide, high] = fits ? [needed, HIGH] : [Math.max(small, Math.min(most / m, 4)), Math.max(small, Math.min(SIDE / n, 4))];
  if (high < 10) left = 0;
  const long = columns ? longest(columns) : 0;
  const across = long <= wide - 2;
  const top = HEAD + (columns && wide >= 10 ? (across ? 16 : Math.min(long, 60) + 6) : 0);
  const name = Math.max(textWidth(part.name, 13, 600), part.note ? Math.min(textWidth(part.note, 12), 180) : 0);
  const body = left + m * wide;
  return {
    part,
    index,
    x: 0,
    y: 0,
    wide,
    high,
    left,
    top,
    width: Math.min(width, Math.max(body, name)),
    height: top + n * high,
    texts: fits ? texts : null,
  };
}

/**
 * Draw a part: its name and note, the labels of rows and columns, its cells.
 * @param {Box} box @param {State} state
 */
function drawPart(box, state) {
  const { part, x, y, wide, high, left, top, texts } = box;
  const { values, rows, columns } = part;
  const own = colourRange([values], part.scale);
  const range = { ...own, low: part.low ?? own.low, high: part.high ?? own.high };
  const [n, m] = [values.length, values[0]?.length ?? 0];
  const [ox, oy] = [x + left, y + top];
  const here = state.part === box.index;
  const parts = [
    svg("text", { class: "name strong", x, y: y + 12 }, shorten(part.name, Math.max(box.width, 40), 13, 600)),
    svg("text", { class: "tick", x, y: y + 29 }, shorten(part.note ?? `${n} × ${m}`, Math.max(box.width, 60), 12)),
  ];
  if (rows && left > 0) {
    rows.forEach((name, i) => {
      const style = here && state.row === i ? "tick small strong" : "tick small";
      const where = { x: ox - 6, y: oy + (i + 0.5) * high + 4, "text-anchor": "end" };
      parts.push(svg("text", { class: style, ...where }, shorten(name, left - 6, 11)));
    });
  }
  if (columns && top > HEAD) {
    const across = Math.max(0, ...columns.map((name) => textWidth(name, 11))) <= wide - 2;
    columns.forEach((name, j) => {
      const style = here && state.column === j ? "tick small strong" : "tick small";
      const middle = ox + (j + 0.5) * wide;
      const where = across
        ? { x: middle, y: oy - 5, "text-anchor": "middle" }
        : { transform: `translate(${middle + 4} ${oy - 5}) rotate(-90)` };
      parts.push(svg("text", { class: style, ...where }, shorten(name, across ? wide : 60, 11)));
    });
  }
  if (n * m > CELLS) return [...parts, heatmap(values, range, { x: ox, y: oy, width: m * wide, height: n * high })];
  const gap = Math.min(wide, high) > 6 ? 1 : 0;
  values.forEach((row, i) =>
    row.forEach((value, j) => {
      const shape = { x: ox + j * wide, y: oy + i * high, width: wide - gap, height: high - gap };
      if (typeof value !== "number") return parts.push(svg("rect", { class: "mat", ...shape }), hatching(shape));
      const colour = valueColour(value, range);
      parts.push(setColour(svg("rect", shape), colour));
      if (!texts) return;
      const where = { x: shape.x + shape.width / 2, y: shape.y + high / 2 + 4, "text-anchor": "middle" };
      parts.push(setColour(svg("text", { class: "digits", ...where }, texts[i][j]), textColour(colour)));
    }),
  );
  return parts;
}

/**
 * Format numbers with the same number of decimals, three significant digits for the largest, or `fewer` less.
 * @param {(number | null)[][]} values @param {number} fewer
 */
function formatCells(values, fewer) {
  const known = values.flat().filter((value) => typeof value === "number");
  const most = known.reduce((a, b) => Math.max(a, Math.abs(Number(b))), 0);
  const whole = most === 0 || known.every(Number.isInteger);
  const digits = whole ? 0 : Math.max(0, (most < 0.1 ? 3 : 2 - Math.max(0, Math.floor(Math.log10(most)))) - fewer);
  return values.map((row) =>
    row.map((value) => {
      if (typeof value !== "number") return "";
      const text = Math.abs(value) >= 10000 ? value.toExponential(0) : value.toFixed(digits);
      return (Number(text) === 0 ? text.replace("-", "") : text).replace("-", "−");
    }),
  );
}

/**
 * Return the operands of the hovered number and the results it contributes to, as rows, columns and cells.
 * @param {(Part | string)[]} parts @param {State} state
 * @returns {{ part: number, row?: number, column?: number }[]}
 */
export function relatedCells(parts, { part, row, column }) {
  if (part === undefined || row === undefined || column === undefined) return [];
  const whole = { part, row, column };
  const product = findProduct(parts, part);
  if (product) {
    const [a, b, c] = product;
    if (part === c) return [whole, { part: a, row }, { part: b, column }];
    if (part === a) return [whole, { part: b, row: column }, { part: c, row }];
    return [whole, { part: a, column: row }, { part: c, column }];
  }
  const before = parts[part - 2];
  if (parts[part - 1] === "softmax" && sameShape(before, parts[part])) return [whole, { part: part - 2, row }];
  const same = parts.flatMap((other, k) => (k !== part && sameShape(other, parts[part]) ? [{ part: k, row, column }] : []));
  return [whole, ...same];
}

/**
 * Return the indices of A, B and C in "A · B = C" if the part is one of them and the shapes match.
 * @param {(Part | string)[]} parts @param {number} part
 * @returns {number[] | null}
 */
function findProduct(parts, part) {
  for (const start of [part - 4, part - 2, part]) {
    const [a, times, b, equals, c] = parts.slice(Math.max(0, start), Math.max(0, start) + 5);
    if (start < 0 || times !== "·" || equals !== "=") continue;
    if (typeof a !== "object" || typeof b !== "object" || typeof c !== "object") continue;
    const size = (/** @type {Part} */ { values }) => [values.length, values[0]?.length ?? 0];
    const [[n, k], [l, m], [p, q]] = [a, b, c].map(size);
    if (k === l && n === p && m === q) return [start, start + 2, start + 4];
  }
  return null;
}

/** @param {Part | string | undefined} a @param {Part | string | undefined} b @returns true if the shapes are equal */
function sameShape(a, b) {
  if (typeof a !== "object" || typeof b !== "object") return false;
  return a.values.length === b.values.length && a.values[0]?.length === b.values[0]?.length;
}

/**
 * Return the tooltip of a number: its position, and the sum it is computed by.
 * @param {(Part | string)[]} parts @param {Box} box @param {number} i @param {number} j @param {number | null} value
 */
function tooltip(parts, { part, index }, i, j, value) {
  const where = `${part.name}: ${part.rows?.[i] ?? `row ${i + 1}`}, ${part.columns?.[j] ?? `column ${j + 1}`}`;
  const lines = [typeof value === "number" ? number(value) : "no value", where];
  const product = findProduct(parts, index);
  if (product?.[2] !== index) return lines;
  const [a, b] = product.map((k) => /** @type {Part} */ (parts[k]).values);
  const short = (/** @type {number | null} */ x) => {
    const text = number(Number((x ?? 0).toPrecision(3)));
    return text.startsWith("−") ? `(${text})` : text;
  };
  const terms = a[i].slice(0, TERMS).map((x, k) => `${short(x)} · ${short(b[k][j])}`);
  const more = a[i].length > TERMS ? ` + … (${a[i].length} products)` : "";
  return [...lines, `= ${terms.join(" + ")}${more}`];
}

/**
 * Draw an outline around a cell, a row or a column of a part.
 * @param {Box} box @param {{ row?: number, column?: number }} mark
 */
function outline({ part, x, y, left, top, wide, high }, { row, column }) {
  const [n, m] = [part.values.length, part.values[0]?.length ?? 0];
  const shape = {
    x: x + left + (column ?? 0) * wide,
    y: y + top + (row ?? 0) * high,
    width: column === undefined ? m * wide : wide,
    height: row === undefined ? n * high : high,
  };
  return svg("rect", { class: "chosen", ...shape });
}
