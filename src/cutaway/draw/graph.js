// Graph of nodes and links; the width of a link is the size of its weight.

import { heading } from "./axes.js";
import { amountColour } from "./colour.js";
import { clampIndex, selectControl } from "./controls.js";
import { canvas, wrapLines, shorten, svg, textWidth, setColour } from "./dom.js";
import { twoDigits } from "./format.js";
import { marker } from "./marker.js";
import { visibleToken } from "./tokens.js";

/**
 * `at`: coordinates in any unit, stretched to fill the frame; positions have no meaning. `links`: pairs of nodes.
 * `weights`: weights of each link in both directions: `[into the first node, into the second]`, null if there is no
 * message. `colours`: groupings of the nodes; `of` has the index of each node's group in `groups`, or null; with
 * `ordered`, groups are steps of one scale. `node`: the node of interest.
 * @typedef {{ label: string, tip?: string[], at: [number, number], key?: string }} Node
 * @typedef {{ name: string, values: [number | null, number | null][] }} Weights
 * @typedef {{ name: string, groups: string[], of: (number | null)[], ordered?: boolean }} Colours
 * @typedef {{ title: string, nodes: Node[], links: [number, number][], weights: Weights[], colours: Colours[],
 *   node?: number | null, labels?: boolean, note?: string }} Graph
 * @typedef {{ weights?: number, colours?: number, node?: number, group?: number | null }} State
 */

const INSIDE = 16; // pixels between the frame and the outermost nodes
const WIDEST = 5; // pixels of the link with the largest weight
const THINNEST = 0.5;
const LINE = 16;
const MAX_NAMED = 6; // neighbours in a sentence

/**
 * @param {Graph} spec @param {number} width @param {State} [state]
 * @returns {import("./explore.js").Drawn}
 */
export function graph(spec, width, state = {}) {
  const { nodes, links } = spec;
  const weights = spec.weights[clampIndex(state.weights, spec.weights.length)];
  const colours = spec.colours[clampIndex(state.colours, spec.colours.length)];
  const chosen = state.node !== undefined && state.node < nodes.length ? state.node : -1;
  const messages = incoming(spec, weights);
  const related = chosen < 0 ? new Set() : new Set([chosen, ...messages[chosen].map(({ from }) => from)]);

  const lines = width < 620 ? 2 : 1;
  const top = 30 + lines * LINE;
  const frame = { x: 0, y: top, width, height: Math.round(Math.min(width * 0.8, 560)) };
  const places = stretchToFrame(nodes.map((node) => node.at), frame);
  const r = Math.max(3, Math.min(7, Math.sqrt((frame.width * frame.height) / ((nodes.length || 1) * 90))));
  const most = largestWeight(weights);
  const into = new Map(chosen < 0 ? [] : messages[chosen].map(({ link, value }) => [link, value]));

  const marks = nodes.map((_, i) => {
    const faded = (state.group !== undefined && colours?.of[i] !== state.group) || (chosen >= 0 && !related.has(i));
    const { colour, path } = nodeMarker(colours, i, i === chosen || i === spec.node ? r + 2 : r);
    const [x, y] = places[i];
    const shape = svg("path", { class: faded ? "spot faint" : "spot", d: path, transform: `translate(${x} ${y})` });
    return { i, element: setColour(shape, colour) };
  });
  const wires = links.map(([a, b], k) => {
    const active = into.has(k);
    const value = active ? (into.get(k) ?? 0) : meanWeight(weights, k);
    const [[x1, y1], [x2, y2]] = [places[a], places[b]];
    const style = chosen < 0 ? "link" : active ? "link into" : "link faint";
    const wide = (THINNEST + (Math.abs(value) / most) * (WIDEST - THINNEST)).toFixed(2);
    return { active, element: svg("line", { class: style, x1, y1, x2, y2, "stroke-width": wide }) };
  });
  const ring = spec.node === null || spec.node === undefined ? null : drawRing(places[spec.node], r + 6);
  const named = chosen >= 0 ? [...related] : spec.labels ? [...nodes.keys()] : ring ? [Number(spec.node)] : [];
  const under = frame.y + frame.height;
  const key = legend(colours, width, under + 20);
  const sentenceLines = wrapLines(sentence(spec, weights, chosen, messages), width, lines);
  const drawing = canvas(
    width,
    key.bottom + (spec.note ? LINE + 4 : 0),
    heading(spec.title),
    ...sentenceLines.map((line, n) => svg("text", { class: "tick", x: 0, y: 38 + n * LINE }, line)),
    ...wires.filter(({ active }) => !active).map(({ element }) => element),
    ...wires.filter(({ active }) => active).map(({ element }) => element),
    ring,
    ...marks.map(({ element }) => element),
    ...labels(spec, named, places, frame, r),
    ...key.elements,
    spec.note ? svg("text", { class: "tick", x: 0, y: key.bottom + 10 }, shorten(spec.note, width, 12)) : null,
  );
  const order = [...nodes.keys()].sort((a, b) => places[a][0] - places[b][0]);
  const targets = order.map((i) => ({
    box: [places[i][0] - r - 1, places[i][1] - r - 1, 2 * r + 2, 2 * r + 2],
    tip: tip(spec, colours, messages[i], i),
    hover: { node: i },
    set: { node: i },
    ...(nodes[i].key === undefined ? {} : { key: nodes[i].key }),
  }));
  const controls = [
    ...selectControl("weights", "messages", spec.weights, clampIndex(state.weights, spec.weights.length)),
    ...selectControl("colours", "colour", spec.colours, clampIndex(state.colours, spec.colours.length)),
  ];
  return { svg: drawing, targets: [...targets, ...key.targets], columns: 0, controls };
}

/**
 * Map coordinates into the frame, each axis with its own scale.
 * @param {[number, number][]} at @param {{ x: number, y: number, width: number, height: number }} frame
 * @returns {[number, number][]}
 */
function stretchToFrame(at, frame) {
  const along = (/** @type {0 | 1} */ axis, /** @type {number} */ start, /** @type {number} */ length) => {
    const values = at.map((place) => place[axis]);
    const low = values.reduce((a, b) => Math.min(a, b), Infinity);
    const high = values.reduce((a, b) => Math.max(a, b), -Infinity);
    const room = length - 2 * INSIDE;
    return values.map((v) => start + INSIDE + (high > low ? (v - low) / (high - low) : 0.5) * room);
  };
  const [x, y] = [along(0, frame.x, frame.width), along(1, frame.y, frame.height)];
  return at.map((_, i) => [x[i], y[i]]);
}

/**
 * Return the messages that each node receives: source, link and weight, largest first. Without weights, all neighbours
 * with weight 0.
 * @param {Graph} spec @param {Weights | undefined} weights
 * @returns {{ from: number, link: number, value: number }[][]}
 */
export function incoming({ nodes, links }, weights) {
  /** @type {{ from: number, link: number, value: number }[][]} */
  const found = nodes.map(() => []);
  links.forEach(([a, b], link) => {
    const [toFirst, toSecond] = weights ? weights.values[link] : [0, 0];
    if (toFirst !== null) found[a].push({ from: b, link, value: toFirst });
    if (toSecond !== null && a !== b) found[b].push({ from: a, link, value: toSecond });
  });
  for (const all of found) all.sort((x, y) => Math.abs(y.value) - Math.abs(x.value));
  return found;
}

/** Return the mean absolute weight of both directions. @param {Weights | undefined} weights @param {number} link */
function meanWeight(weights, link) {
  if (!weights) return 0;
  const both = weights.values[link].filter((value) => value !== null);
  return both.reduce((sum, value) => sum + Math.abs(Number(value)), 0) / (both.length || 1);
}

/** @param {Weights | undefined} weights */
function largestWeight(weights) {
  let most = 0;
  for (const pair of weights?.values ?? []) for (const value of pair) most = Math.max(most, Math.abs(value ?? 0));
  return most || 1;
}

/**
 * Return the colour and shape of a node.
 * @param {Colours | undefined} colours @param {number} i @param {number} r
 */
function nodeMarker(colours, i, r) {
  const group = colours?.of[i] ?? null;
  if (colours?.ordered) {
    if (group === null) return { colour: amountColour(0.08), path: marker(1, r).path };
    return { colour: amountColour(1 - (0.85 * group) / Math.max(1, colours.groups.length - 1)), path: marker(0, r).path };
  }
  if (group !== null) return marker(group, r);
  return { colour: amountColour(colours ? 0.25 : 0.6), path: marker(0, r).path };
}

/** @param {[number, number]} place @param {number} r */
function drawRing([cx, cy], r) {
  return svg("circle", { class: "around", cx, cy, r });
}

/**
 * Return a sentence about the messages that the selected node receives.
 * @param {Graph} spec @param {Weights | undefined} weights @param {number} chosen
 * @param {ReturnType<typeof incoming>} messages
 */
function sentence({ nodes }, weights, chosen, messages) {
  if (chosen < 0) return "Hover over a node to see the messages it receives.";
  const name = visibleToken(nodes[chosen].label);
  const all = messages[chosen];
  if (all.length === 0) return `${name} receives no message from the nodes shown.`;
  const parts = all.slice(0, MAX_NAMED).map(({ from, value }) => {
    const who = from === chosen ? "itself" : visibleToken(nodes[from].label);
    return weights ? `${who} (${twoDigits(value)})` : who;
  });
  const more = all.length > MAX_NAMED ? ` and ${all.length - MAX_NAMED} more` : "";
  return `${name} receives messages from ${parts.join(", ")}${more}`;
}

/** @param {Graph} spec @param {Colours | undefined} colours @param {ReturnType<typeof incoming>[number]} messages @param {number} i */
function tip({ nodes }, colours, messages, i) {
  const { label, tip: more = [] } = nodes[i];
  const group = colours?.of[i];
  const others = messages.filter(({ from }) => from !== i).length;
  return [
    visibleToken(label),
    ...(group === null || group === undefined ? [] : [`${colours?.name}: ${colours?.groups[group]}`]),
    ...more,
    `${others} neighbour${others === 1 ? "" : "s"} shown`,
  ];
}

/**
 * Place labels next to their nodes, without overlap.
 * @param {Graph} spec @param {number[]} wanted @param {[number, number][]} places
 * @param {{ x: number, width: number }} frame @param {number} r
 */
function labels({ nodes }, wanted, places, frame, r) {
  /** @type {number[][]} */
  const occupied = [];
  return wanted.flatMap((i) => {
    const [px, py] = places[i];
    const text = shorten(visibleToken(nodes[i].label), 130, 12);
    const wide = textWidth(text, 12);
    const x = px + r + 4 + wide <= frame.x + frame.width ? px + r + 4 : px - r - 4 - wide;
    const box = [x, py - 7, x + wide, py + 7];
    if (occupied.some(([a, b, c, d]) => box[0] <= c && a <= box[2] && box[1] <= d && b <= box[3])) return [];
    occupied.push(box);
    return [svg("text", { class: "name", x, y: py + 4 }, text)];
  });
}

/**
 * Draw the legend of groups; hovering one fades the others.
 * @param {Colours | undefined} colours @param {number} width @param {number} y
 */
function legend(colours, width, y) {
  /** @type {Element[]} */
  const elements = [];
  /** @type {import("./explore.js").Target[]} */
  const targets = [];
  if (!colours || colours.groups.length === 0) return { elements, targets, bottom: y };
  let [x, row] = [0, y];
  const none = colours.of.includes(null) ? [{ group: colours.ordered ? "unreachable" : "unknown", g: null }] : [];
  [...colours.groups.map((group, g) => ({ group, g })), ...none].forEach(({ group, g }) => {
    const name = shorten(visibleToken(group), Math.min(180, width - 24), 12);
    const wide = textWidth(name, 12) + 34;
    if (x > 0 && x + wide - 16 > width) [x, row] = [0, row + 22];
    const { colour, path } = nodeMarker({ ...colours, of: [g] }, 0, 5);
    elements.push(
      setColour(svg("path", { class: "spot", d: path, transform: `translate(${x + 6} ${row})` }), colour),
      svg("text", { class: "tick", x: x + 17, y: row + 4 }, name),
    );
    const count = colours.of.filter((of) => of === g).length;
    targets.push({ box: [x, row - 9, wide - 14, 18], tip: [group, `${count} shown`], hover: { group: g } });
    x += wide;
  });
  return { elements, targets, bottom: row + 20 };
}
