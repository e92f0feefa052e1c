// Decision boundary on a plane of two features: the model's output, and the map of each neuron, connected as a network.

import { heading } from "./axes.js";
import { amountColour, signedColour } from "./colour.js";
import { canvas, shorten, svg, textWidth, setColour, wrapText } from "./dom.js";
import { number, percent, formatTick } from "./format.js";
import { colourBar, COLOUR_BAR_HEIGHT } from "./colour_bar.js";
import { classImage, contour, decodeBytes, levelImage, MAX_BYTE, pathOf, valueAt, zeroLine } from "./byte_maps.js";
import { levels, linear } from "./scale.js";
import { marker } from "./marker.js";
import { drawEdge, edgeTargets } from "./edges.js";

/**
 * `said`: base64 of the predicted class of each cell. `sums`: map whose zero contour is the neuron's line, if it is not
 * the map itself. `weights`: a row per neuron, a column per neuron of the previous layer, whose indices are in `sources`.
 * The `act` of weights and biases opens the studio's weight editor.
 * @typedef {import("./byte_maps.js").Level} Level
 * @typedef {Level & { name: string, input?: number, bias?: number | null, sums?: Level }} Neuron
 * @typedef {{ title: string, of: number, neurons: Neuron[], name?: string, sources?: number[],
 *   weights?: (number | null)[][] }} Column
 * @typedef {Level & { kind: "probability" | "score" | "classes" | "value", names?: string[], name?: string, said?: string,
 *   sure?: string, sums?: Level }} Answer
 * @typedef {{ split: string, at: [number, number][], is: number[] | null }} Points
 * @typedef {{ title: string, axes: { name: string, low: number, high: number }[], size: number, small: number,
 *   answer: Answer, columns: Column[], points: Points[], note: string }} Boundary
 * @typedef {{ neuron?: string | null, pinned?: string | null, edge?: string | null }} State
 * @typedef {import("./raster.js").Place} Place
 * @typedef {import("./explore.js").Target} Target
 */

const TOP = 44;
const THUMB = 46; // maximum pixels of a neuron's map
const STEPS = 7; // keyboard targets along each axis
const BINS = 12; // bins of values, for colours of dots
const MAP_OPACITY = 0.64; // of the large map, so that dots are visible
const PROBABILITIES = [0.1, 0.25, 0.5, 0.75, 0.9]; // level curves of a predicted probability

/**
 * @param {Boundary} spec @param {number} width @param {State} [state]
 * @returns {import("./explore.js").Drawn}
 */
export function boundary(spec, width, state = {}) {
  const wide = width >= 500;
  const labels = 12 + Math.max(...linear(bounds(spec, 1), [0, 1]).ticks.map((t) => textWidth(formatTick(t, "number"), 12)));
  const room = wide ? Math.min(width * (width < 720 ? 0.5 : 0.42), 460 + labels) : Math.min(width, 440 + labels);
  const net = network(spec, wide ? width - room - 24 : width, state);
  const side = Math.round(room - labels - 4);
  const place = {
    x: Math.round((wide ? width - room : 0) + labels),
    y: wide ? TOP : TOP + net.height + 40,
    width: side,
    height: side,
  };
  const plane = drawPlane(spec, place, state);
  const bottom = Math.max(TOP + net.height, plane.bottom) + 6;
  const note = wrapText(spec.note, width).map((line) => shorten(line, width, 12));
  return {
    svg: canvas(
      width,
      bottom + note.length * 17 + 8,
      heading(shorten(spec.title, width, 15)),
      ...net.marks,
      ...plane.marks,
      ...note.map((line, i) => svg("text", { class: "tick", x: 0, y: bottom + 12 + i * 17 }, line)),
    ),
    targets: [...net.targets, ...plane.targets],
    columns: 0,
  };
}

/** @param {Boundary} spec @param {number} k of the axis @returns {[number, number]} */
function bounds({ axes }, k) {
  return [axes[k].low, axes[k].high];
}

// --- the network ---

/**
 * Draw the neurons' maps in columns, and the weights between them.
 * @param {Boundary} spec @param {number} width @param {State} state
 */
function network(spec, width, state) {
  const { columns, small } = spec;
  const pitch = width / columns.length;
  const thumb = Math.round(Math.max(14, Math.min(THUMB, pitch * 0.5)));
  const named = (/** @type {number} */ c) => c === 0 || c === columns.length - 1;
  const rows = Math.max(...columns.map((column) => column.neurons.length));
  const high = thumb + 20;
  const height = Math.max(rows * high, 3 * high) + 6;
  const left = (/** @type {number} */ c) => Math.round(c * pitch + (pitch - thumb) / 2);
  const place = (/** @type {number} */ c, /** @type {number} */ i) => {
    const n = columns[c].neurons.length;
    return {
      x: left(c),
      y: Math.round(TOP + 28 + (height - 28) * ((i + 0.5) / n) - thumb / 2 - 6),
      width: thumb,
      height: thumb,
    };
  };
  const shown = state.neuron ?? state.pinned;
  const most = Math.max(0, ...columns.flatMap((column) => (column.weights ?? []).flat().map((w) => Math.abs(w ?? 0))));
  const wires = columns.map((column, c) => (c === 0 ? [] : edgesTo(spec, c, place)));
  const look = (/** @type {import("./edges.js").Wire} */ { key }) => {
    if (state.edge) return key === state.edge ? "strong" : "";
    const [to, from] = key.split(" ");
    return !shown ? "" : to === shown || from === shown ? "strong" : "faint";
  };
  const curves = wires
    .flat()
    .sort((a, b) => Math.abs(a.weight) - Math.abs(b.weight))
    .map((one) => drawEdge(one, most, look(one)));
  const titles = columns.flatMap(({ title, of, neurons }, c) => {
    const middle = { x: left(c) + thumb / 2, "text-anchor": "middle" };
    const some = of > neurons.length ? `${neurons.length} of ${of}` : "";
    return [
      svg("text", { class: "tick strong", ...middle, y: TOP }, shorten(title, pitch - 4, 12, 600)),
      some ? svg("text", { class: "tick", ...middle, y: TOP + 15 }, some) : null,
    ];
  });
  /** @type {Target[]} */
  const targets = [];
  const maps = columns.flatMap((column, c) => {
    targets.push(...edgeTargets(wires[c], columns[c - 1]?.neurons.length ?? 1));
    return column.neurons.flatMap((neuron, i) => {
      const [at, key] = [place(c, i), `${c}.${i}`];
      const line = zeroLine(neuron.sums ?? neuron, small, at);
      const curves = levelCurves(spec, neuron, at);
      const bias = neuron.bias ?? null;
      targets.push({
        box: [at.x, at.y, thumb, thumb],
        tip: [
          neuron.name,
          ...valueRange(neuron),
          ...(curves.length > 0 ? [`level curves at ${curves.map(({ label }) => label).join(", ")}`] : []),
          ...(bias === null ? [] : [`bias ${number(bias)}`]),
          shown === key && !state.neuron ? "" : "Click to pin its map.",
        ].filter(Boolean),
        key,
        hover: { neuron: key },
        set: { pinned: state.pinned === key ? null : key },
        ...(bias === null ? {} : { act: { do: "weight", name: `${column.name}.bias`, index: [i], value: bias } }),
      });
      return [
        levelImage(neuron, small, at, "signed"),
        curves.length > 0 ? svg("path", { class: "isoline", d: curves.map(({ lines }) => pathOf(lines)).join("") }) : null,
        line ? svg("path", { class: "level", d: line }) : null,
        svg("rect", { class: key === shown ? "frame chosen" : "frame", ...at, rx: 2 }),
        bias === null
          ? null
          : setColour(
              svg("rect", { class: "bias", x: at.x - 3, y: at.y + thumb - 5, width: 8, height: 8, rx: 2 }),
              signedColour(Math.sign(bias) * (0.3 + 0.7 * Math.min(1, Math.abs(bias) / (most || 1)))),
            ),
        named(c)
          ? svg(
              "text",
              { class: "tick", x: at.x + thumb / 2, y: at.y + thumb + 14, "text-anchor": "middle" },
              shorten(neuron.name, pitch - 8, 12),
            )
          : null,
      ];
    });
  });
  return { marks: [...curves, ...titles, ...maps], targets, height };
}

/**
 * Return the edges that lead to the neurons of a column.
 * @param {Boundary} spec @param {number} c @param {(c: number, i: number) => Place} place
 * @returns {import("./edges.js").Wire[]}
 */
function edgesTo({ columns }, c, place) {
  const { neurons, weights = [], sources = [], name } = columns[c];
  return weights.flatMap((row, j) =>
    row.map((weight, i) => {
      const [from, to] = [place(c - 1, i), place(c, j)];
      const [source, value] = [columns[c - 1].neurons[i].name, weight ?? 0];
      return {
        from: /** @type {[number, number]} */ ([from.x + from.width, from.y + from.height / 2]),
        to: /** @type {[number, number]} */ ([to.x, to.y + to.height / 2]),
        weight: value,
        key: `${c}.${j} ${c - 1}.${i}`,
        tip: [`weight ${weight === null ? "not finite" : number(weight)}`, `from ${source}`, `to ${neurons[j].name}`],
        act: { do: "weight", name: `${name}.weight`, index: [j, sources[i] ?? i], value },
      };
    }),
  );
}

/**
 * Return the smallest and the largest byte of a map.
 * @param {Level} level @returns {[number, number]}
 */
function byteRange(level) {
  const bytes = decodeBytes(level.bytes);
  return [bytes.reduce((a, b) => Math.min(a, b), MAX_BYTE), bytes.reduce((a, b) => Math.max(a, b), 0)];
}

/** @param {Level} level */
function valueRange(level) {
  const [low, high] = byteRange(level);
  const value = (/** @type {number} */ byte) =>
    number(Number((level.low + (byte / MAX_BYTE) * (level.high - level.low)).toPrecision(2)));
  return [low === high ? `${value(low)} everywhere` : `from ${value(low)} to ${value(high)}`];
}

// --- level curves ---

/** @typedef {{ label: string, lines: [number, number][][] }} LevelCurve */

/**
 * Return the level curves of a map at round values, about five. Those of a probability are at fixed percentages of the
 * second class, and those of an input at round values of its axis.
 * @param {Boundary} spec @param {Neuron | Answer} map @param {Place} place
 * @returns {LevelCurve[]}
 */
function levelCurves(spec, map, place) {
  const step = (map.high - map.low) / MAX_BYTE; // values are stored in such steps
  const [least, most] = byteRange(map).map((byte) => map.low + byte * step);
  const size = "kind" in map ? spec.size : spec.small;
  /** @type {{ value: number, label: string }[]} */
  let wanted;
  if ("kind" in map && map.kind === "probability") {
    wanted = PROBABILITIES.map((p) => ({ value: 2 * p - 1, label: `${100 * p}\u202f%` }));
  } else if ("input" in map && map.input !== undefined) {
    const [low, high] = bounds(spec, map.input);
    wanted = levels(low, high).map((at) => ({ value: (2 * (at - low)) / (high - low) - 1, label: number(at) }));
  } else {
    wanted = levels(least, most).map((value) => ({ value, label: number(value) }));
  }
  return wanted
    .filter(({ value }) => value > least + step / 2 && value < most - step / 2)
    .map(({ value, label }) => ({ label, lines: contour(value === 0 ? (map.sums ?? map) : map, size, place, value) }));
}

/**
 * Return a label on each level curve of the large map: on its longest line, where it is far from the border and from the
 * labels before it.
 * @param {LevelCurve[]} curves @param {Place} place
 */
function curveLabels(curves, place) {
  /** @type {[number, number][]} */
  const taken = [];
  return curves.flatMap(({ label, lines }) => {
    const wide = textWidth(label, 11) / 2;
    const inside = lines.map((line) =>
      line.filter(
        ([x, y]) =>
          x - wide > place.x + 3 && x + wide < place.x + place.width - 3 && y - 8 > place.y && y + 8 < place.y + place.height,
      ),
    );
    const longest = inside.reduce((a, b) => (b.length > a.length ? b : a), []);
    if (longest.length === 0) return [];
    const free = ([x, y] = [0, 0]) => Math.min(60, ...taken.map(([u, v]) => Math.max(Math.abs(x - u), 2 * Math.abs(y - v))));
    const tries = [0.5, 0.35, 0.65, 0.2, 0.8].map((t) => longest[Math.floor(t * (longest.length - 1))]);
    const spot = tries.reduce((a, b) => (free(b) > free(a) ? b : a));
    if (free(spot) < 18) return [];
    taken.push(spot);
    return [svg("text", { class: "iso-label", x: spot[0], y: spot[1] + 4, "text-anchor": "middle" }, label)];
  });
}

// --- the large map ---

/**
 * Draw the model's output, or the map of the selected neuron, with axes, examples and legend.
 * @param {Boundary} spec @param {Place} place @param {State} state
 */
function drawPlane(spec, place, state) {
  const { answer, columns, axes } = spec;
  const [c, i] = (state.neuron ?? state.pinned ?? "").split(".").map(Number);
  const neuron = columns[c]?.neurons[i];
  const x = linear(bounds(spec, 0), [place.x, place.x + place.width], place.width / 80);
  const y = linear(bounds(spec, 1), [place.y + place.height, place.y], place.height / 60);
  const [map, size] = neuron ? [neuron, spec.small] : [answer, spec.size];
  const scale = neuron || answer.kind === "probability" || answer.kind === "score" ? "signed" : "amount";
  const classes = !neuron && answer.kind === "classes";
  const image = classes
    ? classImage(answer.said ?? "", answer, size, place, classColours(answer), MAP_OPACITY)
    : levelImage(map, size, place, scale, MAP_OPACITY);
  const line = scale === "signed" ? zeroLine((neuron ?? answer).sums ?? map, size, place) : "";
  const curves = classes ? [] : levelCurves(spec, neuron ?? answer, place);
  const title = neuron ? neuron.name : answer.kind === "value" ? String(answer.name) : "the model's output";
  const bottom = place.y + place.height;
  const ticks = [
    ...x.ticks.map((v) =>
      svg("text", { class: "tick", x: x(v), y: bottom + 17, "text-anchor": anchor(x(v), place) }, formatTick(v, "number")),
    ),
    ...y.ticks.map((v) =>
      svg("text", { class: "tick", x: place.x - 7, y: y(v) + 4, "text-anchor": "end" }, formatTick(v, "number")),
    ),
  ];
  const half = place.width / 2 - 8;
  const key = legend(spec, neuron, place, bottom + 46);
  return {
    marks: [
      svg(
        "text",
        { class: "tick strong", x: place.x + place.width, y: place.y - 8, "text-anchor": "end" },
        shorten(title, Math.max(half, place.width - textWidth(`↑ ${axes[1].name}`, 12) - 16), 12, 600),
      ),
      svg("text", { class: "tick", x: place.x, y: place.y - 8 }, `↑ ${shorten(axes[1].name, half - 14, 12)}`),
      svg(
        "text",
        { class: "tick", x: place.x + place.width, y: bottom + 34, "text-anchor": "end" },
        `${shorten(axes[0].name, half, 12)} →`,
      ),
      image,
      curves.length > 0 ? svg("path", { class: "isoline", d: curves.map(({ lines }) => pathOf(lines)).join("") }) : null,
      line ? svg("path", { class: "level", d: line }) : null,
      ...exampleMarks(spec, x, y, place),
      ...curveLabels(curves, place),
      svg("rect", { class: "frame", ...place }),
      ...ticks,
      ...key.marks,
    ],
    targets: planeTargets(spec, place, neuron),
    bottom: key.bottom,
  };
}

/** @param {number} at @param {Place} place */
function anchor(at, { x, width }) {
  return at - x < 12 ? "start" : x + width - at < 12 ? "end" : "middle";
}

/** @param {Answer} answer */
function classColours({ names = [] }) {
  if (names.length === 2) return [signedColour(-1), signedColour(1)];
  return names.slice(0, 8).map((_, k) => marker(k, 1).colour);
}

/**
 * Draw the examples: training examples as dots, test examples as rings. One path per colour, for speed.
 * @param {Boundary} spec @param {import("./scale.js").Scale} x @param {import("./scale.js").Scale} y
 * @param {Place} place
 */
function exampleMarks({ points, answer }, x, y, place) {
  const count = points.reduce((sum, { at }) => sum + at.length, 0);
  const r = count > 150 ? 2.6 : count > 20 ? 3.4 : 6;
  const colours = classColours(answer);
  const { low, high } = answer;
  return points.flatMap(({ split, at, is }) => {
    const ring = split === "test";
    /** @type {globalThis.Map<number, string>} */
    const paths = new globalThis.Map();
    at.forEach(([u, v], i) => {
      const [cx, cy] = [x(u), y(v)];
      if (!(cx >= place.x && cx <= place.x + place.width && cy >= place.y && cy <= place.y + place.height)) return;
      const value = is?.[i];
      const bin =
        value === undefined || value === null
          ? -1
          : answer.kind === "value"
            ? binOf(value, low, high)
            : value % (colours.length || 1);
      const circle = `M${(cx - r).toFixed(1)} ${cy.toFixed(1)}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0`;
      paths.set(bin, (paths.get(bin) ?? "") + circle);
    });
    return [...paths].map(([bin, d]) => {
      const path = svg("path", { class: ring ? "ringed" : "dotted", d });
      if (bin < 0) return path;
      const colour = answer.kind === "value" ? amountColour(bin / (BINS - 1)) : colours[bin];
      return setColour(path, colour, ring ? "stroke" : "fill");
    });
  });
}

/** @param {number} value @param {number} low @param {number} high */
function binOf(value, low, high) {
  return Math.max(0, Math.min(BINS - 1, Math.round(((value - low) / (high - low || 1)) * (BINS - 1))));
}

/**
 * Draw the legend of the colours and examples.
 * @param {Boundary} spec @param {Neuron | undefined} neuron @param {Place} place @param {number} y
 */
function legend(spec, neuron, place, y) {
  const { answer, points } = spec;
  const marks = [];
  let below = y;
  if (!neuron && answer.kind === "classes") {
    let x = place.x;
    const colours = classColours(answer);
    (answer.names ?? []).forEach((name, k) => {
      const word = shorten(name, place.width - 20, 12);
      const wide = 18 + textWidth(word, 12) + 14;
      if (x > place.x && x + wide > place.x + place.width + 14) [x, below] = [place.x, below + 18];
      marks.push(setColour(svg("rect", { x, y: below, width: 12, height: 10, rx: 1 }), colours[k % colours.length]));
      marks.push(svg("text", { class: "tick", x: x + 18, y: below + 9 }, word));
      x += wide;
    });
    below += 24;
  } else {
    const { low, high } = neuron ?? answer;
    const range = {
      scale: /** @type {"signed" | "amount"} */ (neuron || answer.kind !== "value" ? "signed" : "amount"),
      low,
      high,
    };
    const ends = (answer.names ?? []).map((name) => shorten(name, place.width / 2 - 24, 12));
    const names =
      neuron || answer.kind === "value" ? undefined : [ends[0], answer.kind === "probability" ? "50\u202f%" : "0", ends[1]];
    marks.push(colourBar(place.x, below, place.width, range, "number", names, MAP_OPACITY));
    below += COLOUR_BAR_HEIGHT + 4;
  }
  let x = place.x;
  for (const { split, at } of points) {
    const ring = split === "test";
    const word =
      split === "examples" ? "examples" : `${split} examples, ${number(at.length)}${at.length >= 200 ? " shown" : ""}`;
    const wide = 16 + textWidth(word, 12);
    if (x > place.x && x + wide > place.x + place.width) [x, below] = [place.x, below + 18];
    marks.push(svg("circle", { class: ring ? "ringed plain" : "dotted", cx: x + 5, cy: below + 5, r: 3.6 }));
    marks.push(svg("text", { class: "tick", x: x + 16, y: below + 9 }, word));
    x += wide + 18;
  }
  return { marks, bottom: below + 20 };
}

/**
 * Return the hover targets of the plane: any point for the pointer, a coarse grid for the keyboard.
 * @param {Boundary} spec @param {Place} place @param {Neuron | undefined} neuron
 * @returns {Target[]}
 */
function planeTargets(spec, place, neuron) {
  const { axes, small, size, answer } = spec;
  const [xs, ys] = [bounds(spec, 0), bounds(spec, 1)];
  const tip = (/** @type {number} */ u, /** @type {number} */ v) => {
    const value = (/** @type {number[]} */ [low, high], /** @type {number} */ t) =>
      number(Number((low + t * (high - low)).toPrecision(3)));
    const cell = (/** @type {number} */ n) => [Math.min(n - 1, Math.floor(v * n)), Math.min(n - 1, Math.floor(u * n))];
    const where = `${axes[0].name} ${value(xs, u)}, ${axes[1].name} ${value(ys, 1 - v)}`;
    const [row, column] = cell(neuron ? small : size);
    const found = neuron
      ? `${neuron.name}: ${number(Number(valueAt(neuron, small, row, column).toPrecision(2)))}`
      : answerAt(answer, size, row, column);
    return [found, where];
  };
  const within = (/** @type {number} */ t) => Math.max(0, Math.min(0.9999, t));
  /** @type {Target[]} */
  const targets = [];
  for (let i = 0; i < STEPS; i++) {
    for (let j = 0; j < STEPS; j++) {
      const [u, v] = [(j + 0.5) / STEPS, (i + 0.5) / STEPS];
      targets.push({ box: [place.x + u * place.width - 4, place.y + v * place.height - 4, 8, 8], tip: tip(u, v) });
    }
  }
  const whole = {
    box: [place.x, place.y, place.width, place.height],
    tip: targets[Math.floor(targets.length / 2)].tip,
    at: (/** @type {number} */ px, /** @type {number} */ py) => {
      const [u, v] = [within((px - place.x) / place.width), within((py - place.y) / place.height)];
      return { box: [place.x + u * place.width - 4, place.y + v * place.height - 4, 8, 8], tip: tip(u, v) };
    },
  };
  return [whole, ...targets];
}

/**
 * Return a text of the output in a cell.
 * @param {Answer} answer @param {number} size @param {number} row @param {number} column
 */
function answerAt(answer, size, row, column) {
  const value = valueAt(answer, size, row, column);
  const { kind, names = [], name } = answer;
  if (kind === "value") return `${name} ${number(Number(value.toPrecision(3)))}`;
  if (kind === "classes") {
    const className = names[decodeBytes(answer.said ?? "")[row * size + column]] ?? "";
    return answer.sure === "probability"
      ? `${className}, ${percent(Number(value.toFixed(3)))}`
      : `${className}, margin ${number(Number(value.toPrecision(2)))}`;
  }
  const side = names[value > 0 ? 1 : 0];
  if (kind === "probability") return `${side}, ${percent(Number(((1 + Math.abs(value)) / 2).toFixed(3)))}`;
  return `${side}, score ${number(Number(value.toPrecision(2)))}`;
}
