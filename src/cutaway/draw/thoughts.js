// Tree of thoughts: the steps that a search proposed, in columns by depth, or as an outline on narrow screens.

import { heading } from "./axes.js";
import { canvas, shorten, svg, textWidth } from "./dom.js";
import { number } from "./format.js";

/**
 * `parent`: index of another node, null for the problem; `place`: position in its column; `born`: time at which it was
 * proposed. `value`: the model's evaluation; `truth`: computed evaluation, a key of `says`; `why`: the error. A click on
 * a node that `opens` selects its `name` in the choice called `label`.
 * @typedef {{ text: string, name: string, parent: number | null, depth: number, place: number, born: number,
 *   value: number | null, log_p: number | null, count: number, kept: boolean, path: boolean, truth: string,
 *   why: string, opens: boolean }} Node
 * @typedef {{ title: string, question: string, nodes: Node[], kept: string, pruned: string, moment: string,
 *   says: Record<string, string>, label: string, chosen?: string | null }} Thoughts
 * @typedef {{ moment?: number, all?: boolean, open?: number[] } & Record<string, any>} State
 * @typedef {{ x: number, y: number, width: number }} Place
 */

const HIGH = 28; // pixels of the box of a step
const STEP = 34; // pixels from one step to the next
const BETWEEN = 38; // pixels between columns
const WIDEST = 420; // pixels of a column
const LEAST = 150; // minimum pixels of a column; otherwise an outline is drawn
const MOST = 10; // steps of a column shown at first
const INDENT = 16;
const SIGN = 22; // pixels for the symbol before the text
const NUMBER = 34; // pixels for a number after it
const LINE = 20; // pixels of a line of the legend

/**
 * @param {Thoughts} spec @param {number} width @param {State} [state]
 * @returns {import("./explore.js").Drawn}
 */
export function thoughts(spec, width, state = {}) {
  const last = Math.max(1, ...spec.nodes.map(({ born }) => born));
  const moment = Math.max(1, Math.min(state.moment ?? last, last));
  const depth = Math.max(1, ...spec.nodes.map((node) => node.depth));
  const key = legend(spec, width);
  const questionWidth = Math.max(textWidth("the problem", 12, 600) + 2, Math.min(textWidth(spec.question, 12, 600) + 20, 160));
  const each = Math.min((width - questionWidth) / depth - BETWEEN, WIDEST);
  const layout = each >= LEAST ? columns : outline;
  const { elements, targets, bottom } = layout(spec, { width, top: key.bottom + 8, questionWidth: questionWidth, each, depth, moment, state });
  const written = `${moment} of ${last}`;
  const controls =
    last > 1
      ? [{ key: "moment", label: `Grown to ${spec.moment}`, value: moment, low: 1, high: last, step: 1, written }]
      : [];
  const drawing = canvas(width, bottom, heading(spec.title), ...key.elements, ...elements);
  return { svg: drawing, targets, columns: 0, controls };
}

/**
 * @typedef {{ width: number, top: number, questionWidth: number, each: number, depth: number, moment: number,
 *   state: State }} Room
 * @typedef {{ elements: Element[], targets: import("./explore.js").Target[], bottom: number }} Laid
 */

/**
 * Draw a column per depth, best steps first, with lines from each step to its parent.
 * @param {Thoughts} spec @param {Room} room
 * @returns {Laid}
 */
function columns(spec, { top, questionWidth: questionWidth, each, depth, moment, state }) {
  const { nodes } = spec;
  const left = (/** @type {number} */ d) => (d === 0 ? 0 : questionWidth + BETWEEN + (d - 1) * (each + BETWEEN));
  const first = top + 26;
  /** @type {Element[]} */
  const boxes = [];
  /** @type {Element[]} */
  const lines = [];
  /** @type {Laid["targets"]} */
  const targets = [];
  /** @type {Map<number, Place>} */
  const places = new Map();
  const problem = { x: 0, y: first, width: questionWidth };
  boxes.push(...questionBox(spec.question, problem), label("the problem", 0, top, questionWidth));
  targets.push({ box: [0, first, questionWidth, HIGH], tip: [spec.question, "the problem"] });
  let bottom = first + STEP;
  for (let d = 1; d <= depth; d++) {
    const column = nodes.map((node, k) => ({ node, k })).filter(({ node }) => node.depth === d);
    column.sort((a, b) => a.node.place - b.node.place);
    const kept = column.filter(({ node }) => node.kept).length;
    const cut = kept > 0 && kept < column.length && column.slice(0, kept).every(({ node }) => node.kept);
    const x = left(d);
    const counts = `${column.length} step${column.length === 1 ? "" : "s"}, ${kept} ${spec.kept}`;
    boxes.push(label(`step ${d}`, x, top, each, counts));
    boxes.push(...columnHeaders(nodes, x, top, each, textWidth(`step ${d}  ${counts}`, 12, 600)));
    const line = cut ? column[kept].node.place : Infinity; // position of the first pruned step
    const fold = state.all ? Infinity : MOST;
    let hidden = 0;
    for (const { node, k } of column) {
      if (node.place >= fold && !node.path) {
        hidden++;
        continue;
      }
      const place = { x, y: first + node.place * STEP + (node.place >= line ? 16 : 0), width: each };
      if (node.born > moment) continue;
      places.set(k, place);
      const from = node.parent === null ? problem : places.get(node.parent);
      if (from) lines.push(curve(from, place, node));
      boxes.push(...box(node, place, spec, state));
      targets.push(target(spec, node, k, place));
      bottom = Math.max(bottom, place.y + STEP);
    }
    const grown = column.some(({ node }) => node.born <= moment);
    if (cut && grown) {
      const y = first + line * STEP + 4;
      const wide = textWidth(spec.pruned, 11) + 6;
      boxes.push(
        svg("line", { class: "mark", x1: x, x2: x + each - wide, y1: y, y2: y }),
        svg("text", { class: "tick small", x: x + each, y: y + 4, "text-anchor": "end" }, spec.pruned),
      );
    }
    if (grown && (hidden > 0 || (state.all && column.some(({ node }) => node.place >= MOST)))) {
      const y = (hidden > 0 ? first + MOST * STEP : bottom) + (cut ? 16 : 0);
      const words = hidden > 0 ? `and ${hidden} more` : "show fewer";
      boxes.push(svg("text", { class: "tick", x: x + SIGN, y: y + 14 }, words));
      const tip = [words, `Press Enter or click to ${hidden > 0 ? "show" : "hide"} them`];
      targets.push({ box: [x, y, each, 20], tip, set: { all: hidden > 0 }, key: `more ${d}` });
      bottom = Math.max(bottom, y + STEP);
    }
  }
  return { elements: [...lines, ...boxes], targets, bottom: bottom + 4 };
}

/**
 * Draw an outline, each step below its parent; pruned steps are collapsed.
 * @param {Thoughts} spec @param {Room} room
 * @returns {Laid}
 */
function outline(spec, { width, top, moment, state }) {
  const open = state.open ?? [];
  /** @type {Element[]} */
  const elements = [];
  /** @type {Laid["targets"]} */
  const targets = [];
  let y = top;
  elements.push(...questionBox(spec.question, { x: 0, y, width: Math.min(width, textWidth(spec.question, 12, 600) + 20) }));
  targets.push({ box: [0, y, width, HIGH], tip: [spec.question, "the problem"] });
  y += STEP;
  /** @param {number} parent −1 for the problem @param {number} depth @param {number} from start of its line */
  function grow(parent, depth, from) {
    const all = spec.nodes.map((node, k) => ({ node, k }));
    const own = all.filter(({ node }) => (node.parent ?? -1) === parent && node.born <= moment);
    own.sort((a, b) => Number(b.node.kept) - Number(a.node.kept) || a.node.place - b.node.place);
    const x = Math.min(depth, 6) * INDENT;
    /** @param {number} at */
    const corner = (at) => {
      const d = `M${x - INDENT / 2} ${from}V${at}H${x}`;
      elements.push(svg("path", { class: "wire link", d, "stroke-width": 1 }));
    };
    const folds = parent < 0 || spec.nodes[parent].kept; // the rest of a rejected chain is shown with it
    const folded = own.filter(({ node }) => folds && !node.kept && !open.includes(parent));
    for (const { node, k } of own) {
      if (folded.some((one) => one.k === k)) continue;
      const place = { x, y, width: width - x };
      corner(y + HIGH / 2);
      elements.push(...box(node, place, spec, state));
      targets.push(target(spec, node, k, place));
      y += STEP;
      grow(k, depth + 1, place.y + HIGH);
    }
    const pruned = own.filter(({ node }) => folds && !node.kept);
    if (pruned.length === 0) return;
    const isFolded = folded.length > 0;
    const words = `${isFolded ? "▸" : "▾"} ${pruned.length} ${spec.pruned}`;
    corner(y + 10);
    elements.push(svg("text", { class: "tick", x: x + 6, y: y + 14 }, words));
    const next = isFolded ? [...open, parent] : open.filter((one) => one !== parent);
    targets.push({
      box: [x, y, width - x, 20],
      tip: [words.slice(2), `Press Enter or click to ${isFolded ? "show" : "hide"} them`],
      set: { open: next },
      key: `fold ${parent}`,
    });
    y += 28;
  }
  grow(-1, 1, top + HIGH);
  return { elements, targets, bottom: y + 4 };
}

/** @param {string} question @param {Place} place */
function questionBox(question, { x, y, width }) {
  return [
    svg("rect", { class: "mat", x: x + 0.5, y: y + 0.5, width: width - 1, height: HIGH - 1, rx: 4 }),
    svg("text", { class: "cell label", x: x + 10, y: y + 18 }, shorten(question, width - 18, 12, 600)),
  ];
}

/**
 * Draw the headers of a column's numbers, if there is room.
 * @param {Node[]} nodes @param {number} x @param {number} y @param {number} width @param {number} taken
 */
function columnHeaders(nodes, x, y, width, taken) {
  const valued = nodes.some(({ value }) => value !== null);
  const logs = !valued || fitsTwoNumbers(nodes, width);
  const names = [...(valued ? ["value"] : []), ...(logs ? ["log p"] : [])];
  if (taken + 8 + names.length * NUMBER > width) return [];
  return names.map((name, k) =>
    svg("text", { class: "tick small", x: x + width - 8 - k * NUMBER, y: y + 14, "text-anchor": "end" }, name),
  );
}

/** @param {string} text @param {number} x @param {number} y @param {number} width @param {string} [more] */
function label(text, x, y, width, more) {
  const wide = textWidth(`${text} `, 12, 600) + 4;
  return svg(
    "g",
    {},
    svg("text", { class: "tick strong", x, y: y + 14 }, shorten(text, width, 12, 600)),
    more ? svg("text", { class: "tick", x: x + wide, y: y + 14 }, shorten(more, width - wide, 12)) : null,
  );
}

/**
 * Draw a step: symbol, text, log p and value, and the value as a bar at the bottom.
 * @param {Node} node @param {Place} place @param {Thoughts} spec @param {State} state
 */
function box(node, { x, y, width }, spec, state) {
  const { value, log_p: p, path, kept } = node;
  const chosen = (state[spec.label] ?? spec.chosen) === node.name;
  const [weight, words] = [path ? 600 : 400, path ? "cell label" : kept ? "cell" : "tick"];
  const logs = p === null || (value !== null && !fitsTwoNumbers(spec.nodes, width)) ? null : formatLogP(p);
  const numbers = [value === null ? null : value.toFixed(2), logs].filter((text) => text !== null);
  const room = width - SIGN - 8 - numbers.length * NUMBER;
  const look = `card${path ? " of-answer" : kept ? " kept" : ""}${chosen ? " chosen" : ""}`;
  const foot = { class: "bar split-test", opacity: 0.55, x: x + 3, y: y + HIGH - 5, height: 3, rx: 1 };
  return [
    svg("rect", { class: look, x: x + 1, y: y + 1, width: width - 2, height: HIGH - 2, rx: 4 }),
    ...(value === null ? [] : [svg("rect", { ...foot, width: Math.max(0.5, (value / fullBarValue(spec.nodes)) * (width - 6)) })]),
    truthSymbol(node.truth, x + 12, y + HIGH / 2 - 1),
    svg("text", { class: words, x: x + SIGN, y: y + 17 }, shorten(node.text, room, 12, weight)),
    ...numbers.map((text, k) =>
      svg("text", { class: "tick small", x: x + width - 8 - k * NUMBER, y: y + 17, "text-anchor": "end" }, text),
    ),
  ];
}

/**
 * Return the value of a full bar: 1, or the largest value if a custom solver gives larger ones.
 * @param {Node[]} nodes
 */
function fullBarValue(nodes) {
  return Math.max(1, ...nodes.map(({ value }) => value ?? 0));
}

/** Format with one decimal. @param {number} value */
function formatLogP(value) {
  return value.toFixed(1).replace("-0.0", "0.0").replace("-", "−");
}

/**
 * Return true if two numbers fit after the texts of all kept steps; texts of other steps are truncated.
 * @param {Node[]} nodes @param {number} width
 */
function fitsTwoNumbers(nodes, width) {
  const room = width - SIGN - 8 - 2 * NUMBER;
  return nodes.every(({ text, kept }) => !kept || textWidth(text, 12, 600) <= room);
}

/** @param {Thoughts} spec @param {Node} node @param {number} k @param {Place} place */
function target(spec, node, k, { x, y, width }) {
  const tries = node.count > 1 ? `, proposed ${node.count} times` : "";
  const most = fullBarValue(spec.nodes);
  const scale = most > 1 ? `; a full bar is ${number(most)}` : "";
  const tip = [
    node.text,
    ...(node.value === null ? [] : [`value ${number(node.value)}, evaluated by the model${scale}`]),
    ...(node.log_p === null ? [] : [`log p ${number(node.log_p)}${tries}`]),
    `${spec.says[node.truth] ?? node.truth}${node.why ? `: ${node.why}` : ""}`,
    node.path ? "part of the answer" : node.kept ? spec.kept : spec.pruned,
    ...(node.opens ? ["Press Enter or click to see how it was generated"] : []),
  ];
  const choose = { label: spec.label, name: node.name };
  const opening = node.opens ? { set: { [spec.label]: node.name }, act: { choose } } : {};
  return { box: [x, y, width, HIGH], tip, key: `step ${k}`, ...opening };
}

/** @param {Place} from @param {Place} to @param {Node} node */
function curve(from, to, node) {
  const [x1, y1, x2, y2] = [from.x + from.width, from.y + HIGH / 2, to.x, to.y + HIGH / 2];
  const middle = (x1 + x2) / 2;
  const style = node.path ? "wire link of-answer" : node.kept ? "wire link" : "wire link pruned";
  const d = `M${x1} ${y1}C${middle} ${y1} ${middle} ${y2} ${x2} ${y2}`;
  return svg("path", { class: style, d, "stroke-width": node.path ? 2.5 : 1 });
}

/**
 * Draw the symbol of a computed evaluation: a tick, a ring, a bar, a cross or a point.
 * @param {string} truth @param {number} x @param {number} y
 */
function truthSymbol(truth, x, y) {
  const paths = {
    solved: `M${x - 5} ${y}L${x - 1.5} ${y + 4}L${x + 5} ${y - 4.5}`,
    open: `M${x - 4} ${y}A4 4 0 1 1 ${x + 4} ${y}A4 4 0 1 1 ${x - 4} ${y}`,
    dead: `M${x - 4} ${y}H${x + 4}`,
    wrong: `M${x - 4} ${y - 4}L${x + 4} ${y + 4}M${x + 4} ${y - 4}L${x - 4} ${y + 4}`,
    after: `M${x - 1.5} ${y}A1.5 1.5 0 1 1 ${x + 1.5} ${y}A1.5 1.5 0 1 1 ${x - 1.5} ${y}`,
  };
  return svg("path", { class: `truth ${truth}`, d: paths[/** @type {keyof typeof paths} */ (truth)] ?? "" });
}

/**
 * Draw the legend of the symbols.
 * @param {Thoughts} spec @param {number} width
 */
function legend({ says }, width) {
  /** @type {Element[]} */
  const elements = [];
  let [x, y] = [0, 38];
  for (const [truth, words] of Object.entries(says)) {
    const wide = textWidth(words, 12) + SIGN + 18;
    if (x > 0 && x + wide > width) [x, y] = [0, y + LINE];
    elements.push(truthSymbol(truth, x + 8, y - 4));
    elements.push(svg("text", { class: "tick", x: x + SIGN, y }, shorten(words, width - SIGN, 12)));
    x += wide;
  }
  return { elements, bottom: elements.length > 0 ? y + 8 : 26 };
}
