// Graph of operations with values and adjoints. A slider runs the backward pass one operation at a time.

import { heading } from "./axes.js";
import { canvas, shorten, svg, textWidth, wrapText } from "./dom.js";
import { drawEdge } from "./edges.js";
import { number } from "./format.js";

/**
 * `column` and `row`: position in units of cards, rows may be fractions. `inputs`: the nodes that an operation is
 * computed from, `bends` the rows through which each of these edges passes the columns between. `value` is a number, or the norm of a tensor with this `shape`. `adjoints`: pairs of the step of the
 * backward pass and the adjoint, or its norm, from this step on. `calculation`: sentences about the adjoint.
 * `order`: the operations in the order in which the backward pass visits them.
 * @typedef {{ name: string, operation: string, shape: string, value: number, adjoints: [number, number][], column: number,
 *   row: number, inputs: number[], bends: number[][], calculation: string[] }} Node
 * @typedef {{ title: string, nodes: Node[], order: number[] }} Computation
 * @typedef {{ moment?: number, chosen?: number }} State
 */

const TOP = 40;
const [LEAST, WITH_SHAPE, MOST] = [86, 112, 120]; // pixels, width of a card
const [HIGH, PITCH] = [58, 72]; // pixels: a card, from one row to the next
const [LINE, TEXT] = [16, 17];

/**
 * @param {Computation} spec @param {number} width @param {State} [state]
 * @returns {import("./explore.js").Drawn}
 */
export function computation(spec, width, state = {}) {
  const { nodes, order } = spec;
  const moment = Math.max(0, Math.min(state.moment ?? order.length, order.length));
  const chosen = state.chosen !== undefined && nodes[state.chosen] ? state.chosen : (order[0] ?? 0);
  const columns = 1 + Math.max(0, ...nodes.map(({ column }) => column));
  const taken = [0, ...nodes.flatMap(({ row, bends }) => [row, ...bends.flat()])];
  const lowest = Math.min(...taken);
  const rows = Math.max(...taken) - lowest;
  const least = nodes.some(({ shape }) => shape) ? WITH_SHAPE : LEAST;
  const pitch = Math.max(least + 18, width / columns);
  const card = Math.min(MOST, Math.max(least, pitch - 30));
  const wide = Math.max(width, columns * pitch); // the stage of a deep graph scrolls
  const boxes = nodes.map(({ column, row }) => ({
    x: Math.round(column * pitch + (pitch - card) / 2),
    y: Math.round(TOP + (row - lowest) * PITCH),
    width: card,
    height: HIGH,
  }));
  const visited = new Set(order.slice(0, moment));
  const current = moment > 0 && moment < order.length ? order[moment - 1] : null;
  const wires = nodes.flatMap((node, to) => {
    const style = to === current ? "strong" : "";
    const above = [...node.inputs.keys()].sort((p, q) => height(node, nodes, p) - height(node, nodes, q));
    return node.inputs.flatMap((from, k) => {
      const [a, b] = [boxes[from], boxes[to]];
      const end = b.y + (HIGH * (above.indexOf(k) + 1)) / (node.inputs.length + 1);
      /** @type {[number, number][]} */
      const path = [
        [a.x + card, a.y + HIGH / 2],
        ...node.bends[k].flatMap((row, n) => {
          const x = Math.round((nodes[from].column + 1 + n) * pitch + (pitch - card) / 2);
          const y = TOP + (row - lowest) * PITCH + HIGH / 2;
          return /** @type {[number, number][]} */ ([[x, y], [x + card, y]]);
        }),
        [b.x, end],
      ];
      const one = { weight: visited.has(to) ? 1 : 0, key: "", tip: [] };
      const wide = current === null && from === chosen ? "strong" : style;
      return path.slice(1).map((point, n) => drawEdge({ ...one, from: path[n], to: point }, 2, wide));
    });
  });
  /** @type {import("./explore.js").Target[]} */
  const targets = nodes.map((node, i) => ({
    box: [boxes[i].x, boxes[i].y, card, HIGH],
    tip: [describe(node), ...node.calculation],
    key: String(i),
    set: { chosen: i },
  }));
  const bottom = TOP + (rows + 1) * PITCH;
  const sentences = nodes.length === 0 ? [] : [describe(nodes[chosen]), ...nodes[chosen].calculation];
  const written = sentences.flatMap((sentence, k) =>
    wrapText(sentence, width, 12).map((text) => ({ text, style: k === 0 ? "tick strong" : "tick" })),
  );
  const controls =
    order.length < 2
      ? []
      : [{
          key: "moment", label: "backward pass, step", value: moment, low: 0, high: order.length, step: 1,
          written: moment === 0 ? "not begun" : `${moment} of ${order.length}: ${title(nodes[order[moment - 1]])}`,
        }]; // prettier-ignore
  return {
    svg: canvas(
      wide,
      bottom + written.length * TEXT + 6,
      heading(shorten(spec.title, width, 15)),
      ...wires,
      ...nodes.flatMap((node, i) => drawCard(node, boxes[i], i === (current ?? chosen), moment)),
      ...written.map(({ text, style }, k) => svg("text", { class: style, x: 0, y: bottom + 12 + k * TEXT }, text)),
    ),
    targets,
    columns: 0,
    controls,
  };
}

/** Return the row from which an edge comes in. @param {Node} node @param {Node[]} nodes @param {number} k of its inputs */
function height({ inputs, bends }, nodes, k) {
  return bends[k].at(-1) ?? nodes[inputs[k]].row;
}

/** Return the adjoint that a node has after `moment` steps, null before the first. @param {Node} node @param {number} moment */
export function adjointAfter({ adjoints }, moment) {
  return adjoints.findLast(([step]) => step <= moment)?.[1] ?? null;
}

/** @param {Node} node */
function title({ name, operation }) {
  return name && operation ? `${name}, ${operation}` : name || operation;
}

/** @param {Node} node */
function describe(node) {
  const value = node.shape ? `shape ${node.shape}, norm ${number(node.value)}` : number(node.value);
  return `${title(node)}: ${value}`;
}

/**
 * Draw a node: its name, its value, and its adjoint as far as it is known.
 * @param {Node} node @param {{ x: number, y: number, width: number, height: number }} at @param {boolean} chosen
 * @param {number} moment
 */
function drawCard(node, at, chosen, moment) {
  const adjoint = adjointAfter(node, moment);
  const head = node.name || node.operation;
  const right = node.shape || (node.name ? node.operation : "");
  const room = at.width - 12 - (right ? textWidth(right, 11) + 6 : 0);
  const rows = /** @type {[string, string][]} */ ([
    [node.shape ? "norm" : "value", fit(node.value, at.width - 47)],
    [node.shape ? "‖∂L‖" : "∂L", adjoint === null ? "–" : fit(adjoint, at.width - 47)],
  ]);
  return [
    svg("rect", { class: chosen ? "card chosen" : "card", ...at, rx: 3 }),
    svg("text", { class: "tick strong", x: at.x + 6, y: at.y + 16 }, shorten(head, room, 12, 600)),
    svg("text", { class: "tick small", x: at.x + at.width - 6, y: at.y + 16, "text-anchor": "end" }, right),
    ...rows.flatMap(([label, text], k) => {
      const y = at.y + 16 + (k + 1) * LINE + 2;
      return [
        svg("text", { class: "tick", x: at.x + 6, y }, label),
        svg("text", { class: "cell", x: at.x + at.width - 6, y, "text-anchor": "end" }, text),
      ];
    }),
  ];
}

/** Format a number with up to three digits that fit. @param {number} value @param {number} room in pixels */
function fit(value, room) {
  for (let digits = 3; digits > 1; digits--) {
    const text = number(Number(value.toPrecision(digits)));
    if (textWidth(text, 12) <= room) return text;
  }
  return number(Number(value.toPrecision(1)));
}
