// A sliding window (convolution or pooling): the input in the window, the weights, their products, and the output.

import { heading } from "./axes.js";
import { valueColour, textColour, colourRange } from "./colour.js";
import { canvas, shorten, svg, textWidth, setColour } from "./dom.js";
import { number } from "./format.js";
import { hatching } from "./raster.js";

/**
 * The part of the input that is shown begins at `begin` (row, column) of the full input of shape `size`; cells outside are
 * padding. The output begins at `first`. A channel without `input` is the sum of several. `columns`: labels of the
 * input's columns.
 * @typedef {(number | null)[][]} Grid
 * @typedef {{ name: string, input?: Grid, weights?: Grid, sums: Grid }} Channel
 * @typedef {{ title: string, what: "sum" | "max" | "mean", kernel: number[], stride: number[], dilation: number[],
 *   begin: number[], size: number[], first: number[], output: Grid, channels: Channel[], bias: number | null,
 *   columns?: string[] }} Convolve
 * @typedef {{ cell?: number[] | null, kept?: number[] | null, channel?: number }} State
 * @typedef {{ name: string, x: number, y: number, wide: number, high: number, grid: Grid }} Board cells of one size
 * @typedef {import("./explore.js").Target} Target
 * @typedef {(i: number, j: number) => "" | "dim" | "padding" | "picked"} Look
 */

const [TOP, GAP, TITLE] = [66, 44, 40]; // pixels: top of the first board, between boards, title of a board
const MOST = 44; // pixels of a cell
const WRITTEN = 25; // minimum pixels of a cell with its number
const FLAT = 34; // pixels, height of the cells of a single row

/**
 * @param {Convolve} spec @param {number} width @param {State} [state]
 * @returns {import("./explore.js").Drawn}
 */
export function convolve(spec, width, state = {}) {
  const { output, channels, what } = spec;
  const chosen = channels[state.channel ?? 0]?.input ? (state.channel ?? 0) : 0;
  const { input = [[]], weights } = channels[chosen];
  const isInside = (/** @type {number[] | null | undefined} */ at) =>
    Boolean(at && at[0] < output.length && at[1] < output[0].length);
  const [row, column] = [state.cell, state.kept, [0, 0]].find(isInside) ?? [0, 0];
  const window = coveredCells(spec, row, column);
  const windowValues = window.rows.map((i) => window.columns.map((j) => input[i]?.[j] ?? null)); // values in the window
  const products = weights?.map((line, a) => line.map((w, b) => multiply(w, windowValues[a][b])));
  const boards = layout(spec, width, [
    { name: channels.length > 1 ? `input, ${channels[chosen].name}` : "input", grid: input },
    ...(weights && products
      ? [
          { name: "weights", grid: weights },
          { name: "weights × input", grid: products },
        ]
      : []),
    { name: `output, ${cellName(spec, row, column)}`, grid: output },
  ]);
  const [from, to] = [boards[0], boards[boards.length - 1]];
  const most = windowValues.flat().reduce((a, b) => Math.max(a ?? -Infinity, b ?? -Infinity), -Infinity);
  const isCovered = (/** @type {number} */ i, /** @type {number} */ j) =>
    window.rows.includes(i) && window.columns.includes(j);
  /** @type {Look} */
  const inputLook = (i, j) => {
    if (isPadding(spec, i, j)) return "padding";
    if (!isCovered(i, j)) return "dim";
    return what === "max" && input[i][j] === most ? "picked" : "";
  };
  const all = {
    input: channels.flatMap((one) => (one.input ? [one.input] : [])),
    weights: channels.flatMap((one) => (one.weights ? [one.weights] : [])),
  };
  const ranges = [all.input, ...(products ? [all.weights, [products]] : []), [output]].map((grids) =>
    colourRange(grids, "signed"),
  );
  /** @type {Look[]} */
  const looks = [inputLook, () => "", () => "", (i, j) => (i === row && j === column ? "" : "dim")];
  const marks = boards.flatMap((board, k) =>
    drawBoard(
      board,
      ranges[k],
      k === boards.length - 1 ? looks[3] : looks[k],
      k === 0 && spec.columns?.some(Boolean) ? 14 : 0,
    ),
  );
  const [top, left] = [window.rows[0], window.columns[0]];
  const [tall, wide] = [
    window.rows[window.rows.length - 1] - top + 1,
    window.columns[window.columns.length - 1] - left + 1,
  ];
  const low = Math.max(...boards.map((board) => board.y + board.grid.length * board.high));
  const sum = terms(spec, chosen, row, column, windowValues.flat(), low + 28, width);

  /** @type {Target[]} */
  const cells = output.flatMap((line, i) =>
    line.map((value, j) => ({
      box: [to.x + j * to.wide, to.y + i * to.high, to.wide, to.high],
      tip: [value === null ? "not finite" : number(value), `output, ${cellName(spec, i, j)}`, windowText(spec)],
      hover: { cell: [i, j] },
      set: { kept: [i, j] },
      key: `${i} ${j}`,
    })),
  );
  return {
    svg: canvas(
      width,
      sum.bottom,
      heading(shorten(spec.title, width, 15)),
      ...(spec.columns ?? []).map((word, j) => {
        return word
          ? svg(
              "text",
              { class: "tick", x: from.x + (j + 0.5) * from.wide, y: from.y - 5, "text-anchor": "middle" },
              shorten(word, from.wide - 3, 11),
            )
          : null;
      }),
      ...marks,
      svg("rect", {
        class: "chosen",
        x: from.x + left * from.wide,
        y: from.y + top * from.high,
        width: wide * from.wide,
        height: tall * from.high,
      }),
      svg("rect", {
        class: "chosen",
        x: to.x + column * to.wide,
        y: to.y + row * to.high,
        width: to.wide,
        height: to.high,
      }),
      ...sum.marks,
    ),
    targets: [...cells, ...sum.targets],
    columns: 0,
  };
}

/** @param {number | null} a @param {number | null} b */
function multiply(a, b) {
  return a === null || b === null ? null : Number((a * b).toPrecision(4));
}

/**
 * Return the rows and columns of the input in the window of an output.
 * @param {Convolve} spec @param {number} row @param {number} column
 */
function coveredCells({ kernel, stride, dilation }, row, column) {
  const [rows, columns] = [row, column].map((at, k) => {
    return [...Array(kernel[k]).keys()].map((a) => at * stride[k] + a * dilation[k]);
  });
  return { rows, columns };
}

/** @param {Convolve} spec @param {number} i @param {number} j of the input shown */
function isPadding({ begin, size }, i, j) {
  const [y, x] = [begin[0] + i, begin[1] + j];
  return y < 0 || x < 0 || y >= size[0] || x >= size[1];
}

/** @param {Convolve} spec @param {number} i @param {number} j of the output shown */
function cellName({ output, first }, i, j) {
  return output.length === 1 && first[0] === 0
    ? `step ${first[1] + j + 1}`
    : `row ${first[0] + i + 1}, column ${first[1] + j + 1}`;
}

/** @param {Convolve} spec */
function windowText({ what, kernel }) {
  const window = kernel[0] === 1 ? `${kernel[1]}` : `${kernel[0]}×${kernel[1]}`;
  return {
    sum: `sum of the products in a ${window} window, plus the bias`,
    max: `maximum of a ${window} window`,
    mean: `mean of a ${window} window`,
  }[what];
}

// --- boards ---

/**
 * Lay out the boards: in a row if numbers fit in their cells, otherwise stacked, with weights and products side by side;
 * boards of signals are always stacked.
 * @param {Convolve} spec @param {number} width @param {{ name: string, grid: Grid }[]} boards
 * @returns {Board[]}
 */
function layout({ columns = [] }, width, boards) {
  const wides = boards.map(({ grid }) => grid[0].length);
  const most = (/** @type {number} */ n, room = width) => Math.max(3, Math.min(MOST, Math.floor(room / n)));
  if (boards[0].grid.length === 1) {
    const wide = most(Math.max(...wides));
    const top = TOP + (columns.some(Boolean) ? 12 : 0);
    return boards.map((board, k) => ({ ...board, x: 0, y: top + k * (FLAT + TITLE - 4), wide, high: FLAT }));
  }
  const weighted = boards.length === 4;
  const stacked = weighted ? [wides[0], Math.max(wides[1], 3), wides[3]] : wides;
  const across = Math.floor((width - GAP * (stacked.length - 1)) / stacked.reduce((a, b) => a + b, 0));
  if (across >= WRITTEN || width >= 900) {
    const each = Math.min(MOST, across);
    let x = 0;
    return boards.map((board, k) => {
      const second = weighted && k === 2; // products are below the weights
      const placed = {
        ...board,
        x: second ? x - stacked[1] * each - GAP : x,
        y: second ? TOP + boards[1].grid.length * each + TITLE : TOP,
        wide: each,
        high: each,
      };
      if (!second) x += (weighted && k === 1 ? stacked[1] : wides[k]) * each + GAP;
      return placed;
    });
  }
  const pair = most(2 * Math.max(wides[1], 3), width - GAP / 2);
  let y = TOP;
  return boards.map((board, k) => {
    const inPair = weighted && (k === 1 || k === 2);
    const each = inPair ? pair : most(wides[k]);
    const placed = {
      ...board,
      x: weighted && k === 2 ? Math.max(wides[1], 3) * pair + GAP / 2 : 0,
      y,
      wide: each,
      high: each,
    };
    if (!(weighted && k === 1)) y += board.grid.length * each + TITLE;
    return placed;
  });
}

/**
 * Draw the cells of a board below its name.
 * @param {Board} board @param {import("./colour.js").Range} range @param {Look} look @param {number} raised pixels to raise the name
 */
function drawBoard({ name, x, y, wide, high, grid }, range, look, raised) {
  const room = Math.max(grid[0].length * wide, 110);
  const shown = wide >= WRITTEN;
  const gap = wide > 8 ? 1 : 0;
  return [
    svg("text", { class: "tick strong", x, y: y - 9 - raised }, shorten(name, room, 12, 600)),
    ...grid.flatMap((line, i) =>
      line.flatMap((value, j) => {
        const at = { x: x + j * wide, y: y + i * high, width: wide - gap, height: high - gap };
        const how = look(i, j);
        if (how === "padding") return /** @type {SVGElement[]} */ ([hatching(at)]);
        if (value === null) return [svg("rect", { class: "mat", ...at })];
        const colour = valueColour(value, range);
        const cell = setColour(svg("rect", { ...at, class: how === "dim" ? "cell-of dim" : "cell-of" }), colour);
        const size = wide < 32 ? 9 : 11;
        const text = [
          twoDigits(value),
          number(Number(value.toFixed(2))).replace("0.", "."),
          number(Number(value.toFixed(1))),
        ].find((one) => textWidth(one, size) <= wide - 2);
        if (!shown || text === undefined) return [cell];
        const words = svg(
          "text",
          {
            class: how === "dim" ? "digits dim" : how === "picked" ? "digits picked" : "digits",
            "font-size": size,
            x: at.x + at.width / 2,
            y: at.y + at.height / 2 + 4,
            "text-anchor": "middle",
          },
          text,
        );
        return [cell, how === "dim" ? words : setColour(words, textColour(colour))];
      }),
    ),
  ];
}

/** Format with two significant digits. @param {number} value */
function twoDigits(value) {
  return number(Number(value.toPrecision(2))).replace("0.", ".");
}

// --- the sum ---

/**
 * Return the computation of a pooled value with the numbers in its window; padding that does not count is left out.
 * @param {"max" | "mean"} what @param {(number | null)[]} values
 */
function poolingText(what, values) {
  const counted = values.filter((value) => value !== null).map(number);
  const written = (/** @type {string} */ text) => (text.startsWith("−") ? `(${text})` : text);
  if (what === "max") return `maximum of ${counted.join(", ")}`;
  return `mean: (${counted.map((text, k) => (k > 0 ? written(text) : text)).join(" + ")}) / ${counted.length}`;
}

/**
 * Draw the computation of a cell: a line per term. A click on a channel shows it.
 * @param {Convolve} spec @param {number} chosen @param {number} row @param {number} column
 * @param {(number | null)[]} inWindow the values in the window @param {number} top @param {number} width
 */
function terms(spec, chosen, row, column, inWindow, top, width) {
  const { channels, bias, what, output } = spec;
  const written = (/** @type {number | null} */ value) => (value === null ? "not finite" : number(value));
  const lines = channels.map(({ name, sums, input }, k) => {
    const label =
      what === "sum"
        ? channels.length > 1 || name !== "products"
          ? `products of ${name}`
          : "sum of the products"
        : poolingText(what, inWindow);
    return {
      label,
      value: written(sums[row][column]),
      k: input && channels.length > 1 ? k : -1,
      strong: channels.length > 1 && k === chosen,
    };
  });
  const total = {
    label: `output, ${cellName(spec, row, column)}`,
    value: written(output[row][column]),
    k: -1,
    strong: true,
  };
  const all = [
    ...lines,
    ...(bias === null ? [] : [{ label: "bias", value: written(bias), k: -1, strong: false }]),
    total,
  ];
  const label = Math.min(width - 90, 24 + Math.max(...all.map((line) => textWidth(line.label, 13, 600))));
  const right = label + 76;
  /** @type {Target[]} */
  const targets = [];
  const marks = all.flatMap((line, k) => {
    const y = top + k * 20 + (k === all.length - 1 ? 6 : 0);
    if (line.k >= 0)
      targets.push({
        box: [0, y - 14, right, 19],
        tip: [`${line.label}: ${line.value}`, line.strong ? "shown above" : "Click to show it above."],
        set: { channel: line.k },
        key: `channel ${line.k}`,
      });
    const sign = k === 0 ? "" : k === all.length - 1 ? "=" : "+";
    const style = line.strong ? "name strong" : "name";
    return [
      k === all.length - 1 ? svg("line", { class: "axis", x1: 0, x2: right, y1: y - 17, y2: y - 17 }) : null,
      sign ? svg("text", { class: "tick", x: 0, y }, sign) : null,
      svg("text", { class: style, x: 16, y }, shorten(line.label, label - 16)),
      svg("text", { class: style, x: right, y, "text-anchor": "end" }, line.value),
    ];
  });
  return { marks, targets, bottom: top + all.length * 20 + 12 };
}
