// A small network with its numbers: z, a and δ of every neuron, and the calculation of a selected neuron.

import { heading } from "./axes.js";
import { canvas, shorten, svg, textWidth } from "./dom.js";
import { number } from "./format.js";
import { drawEdge, edgeTargets } from "./edges.js";

/**
 * `weights` and `gradients` of all but the first layer: a row per neuron shown, a column per neuron of the previous layer.
 * `rest`: contribution of neurons that are not shown; `back_rest`: the same in the backward pass; `slope`: ∂a/∂z, null if
 * neurons are normalized together; `how`: formula of the δ of an output, whose `back` and `slope` are given for a
 * single logit of two classes alone.
 * @typedef {{ name: string, a: number | null, z?: number | null, normalized?: number | null, delta?: number | null,
 *   index?: number, bias?: number | null, rest?: number | null, back?: number | null, back_rest?: number | null,
 *   slope?: number | null, how?: string }} Neuron
 * @typedef {{ title: string, of: number, neurons: Neuron[], name?: string, activation?: string, sources?: number[],
 *   weights?: (number | null)[][], gradients?: (number | null)[][], hidden_inputs?: number }} Layer
 * @typedef {{ title: string, layers: Layer[] }} Neurons
 * @typedef {{ neuron?: string | null, chosen?: string | null, edge?: string | null }} State
 * @typedef {import("./explore.js").Target} Target
 * @typedef {{ x: number, y: number, width: number, height: number }} Box
 */

const TOP = 44;
const [LEAST, MOST] = [72, 108]; // pixels, width of a card
const [LINE, GAP] = [16, 12]; // pixels: a line in a card, between cards

/**
 * @param {Neurons} spec @param {number} width @param {State} [state]
 * @returns {import("./explore.js").Drawn}
 */
export function neurons(spec, width, state = {}) {
  const { layers } = spec;
  const last = layers.length - 1;
  const pitch = Math.max(LEAST + 16, width / layers.length);
  const card = Math.min(MOST, Math.max(LEAST, pitch - 34));
  const wide = Math.max(width, layers.length * pitch); // the stage of a deep network scrolls
  const lines = (/** @type {Layer} */ layer) =>
    layer.weights ? (layer.neurons[0]?.normalized === undefined ? 4 : 5) : 2;
  const high = (/** @type {Layer} */ layer) => lines(layer) * LINE + 10;
  const tall = Math.max(...layers.map((layer) => layer.neurons.length * (high(layer) + GAP)));
  const box = (/** @type {number} */ l, /** @type {number} */ i) => {
    const n = layers[l].neurons.length;
    const step = Math.min(tall / n, (high(layers[l]) + GAP) * 1.6);
    const top = TOP + 26 + (tall - n * step) / 2;
    return {
      x: Math.round(l * pitch + (pitch - card) / 2),
      y: Math.round(top + i * step + (step - high(layers[l])) / 2),
      width: card,
      height: high(layers[l]),
    };
  };
  const chosen = validKey(layers, state.neuron) ?? validKey(layers, state.chosen) ?? largestDelta(layers);
  const most = Math.max(0, ...layers.flatMap(({ weights = [] }) => weights.flat().map((w) => Math.abs(w ?? 0))));
  const wires = layers.map((layer, l) => (l === 0 ? [] : edgesTo(layers, l, box)));
  const look = (/** @type {import("./edges.js").Wire} */ { key }) => {
    if (state.edge) return key === state.edge ? "strong" : "faint";
    const [to, from] = key.split(" ");
    return to === chosen ? "strong" : from === chosen ? "" : "faint";
  };
  /** @type {Target[]} */
  const targets = [];
  const cards = layers.flatMap((layer, l) => {
    targets.push(...edgeTargets(wires[l], layers[l - 1]?.neurons.length ?? 1));
    return layer.neurons.flatMap((neuron, i) => {
      const [at, key] = [box(l, i), `${l}.${i}`];
      const bias = neuron.bias ?? null;
      const act =
        bias === null
          ? {}
          : { act: { do: "weight", name: `${layer.name}.bias`, index: [neuron.index ?? i], value: bias } };
      targets.push({
        box: [at.x, at.y, at.width, at.height],
        tip: tooltip(layer, neuron),
        key,
        set: { chosen: key },
        ...act,
      });
      return drawCard(neuron, at, key === chosen);
    });
  });
  const titles = layers.flatMap(({ title, of, neurons: shown, activation }, l) => {
    const middle = { x: l * pitch + pitch / 2, "text-anchor": "middle" };
    const some = of > shown.length ? `${shown.length} of ${of}` : "";
    const under = [some, l > 0 && (l < last || activation === "sigmoid") ? activation : ""].filter(Boolean).join(", ");
    return [
      svg("text", { class: "tick strong", ...middle, y: TOP }, shorten(title, pitch - 4, 12, 600)),
      svg("text", { class: "tick", ...middle, y: TOP + 15 }, shorten(under, pitch - 4, 12)),
    ];
  });
  const bottom = TOP + 26 + tall + 20;
  const sums = neuronSums(layers, chosen, bottom, width);
  return {
    svg: canvas(
      wide,
      sums.bottom + 8,
      heading(shorten(spec.title, width, 15)),
      ...wires.flat().map((one) => drawEdge(one, most, look(one))),
      ...titles,
      ...cards,
      ...sums.marks,
    ),
    targets,
    columns: 0,
  };
}

/** @param {Layer[]} layers @param {string | null | undefined} key of a neuron @returns the key if it has a sum */
function validKey(layers, key) {
  const [l, i] = (key ?? "").split(".").map(Number);
  return l > 0 && layers[l]?.neurons[i] ? `${l}.${i}` : null;
}

/**
 * Return the neuron selected at first: the one with the largest δ in the last hidden layer.
 * @param {Layer[]} layers
 */
function largestDelta(layers) {
  const l = Math.max(1, layers.length - 2);
  const sizes = layers[l].neurons.map(({ delta }) => Math.abs(delta ?? 0));
  return `${l}.${sizes.indexOf(Math.max(...sizes))}`;
}

/** @param {number | null | undefined} value */
function formatNumber(value) {
  return value === null || value === undefined ? "none" : number(value);
}

/**
 * Format a value with up to three digits that fit in a card; digits are never truncated.
 * @param {number | null | undefined} value @param {number} room in pixels
 */
function cardNumber(value, room) {
  if (typeof value !== "number") return "none";
  return fitNumber(value, room, 3);
}

/**
 * Format a number with at most `digits` digits, fewer if there is no room.
 * @param {number} value @param {number} room in pixels @param {number} digits
 */
function fitNumber(value, room, digits) {
  for (let d = digits; d > 1; d--) {
    const text = number(Number(value.toPrecision(d)));
    if (textWidth(text, 12) <= room) return text;
  }
  return number(Number(value.toPrecision(1)));
}

/**
 * Return the name of a neuron, or only its number if there is no room.
 * @param {string} name @param {number} room
 */
function shortName(name, room) {
  const bare = /^(?:neuron|output) (\d+)$/.exec(name);
  return bare && textWidth(name, 12, 600) > room ? bare[1] : shorten(name, room, 12, 600);
}

// --- the network ---

/**
 * @param {Layer[]} layers @param {number} l @param {(l: number, i: number) => Box} box
 * @returns {import("./edges.js").Wire[]}
 */
function edgesTo(layers, l, box) {
  const { weights = [], gradients = [], sources = [], name, neurons: to } = layers[l];
  return weights.flatMap((row, j) =>
    row.map((w, i) => {
      const [a, b] = [box(l - 1, i), box(l, j)];
      return {
        from: /** @type {[number, number]} */ ([a.x + a.width, a.y + a.height / 2]),
        to: /** @type {[number, number]} */ ([b.x, b.y + b.height / 2]),
        weight: w ?? 0,
        key: `${l}.${j} ${l - 1}.${i}`,
        tip: [
          `w ${formatNumber(w)}`,
          `∂L/∂w ${formatNumber(gradients[j]?.[i])}`,
          `${layers[l - 1].neurons[i].name} → ${to[j].name}`,
        ],
        act: { do: "weight", name: `${name}.weight`, index: [to[j].index ?? j, sources[i] ?? i], value: w ?? 0 },
      };
    }),
  );
}

/**
 * Draw the card of a neuron.
 * @param {Neuron} neuron @param {Box} at @param {boolean} chosen
 */
function drawCard(neuron, at, chosen) {
  const { name, z, normalized, a, delta } = neuron;
  const rows = /** @type {[string, number | null | undefined][]} */ (
    delta === undefined
      ? [["x", a]]
      : [["z", z], ...(normalized === undefined ? [] : [["u", normalized]]), ["a", a], ["δ", delta]]
  );
  return [
    svg("rect", { class: chosen ? "card chosen" : "card", ...at, rx: 3 }),
    svg("text", { class: "tick strong", x: at.x + 6, y: at.y + 16 }, shortName(name, at.width - 12)),
    ...rows.flatMap(([symbol, value], k) => {
      const y = at.y + 16 + (k + 1) * LINE;
      return [
        svg("text", { class: "tick", x: at.x + 6, y }, symbol),
        svg("text", { class: "cell", x: at.x + at.width - 6, y, "text-anchor": "end" }, cardNumber(value, at.width - 26)),
      ];
    }),
  ];
}

/** @param {Layer} layer @param {Neuron} neuron */
function tooltip({ title, weights, activation }, { name, z, normalized, a, delta, bias }) {
  if (!weights) return [name, `x ${formatNumber(a)}`];
  const g = activation === "identity" ? "" : ` = ${activation}(${normalized === undefined ? "z" : "u"})`;
  return [
    `${title}, ${name}`,
    `z ${formatNumber(z)}`,
    ...(normalized === undefined ? [] : [`u, normalized ${formatNumber(normalized)}`]),
    `a${g} ${formatNumber(a)}`,
    `δ = ∂L/∂z ${formatNumber(delta)}`,
    ...(bias === null ? [] : [`bias ${formatNumber(bias)}`]),
  ];
}

// --- the sums ---

/**
 * Draw the forward and backward sums of a neuron, side by side if there is room.
 * @param {Layer[]} layers @param {string} key @param {number} top @param {number} width
 */
function neuronSums(layers, key, top, width) {
  const [l, j] = key.split(".").map(Number);
  const layer = layers[l];
  const title = `${layer.title}, ${layer.neurons[j].name}`;
  const tables = [forward(layers, l, j), backward(layers, l, j)];
  const sideBySide = width >= 700;
  const room = sideBySide ? (width - 40) / 2 : width;
  /** @type {SVGElement[]} */
  const marks = [svg("text", { class: "name strong", x: 0, y: top + 14 }, shorten(title, width))];
  let [x, y, bottom] = [0, top + 24, top];
  for (const table of tables) {
    const drawn = drawTable(table, x, y, Math.min(room, 480));
    marks.push(...drawn.marks);
    bottom = Math.max(bottom, drawn.bottom);
    if (sideBySide) x += room + 40;
    else y = drawn.bottom + 10;
  }
  return { marks, bottom };
}

/**
 * @typedef {{ cells: string[], strong?: boolean, ruled?: boolean }} Line
 * @typedef {{ title: string, heads: string[], lines: Line[] }} Sheet
 */

/**
 * z = Σ w a + b, a = g(z), and the gradients of the weights.
 * @param {Layer[]} layers @param {number} l @param {number} j @returns {Sheet}
 */
function forward(layers, l, j) {
  const { weights = [], gradients = [], activation = "", neurons: own, hidden_inputs: hidden = 0 } = layers[l];
  const { z, a, bias, delta, rest, normalized } = own[j];
  const first = l === 1;
  const product = (/** @type {number | null | undefined} */ p, /** @type {number | null | undefined} */ q) =>
    formatNumber(typeof p === "number" && typeof q === "number" ? Number((p * q).toPrecision(4)) : null);
  const lines = layers[l - 1].neurons.map((source, i) => ({
    cells: [
      source.name,
      formatNumber(weights[j][i]),
      formatNumber(source.a),
      product(weights[j][i], source.a),
      formatNumber(gradients[j][i]),
    ],
  }));
  if (rest !== null && rest !== undefined) lines.push({ cells: [`${hidden} more`, "", "", formatNumber(rest), ""] });
  if (bias !== null && bias !== undefined)
    lines.push({ cells: ["bias", formatNumber(bias), "1", formatNumber(bias), formatNumber(delta)] });
  /** @type {Line[]} */
  const end = [{ cells: ["z, the sum", "", "", formatNumber(z), ""], strong: true, ruled: true }];
  if (normalized !== undefined) end.push({ cells: ["u, normalized", "", "", formatNumber(normalized), ""] });
  const argument = normalized === undefined ? "z" : "u";
  if (activation !== "identity")
    end.push({ cells: [`a = ${activation}(${argument})`, "", "", formatNumber(a), ""], strong: true });
  return {
    title: "Forward, and the weights' gradients",
    heads: ["from", "w", first ? "x" : "a", first ? "w · x" : "w · a", first ? "∂L/∂w = δ · x" : "∂L/∂w = δ · a"],
    lines: [...lines, ...end],
  };
}

/**
 * δ = g′(z) Σ w δ, or the gradient of the loss for an output.
 * @param {Layer[]} layers @param {number} l @param {number} j @returns {Sheet}
 */
function backward(layers, l, j) {
  const { delta, back, back_rest: rest, slope, how } = layers[l].neurons[j];
  const next = layers[l + 1];
  if (!next) {
    /** @type {Line[]} */
    const steps = [{ cells: [how ?? "∂L/∂z", "", "", formatNumber(delta)], strong: true }];
    if (typeof back === "number" && typeof slope === "number")
      steps.unshift(
        { cells: ["∂L/∂a = −y/a + (1 − y)/(1 − a)", "", "", formatNumber(back)], strong: true },
        { cells: ["times the slope ∂a/∂z = a (1 − a)", "", "", formatNumber(slope)] },
        { cells: ["δ = ∂L/∂z = a − y", "", "", ""] },
      );
    return { title: "Backward, from the loss", heads: ["δ of the output", "", "", ""], lines: steps };
  }
  const lines = next.neurons.map((target, k) => {
    const w = next.weights?.[k][j] ?? null;
    return {
      cells: [
        target.name,
        formatNumber(w),
        formatNumber(target.delta),
        formatNumber(w === null ? null : Number((w * (target.delta ?? 0)).toPrecision(4))),
      ],
    };
  });
  if (rest !== null && rest !== undefined)
    lines.push({ cells: [`${next.of - next.neurons.length} more`, "", "", formatNumber(rest)] });
  const through = slope === null ? "through the normalization" : "times the slope ∂a/∂z";
  return {
    title: "Backward, from the layer after",
    heads: ["to", "w", "δ", "w · δ"],
    lines: [
      ...lines,
      { cells: ["∂L/∂a, the sum", "", "", formatNumber(back)], strong: true, ruled: true },
      { cells: [through, "", "", slope === null ? "" : formatNumber(slope)] },
      { cells: ["δ = ∂L/∂z", "", "", formatNumber(delta)], strong: true, ruled: true },
    ],
  };
}

/**
 * Draw a table.
 * @param {Sheet} sheet @param {number} x @param {number} y @param {number} width
 */
function drawTable({ title, heads, lines }, x, y, width) {
  const count = heads.length - 1;
  const needs = (/** @type {string[]} */ named) =>
    named.slice(1).map((head, k) => {
      return 10 + Math.max(46, textWidth(head, 12), ...lines.map(({ cells }) => textWidth(cells[k + 1] ?? "", 12)));
    });
  const sum = (/** @type {number[]} */ widths) => widths.reduce((a, b) => a + b, 0);
  const named = Math.max(...lines.map(({ cells }) => (cells[1] ? textWidth(cells[0], 12) : 0))) + 8;
  if (width - sum(needs(heads)) < named) heads = heads.map((head) => head.split(" = ")[0]);
  const each = needs(heads); // numbers are never truncated
  const spare = Math.max(0, width - sum(each) - 150);
  const columns = each.map((own) => own + Math.min(14, spare / count));
  const name = width - sum(columns);
  const right = (/** @type {number} */ k) => x + name + columns.slice(0, k + 1).reduce((a, b) => a + b, 0);
  const marks = [
    svg("text", { class: "tick strong", x, y: y + 14 }, title),
    ...heads.map((head, k) =>
      svg(
        "text",
        { class: "tick", x: k === 0 ? x : right(k - 1), y: y + 34, "text-anchor": k === 0 ? "start" : "end" },
        head,
      ),
    ),
    svg("line", { class: "axis", x1: x, x2: x + width, y1: y + 40, y2: y + 40 }),
  ];
  let at = y + 56;
  for (const { cells, strong, ruled } of lines) {
    if (ruled) marks.push(svg("line", { class: "axis", x1: x, x2: x + width, y1: at - 13, y2: at - 13 }));
    cells.forEach((cell, k) => {
      if (!cell) return;
      const room = k === 0 ? (cells[1] ? name - 6 : name + columns[0] + columns[1] - 6) : columns[k - 1] - 2;
      marks.push(
        svg(
          "text",
          {
            class: strong ? "cell strong" : "cell",
            x: k === 0 ? x : right(k - 1),
            y: at,
            "text-anchor": k === 0 ? "start" : "end",
          },
          k === 0 ? shortName(cell, room) : cell,
        ),
      );
    });
    at += 18;
  }
  return { marks, bottom: at };
}
