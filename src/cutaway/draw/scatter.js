// Scatter plot of embeddings; the hovered point is connected to its nearest neighbours.

import { heading } from "./axes.js";
import { clampIndex, selectControl } from "./controls.js";
import { canvas, wrapLines, shorten, svg, textWidth, setColour } from "./dom.js";
import { twoDigits } from "./format.js";
import { marker } from "./marker.js";
import { visibleToken } from "./tokens.js";

/**
 * `places`: projections with coordinates `at` of all points, drawn with equal scales; `x` and `y` name the axes, and a
 * `note` is shown below. `measures`: similarity measures; `of` has the indices of each point's neighbours, nearest first,
 * and `values` their similarities. `paths`: points joined by lines. `group`: index in `groups`. `labels`: show labels
 * where there is room. `point`: the point selected at first.
 * @typedef {{ label: string, group: number | null, tip?: string[], image?: string | null, key?: string }} Point
 * @typedef {{ name: string, x: string, y: string, note?: string, at: [number, number][] }} Places
 * @typedef {{ name: string, of: number[][], values: number[][] }} Measure
 * @typedef {{ title: string, points: Point[], groups: string[], places: Places[], measures: Measure[], labels: boolean,
 *   paths?: number[][], point?: number | null }} Scatter
 * @typedef {{ place?: number, measure?: number, point?: number, group?: number }} State
 */

const INSIDE = 14; // pixels between the frame and the outermost points
const LINE = 16;

/**
 * @param {Scatter} spec @param {number} width @param {State} [state]
 * @returns {import("./explore.js").Drawn}
 */
export function scatter(spec, width, state = {}) {
  const { points, groups, places, measures } = spec;
  const place = clampIndex(state.place, places.length);
  const measure = clampIndex(state.measure, measures.length);
  const selected = state.point ?? spec.point ?? -1;
  const chosen = selected >= 0 && selected < points.length ? selected : -1;
  const near = measures[measure];
  const nearest = chosen < 0 ? [] : (near?.of[chosen] ?? []);

  const top = 26;
  const illustrated = points.some((point) => image(point));
  const words = measures.length > 0 ? neighbourSentence(spec, near, chosen) : "";
  const axes = places.some((one) => one.y);
  const strip = illustrated ? Math.min(72, Math.floor(width / 7)) : 0;
  const { x: across, y: up, note = "" } = places[place] ?? { x: "", y: "" };
  const most = words ? wrapLines(longestSentence(spec, near), width, 5).length : 0;
  const lines = words ? wrapLines(words, width, most) : [];
  const room = words ? most * LINE + 6 : 0; // fixed, so that the layout does not move
  const above = top + room + (strip ? strip + 8 : 0) + (axes ? LINE + 4 : 0);
  const frame = { x: 0, y: above, width, height: Math.round(Math.min(width * 0.75, 520)) };
  const spots = fitToFrame(places[place]?.at ?? [], frame);
  const r = Math.max(2.5, Math.min(5, Math.sqrt((frame.width * frame.height) / (points.length * 60))));

  /** @type {Element[]} */
  const marks = [];
  /** @type {Element[]} */
  const first = [];
  points.forEach((point, i) => {
    const { colour, path } = marker(point.group, i === chosen ? r + 2 : r);
    const [x, y] = spots[i];
    const faded = state.group !== undefined && point.group !== state.group;
    const mark = svg("path", { class: faded ? "spot faint" : "spot", d: path, transform: `translate(${x} ${y})` });
    (i === chosen ? first : marks).push(setColour(mark, colour));
  });
  const ties = nearest.map((j) => {
    const [[x1, y1], [x2, y2]] = [spots[chosen], spots[j]];
    return svg("line", { class: "tie", x1, y1, x2, y2 });
  });
  const tied = chosen < 0 ? [] : [chosen, ...nearest];
  const named = spec.labels ? [...tied, ...points.keys()] : tied;
  const labels = placeLabels([...new Set(named)].map((i) => ({ i, text: visibleToken(points[i].label) })), spots, frame, new Set(tied));
  const paths = (spec.paths ?? []).map((path) => {
    const d = path.map((i, n) => `${n ? "L" : "M"}${spots[i].map((v) => v.toFixed(1)).join(" ")}`).join("");
    return line(d, points[path[0]]?.group ?? null);
  });
  const under = frame.y + frame.height;
  const below = note ? wrapLines(note, width, 3) : [];
  const key = legend(groups, points, width, under + (across ? 42 : 24 + below.length * LINE));
  const drawing = canvas(
    width,
    key.bottom,
    heading(spec.title),
    ...lines.map((line, n) => svg("text", { class: "tick", x: 0, y: top + 12 + n * LINE }, line)),
    ...(strip && chosen >= 0 ? imageStrip(points, [chosen, ...nearest], strip, top + room) : []),
    svg("rect", { class: "frame", ...frame, rx: 2 }),
    ...paths,
    ...ties,
    ...marks,
    ...first,
    ...labels.map(({ text, x, y, strong }) => svg("text", { class: strong ? "name strong" : "name", x, y }, text)),
    across ? svg("text", { class: "tick", x: width, y: under + 18, "text-anchor": "end" }, `${across} →`) : null,
    ...below.map((line, n) => svg("text", { class: "tick", x: 0, y: under + 18 + n * LINE }, line)),
    up ? svg("text", { class: "tick", x: 0, y: frame.y - 6 }, `↑ ${up}`) : null,
    ...key.elements,
  );
  const order = [...points.keys()].sort((a, b) => spots[a][0] - spots[b][0]);
  const targets = [
    ...order.map((i) => ({
      box: [spots[i][0] - 5, spots[i][1] - 5, 10, 10],
      tip: tip(spec, near, i),
      hover: { point: i },
      set: { point: i },
      ...(points[i].key === undefined ? {} : { key: points[i].key }),
    })),
    ...key.targets,
  ];
  const controls = [
    ...selectControl("place", "projection", places, place),
    ...selectControl("measure", "similarity", measures, measure),
  ];
  return { svg: drawing, targets, columns: 0, controls };
}

/**
 * Map coordinates into the frame, with equal scales on both axes.
 * @param {[number, number][]} at @param {{ x: number, y: number, width: number, height: number }} frame
 * @returns {[number, number][]}
 */
export function fitToFrame(at, frame) {
  const span = (/** @type {0 | 1} */ axis) => {
    const low = at.reduce((least, p) => Math.min(least, p[axis]), Infinity);
    const high = at.reduce((most, p) => Math.max(most, p[axis]), -Infinity);
    return { middle: (low + high) / 2, length: high - low };
  };
  const [x, y] = [span(0), span(1)];
  const room = { x: frame.width - 2 * INSIDE, y: frame.height - 2 * INSIDE };
  const unit = Math.min(x.length > 0 ? room.x / x.length : Infinity, y.length > 0 ? room.y / y.length : Infinity);
  const scale = Number.isFinite(unit) ? unit : 0; // all points coincide: centre
  return at.map(([a, b]) => [
    frame.x + frame.width / 2 + (a - x.middle) * scale,
    frame.y + frame.height / 2 - (b - y.middle) * scale,
  ]);
}

/**
 * Return a sentence about the nearest neighbours of the selected point.
 * @param {Scatter} spec @param {Measure | undefined} near @param {number} chosen
 */
function neighbourSentence({ points }, near, chosen) {
  if (chosen < 0 || near === undefined) return "Hover over a point to see its nearest neighbours.";
  const parts = near.of[chosen].map((j, n) => `${visibleToken(points[j].label)} ${twoDigits(near.values[chosen][n])}`);
  return `${visibleToken(points[chosen].label)} is nearest to ${parts.join(", ") || "nothing"}`;
}

/** Return the longest sentence of any point. @param {Scatter} spec @param {Measure | undefined} near */
function longestSentence(spec, near) {
  const all = spec.points.map((_, i) => neighbourSentence(spec, near, i));
  return all.reduce((a, b) => (b.length > a.length ? b : a), neighbourSentence(spec, near, -1));
}

/** @param {Scatter} spec @param {Measure | undefined} near @param {number} i */
function tip({ points, groups }, near, i) {
  const { label, group, tip: more = [] } = points[i];
  const of = near?.of[i] ?? [];
  const parts = of.map((j, n) => `${visibleToken(points[j].label)} ${twoDigits(near?.values[i][n] ?? 0)}`);
  return [
    visibleToken(label),
    ...(group === null || groups.length < 2 ? [] : [groups[group]]),
    ...more,
    ...(parts.length ? [`nearest by ${near?.name}: ${parts.join(", ")}`] : []),
  ];
}

/** Return the image if it is embedded in the page. @param {Point} point */
function image(point) {
  return point.image?.startsWith("data:image/") ? point.image : null;
}

/**
 * Draw the selected example and its neighbours as images.
 * @param {Point[]} points @param {number[]} which @param {number} size @param {number} y
 */
function imageStrip(points, which, size, y) {
  return which.flatMap((i, n) => {
    const place = { x: n * (size + 6) + (n ? 10 : 0), y, width: size, height: size };
    const href = image(points[i]);
    return [
      svg("rect", { class: "mat", ...place, rx: 2 }),
      ...(href ? [svg("image", { class: "picture", href, ...place })] : []),
    ];
  });
}

/**
 * Place labels beside their points without overlap; earlier candidates take precedence.
 * @param {{ i: number, text: string }[]} candidates @param {[number, number][]} spots
 * @param {{ x: number, y: number, width: number, height: number }} frame @param {Set<number>} strong
 */
function placeLabels(candidates, spots, frame, strong) {
  /** @type {{ text: string, x: number, y: number, strong: boolean }[]} */
  const labels = [];
  /** @type {number[][]} */
  const occupied = [];
  for (const { i, text } of candidates) {
    const [px, py] = spots[i];
    const weight = strong.has(i) ? 600 : 400;
    const shownText = shorten(text, strong.has(i) ? Math.min(240, frame.width - 16) : 150, 12, weight);
    const wide = textWidth(shownText, 12, weight);
    const right = px + 8 + wide <= frame.x + frame.width;
    const x = right ? px + 8 : px - 8 - wide;
    const box = [x, py - 7, x + wide, py + 7];
    const free = x >= frame.x && occupied.every(([a, b, c, d]) => box[2] < a || c < box[0] || box[3] < b || d < box[1]);
    if (!free) continue;
    occupied.push(box);
    labels.push({ text: shownText, x, y: py + 4, strong: strong.has(i) });
  }
  return labels;
}

/** @param {string} d @param {number | null} group */
function line(d, group) {
  return setColour(svg("path", { class: "thread", d }), marker(group, 1).colour, "stroke");
}

/**
 * Draw the legend of groups; hovering one fades the others.
 * @param {string[]} groups @param {Point[]} points @param {number} width @param {number} y
 */
function legend(groups, points, width, y) {
  /** @type {Element[]} */
  const elements = [];
  /** @type {import("./explore.js").Target[]} */
  const targets = [];
  if (groups.length < 2) return { elements, targets, bottom: y };
  let [x, row] = [0, y];
  groups.forEach((group, g) => {
    const name = shorten(visibleToken(group), Math.min(160, width - 20), 12);
    const wide = textWidth(name, 12) + 34;
    if (x > 0 && x + wide - 16 > width) [x, row] = [0, row + 22];
    const { colour, path } = marker(g, 5);
    elements.push(
      setColour(svg("path", { class: "spot", d: path, transform: `translate(${x + 6} ${row})` }), colour),
      svg("text", { class: "tick", x: x + 17, y: row + 4 }, name),
    );
    const count = points.filter((point) => point.group === g).length;
    targets.push({ box: [x, row - 9, wide - 14, 18], tip: [group, `${count} shown`], hover: { group: g } });
    x += wide;
  });
  return { elements, targets, bottom: row + 20 };
}
