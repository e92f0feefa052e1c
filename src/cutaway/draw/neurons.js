// A small network by its numbers: in every neuron z, a and δ; of the one that is chosen, how they come about.

import { heading } from "./axes.js";
import { canvas, shorten, svg, textWidth } from "./dom.js";
import { number } from "./format.js";
import { wire, wireTargets } from "./wires.js";

/**
 * Of the layers but the first, `weights` and `gradients` have a row for each neuron shown, a column for each of those
 * before it. `rest` is what neurons add that are not shown, `back_rest` likewise going back; `slope` is ∂a/∂z, null where
 * neurons are normalized together; `how` says where the δ of an output comes from.
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
const [LEAST, MOST] = [72, 108]; // pixels of a card's width
const [LINE, GAP] = [16, 12]; // of a line in a card, and between cards

/**
 * @param {Neurons} spec @param {number} width @param {State} [state]
 * @returns {import("./explore.js").Drawn}
 */
export function neurons(spec, width, state = {}) {
  const { layers } = spec;
  const last = layers.length - 1;
  const pitch = Math.max(LEAST + 16, width / layers.length);
  const card = Math.min(MOST, Math.max(LEAST, pitch - 34));
  const wide = Math.max(width, layers.length * pitch); // of a deep network: the stage scrolls
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
  const chosen = known(layers, state.neuron) ?? known(layers, state.chosen) ?? strongest(layers);
  const most = Math.max(0, ...layers.flatMap(({ weights = [] }) => weights.flat().map((w) => Math.abs(w ?? 0))));
  const wires = layers.map((layer, l) => (l === 0 ? [] : wiresTo(layers, l, box)));
  const look = (/** @type {import("./wires.js").Wire} */ { key }) => {
    if (state.edge) return key === state.edge ? "strong" : "faint";
    const [to, from] = key.split(" ");
    return to === chosen ? "strong" : from === chosen ? "" : "faint";
  };
  /** @type {Target[]} */
  const targets = [];
  const cards = layers.flatMap((layer, l) => {
    targets.push(...wireTargets(wires[l], layers[l - 1]?.neurons.length ?? 1));
    return layer.neurons.flatMap((neuron, i) => {
      const [at, key] = [box(l, i), `${l}.${i}`];
      const bias = neuron.bias ?? null;
      const act =
        bias === null
          ? {}
          : { act: { do: "weight", name: `${layer.name}.bias`, index: [neuron.index ?? i], value: bias } };
      targets.push({
        box: [at.x, at.y, at.width, at.height],
        tip: tipOf(layer, neuron),
        key,
        set: { chosen: key },
        ...act,
      });
      return cardOf(neuron, at, key === chosen);
    });
  });
  const titles = layers.flatMap(({ title, of, neurons: shown, activation }, l) => {
    const middle = { x: l * pitch + pitch / 2, "text-anchor": "middle" };
    const some = of > shown.length ? `${shown.length} of ${of}` : "";
    const under = [some, l > 0 && l < last ? activation : ""].filter(Boolean).join(", ");
    return [
      svg("text", { class: "tick strong", ...middle, y: TOP }, shorten(title, pitch - 4, 12, 600)),
      svg("text", { class: "tick", ...middle, y: TOP + 15 }, shorten(under, pitch - 4, 12)),
    ];
  });
  const bottom = TOP + 26 + tall + 20;
  const sums = unfolded(layers, chosen, bottom, width);
  return {
    svg: canvas(
      wide,
      sums.bottom + 8,
      heading(shorten(spec.title, width, 15)),
      ...wires.flat().map((one) => wire(one, most, look(one))),
      ...titles,
      ...cards,
      ...sums.marks,
    ),
    targets,
    columns: 0,
  };
}

/** @param {Layer[]} layers @param {string | null | undefined} key of a neuron with a sum */
function known(layers, key) {
  const [l, i] = (key ?? "").split(".").map(Number);
  return l > 0 && layers[l]?.neurons[i] ? `${l}.${i}` : null;
}

/**
 * The neuron that is unfolded at first: the one with the largest δ in the layer before the output, if there is one.
 * @param {Layer[]} layers
 */
function strongest(layers) {
  const l = Math.max(1, layers.length - 2);
  const sizes = layers[l].neurons.map(({ delta }) => Math.abs(delta ?? 0));
  return `${l}.${sizes.indexOf(Math.max(...sizes))}`;
}

/** @param {number | null | undefined} value */
function written(value) {
  return value === null || value === undefined ? "none" : number(value);
}

/**
 * A value in three digits, as a card is small, or in as many as have room: a number that is cut short is another number.
 * @param {number | null | undefined} value @param {number} room in pixels
 */
function brief(value, room) {
  if (typeof value !== "number") return "none";
  return fitting(value, room, 3);
}

/**
 * A number in at most so many digits, fewer where it has no room.
 * @param {number} value @param {number} room in pixels @param {number} digits
 */
function fitting(value, room, digits) {
  for (let d = digits; d > 1; d--) {
    const text = number(Number(value.toPrecision(d)));
    if (textWidth(text, 12) <= room) return text;
  }
  return number(Number(value.toPrecision(1)));
}

/**
 * A neuron's name, or, where that has no room, its number alone.
 * @param {string} name @param {number} room
 */
function short(name, room) {
  const bare = /^(?:neuron|output) (\d+)$/.exec(name);
  return bare && textWidth(name, 12, 600) > room ? bare[1] : shorten(name, room, 12, 600);
}

// --- the network ---

/**
 * @param {Layer[]} layers @param {number} l @param {(l: number, i: number) => Box} box
 * @returns {import("./wires.js").Wire[]}
 */
function wiresTo(layers, l, box) {
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
          `w ${written(w)}`,
          `∂L/∂w ${written(gradients[j]?.[i])}`,
          `${layers[l - 1].neurons[i].name} → ${to[j].name}`,
        ],
        act: { do: "weight", name: `${name}.weight`, index: [to[j].index ?? j, sources[i] ?? i], value: w ?? 0 },
      };
    }),
  );
}

/**
 * A neuron with its numbers.
 * @param {Neuron} neuron @param {Box} at @param {boolean} chosen
 */
function cardOf(neuron, at, chosen) {
  const { name, z, normalized, a, delta } = neuron;
  const rows = /** @type {[string, number | null | undefined][]} */ (
    delta === undefined
      ? [["x", a]]
      : [["z", z], ...(normalized === undefined ? [] : [["u", normalized]]), ["a", a], ["δ", delta]]
  );
  return [
    svg("rect", { class: chosen ? "card chosen" : "card", ...at, rx: 3 }),
    svg("text", { class: "tick strong", x: at.x + 6, y: at.y + 16 }, short(name, at.width - 12)),
    ...rows.flatMap(([symbol, value], k) => {
      const y = at.y + 16 + (k + 1) * LINE;
      return [
        svg("text", { class: "tick", x: at.x + 6, y }, symbol),
        svg("text", { class: "cell", x: at.x + at.width - 6, y, "text-anchor": "end" }, brief(value, at.width - 26)),
      ];
    }),
  ];
}

/** @param {Layer} layer @param {Neuron} neuron */
function tipOf({ title, weights, activation }, { name, z, normalized, a, delta, bias }) {
  if (!weights) return [name, `x ${written(a)}`];
  const g = activation === "identity" ? "" : ` = ${activation}(${normalized === undefined ? "z" : "u"})`;
  return [
    `${title}, ${name}`,
    `z ${written(z)}`,
    ...(normalized === undefined ? [] : [`u, normalized ${written(normalized)}`]),
    `a${g} ${written(a)}`,
    `δ = ∂L/∂z ${written(delta)}`,
    ...(bias === null ? [] : [`bias ${written(bias)}`]),
  ];
}

// --- the sums ---

/**
 * The arithmetic of one neuron: what it adds up, and where its δ comes from. Side by side where there is room.
 * @param {Layer[]} layers @param {string} key @param {number} top @param {number} width
 */
function unfolded(layers, key, top, width) {
  const [l, j] = key.split(".").map(Number);
  const layer = layers[l];
  const title = `${layer.title}, ${layer.neurons[j].name}`;
  const ways = [forward(layers, l, j), backward(layers, l, j)];
  const beside = width >= 700;
  const room = beside ? (width - 40) / 2 : width;
  /** @type {SVGElement[]} */
  const marks = [svg("text", { class: "name strong", x: 0, y: top + 14 }, shorten(title, width))];
  let [x, y, bottom] = [0, top + 24, top];
  for (const way of ways) {
    const drawn = sheet(way, x, y, Math.min(room, 480));
    marks.push(...drawn.marks);
    bottom = Math.max(bottom, drawn.bottom);
    if (beside) x += room + 40;
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
    written(typeof p === "number" && typeof q === "number" ? Number((p * q).toPrecision(4)) : null);
  const lines = layers[l - 1].neurons.map((source, i) => ({
    cells: [
      source.name,
      written(weights[j][i]),
      written(source.a),
      product(weights[j][i], source.a),
      written(gradients[j][i]),
    ],
  }));
  if (rest !== null && rest !== undefined) lines.push({ cells: [`${hidden} more`, "", "", written(rest), ""] });
  if (bias !== null && bias !== undefined)
    lines.push({ cells: ["bias", written(bias), "1", written(bias), written(delta)] });
  /** @type {Line[]} */
  const end = [{ cells: ["z, the sum", "", "", written(z), ""], strong: true, ruled: true }];
  if (normalized !== undefined) end.push({ cells: ["u, normalized", "", "", written(normalized), ""] });
  const argument = normalized === undefined ? "z" : "u";
  if (activation !== "identity")
    end.push({ cells: [`a = ${activation}(${argument})`, "", "", written(a), ""], strong: true });
  return {
    title: "Forward, and the weights' gradients",
    heads: ["from", "w", first ? "x" : "a", first ? "w · x" : "w · a", first ? "∂L/∂w = δ · x" : "∂L/∂w = δ · a"],
    lines: [...lines, ...end],
  };
}

/**
 * δ = g′(z) Σ w δ, or what the loss says of an output.
 * @param {Layer[]} layers @param {number} l @param {number} j @returns {Sheet}
 */
function backward(layers, l, j) {
  const { delta, back, back_rest: rest, slope, how } = layers[l].neurons[j];
  const next = layers[l + 1];
  if (!next) {
    return {
      title: "Backward, from the loss",
      heads: ["δ of the output", "", "", ""],
      lines: [{ cells: [how ?? "∂L/∂z", "", "", written(delta)], strong: true }],
    };
  }
  const lines = next.neurons.map((target, k) => {
    const w = next.weights?.[k][j] ?? null;
    return {
      cells: [
        target.name,
        written(w),
        written(target.delta),
        written(w === null ? null : Number((w * (target.delta ?? 0)).toPrecision(4))),
      ],
    };
  });
  if (rest !== null && rest !== undefined)
    lines.push({ cells: [`${next.of - next.neurons.length} more`, "", "", written(rest)] });
  const through = slope === null ? "through the normalization" : "times the slope ∂a/∂z";
  return {
    title: "Backward, from the layer after",
    heads: ["to", "w", "δ", "w · δ"],
    lines: [
      ...lines,
      { cells: ["∂L/∂a, the sum", "", "", written(back)], strong: true, ruled: true },
      { cells: [through, "", "", slope === null ? "" : written(slope)] },
      { cells: ["δ = ∂L/∂z", "", "", written(delta)], strong: true, ruled: true },
    ],
  };
}

/**
 * A small table.
 * @param {Sheet} sheet @param {number} x @param {number} y @param {number} width
 */
function sheet({ title, heads, lines }, x, y, width) {
  const count = heads.length - 1;
  const needs = (/** @type {string[]} */ named) =>
    named.slice(1).map((head, k) => {
      return 10 + Math.max(46, textWidth(head, 12), ...lines.map(({ cells }) => textWidth(cells[k + 1] ?? "", 12)));
    });
  const sum = (/** @type {number[]} */ widths) => widths.reduce((a, b) => a + b, 0);
  const named = Math.max(...lines.map(({ cells }) => (cells[1] ? textWidth(cells[0], 12) : 0))) + 8;
  if (width - sum(needs(heads)) < named) heads = heads.map((head) => head.split(" = ")[0]);
  const each = needs(heads); // every number has its room: cut short it would be another number
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
          k === 0 ? short(cell, room) : cell,
        ),
      );
    });
    at += 18;
  }
  return { marks, bottom: at };
}
