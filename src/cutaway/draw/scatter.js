// One mark for each example or word, near those that are like it; the one that is pointed at is tied to its neighbours.

import { heading } from "./axes.js";
import { canvas, lined, shorten, svg, textWidth, tint } from "./dom.js";
import { number } from "./format.js";
import { sign } from "./sign.js";
import { seen } from "./tokens.js";

/**
 * Every one of `places` puts all points somewhere, `at` in units of its own, the same across as up; `x` and `y` name its
 * axes, and a `note` stands below. Every one of `measures` says who is near: `of` has the numbers of each point's neighbours, nearest first,
 * `values` how near they are. `paths` are points joined by a line in that order. A `group` is the number of a name in
 * `groups`. `labels`: names stand beside points where they have room. `point` is the one chosen at first.
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
  const place = within(state.place, places.length);
  const measure = within(state.measure, measures.length);
  const asked = state.point ?? spec.point ?? -1;
  const chosen = asked >= 0 && asked < points.length ? asked : -1;
  const near = measures[measure];
  const friends = chosen < 0 ? [] : (near?.of[chosen] ?? []);

  const top = 26;
  const illustrated = points.some((point) => image(point));
  const words = measures.length > 0 ? neighbours(spec, near, chosen) : "";
  const axes = places.some((one) => one.y);
  const strip = illustrated ? Math.min(72, Math.floor(width / 7)) : 0;
  const { x: across, y: up, note = "" } = places[place] ?? { x: "", y: "" };
  const most = words ? lined(longest(spec, near), width, 5).length : 0;
  const said = words ? lined(words, width, most) : [];
  const room = words ? most * LINE + 6 : 0; // the same whatever is said, so that nothing moves
  const above = top + room + (strip ? strip + 8 : 0) + (axes ? LINE + 4 : 0);
  const frame = { x: 0, y: above, width, height: Math.round(Math.min(width * 0.75, 520)) };
  const spots = fitted(places[place]?.at ?? [], frame);
  const r = Math.max(2.5, Math.min(5, Math.sqrt((frame.width * frame.height) / (points.length * 60))));

  /** @type {Element[]} */
  const marks = [];
  /** @type {Element[]} */
  const first = [];
  points.forEach((point, i) => {
    const { colour, path } = sign(point.group, i === chosen ? r + 2 : r);
    const [x, y] = spots[i];
    const apart = state.group !== undefined && point.group !== state.group;
    const mark = svg("path", { class: apart ? "spot faint" : "spot", d: path, transform: `translate(${x} ${y})` });
    (i === chosen ? first : marks).push(tint(mark, colour));
  });
  const ties = friends.map((j) => {
    const [[x1, y1], [x2, y2]] = [spots[chosen], spots[j]];
    return svg("line", { class: "tie", x1, y1, x2, y2 });
  });
  const tied = chosen < 0 ? [] : [chosen, ...friends];
  const named = spec.labels ? [...tied, ...points.keys()] : tied;
  const labels = placed([...new Set(named)].map((i) => ({ i, text: seen(points[i].label) })), spots, frame, new Set(tied));
  const paths = (spec.paths ?? []).map((path) => {
    const d = path.map((i, n) => `${n ? "L" : "M"}${spots[i].map((v) => v.toFixed(1)).join(" ")}`).join("");
    return line(d, points[path[0]]?.group ?? null);
  });
  const under = frame.y + frame.height;
  const below = note ? lined(note, width, 3) : [];
  const key = legend(groups, points, width, under + (across ? 42 : 24 + below.length * LINE));
  const drawing = canvas(
    width,
    key.bottom,
    heading(spec.title),
    ...said.map((line, n) => svg("text", { class: "tick", x: 0, y: top + 12 + n * LINE }, line)),
    ...(strip && chosen >= 0 ? shown(points, [chosen, ...friends], strip, top + room) : []),
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
    ...choice("place", "as", places, place),
    ...choice("measure", "neighbours by", measures, measure),
  ];
  return { svg: drawing, targets, columns: 0, controls };
}

/** @param {number | undefined} wanted @param {number} count */
function within(wanted, count) {
  return Math.max(0, Math.min(wanted ?? 0, count - 1));
}

/**
 * The places in the frame, with one unit across as long as one up.
 * @param {[number, number][]} at @param {{ x: number, y: number, width: number, height: number }} frame
 * @returns {[number, number][]}
 */
export function fitted(at, frame) {
  const span = (/** @type {0 | 1} */ axis) => {
    const low = at.reduce((least, p) => Math.min(least, p[axis]), Infinity);
    const high = at.reduce((most, p) => Math.max(most, p[axis]), -Infinity);
    return { middle: (low + high) / 2, length: high - low };
  };
  const [x, y] = [span(0), span(1)];
  const room = { x: frame.width - 2 * INSIDE, y: frame.height - 2 * INSIDE };
  const unit = Math.min(x.length > 0 ? room.x / x.length : Infinity, y.length > 0 ? room.y / y.length : Infinity);
  const scale = Number.isFinite(unit) ? unit : 0; // all in one place: the middle
  return at.map(([a, b]) => [
    frame.x + frame.width / 2 + (a - x.middle) * scale,
    frame.y + frame.height / 2 - (b - y.middle) * scale,
  ]);
}

/**
 * A list to choose from; none where there is no choice.
 * @param {string} key @param {string} label @param {{ name: string }[]} named @param {number} value
 */
function choice(key, label, named, value) {
  return named.length < 2 ? [] : [{ key, label, value, options: named.map(({ name }, i) => ({ value: i, name })) }];
}

/**
 * In words: who is nearest to the chosen one.
 * @param {Scatter} spec @param {Measure | undefined} near @param {number} chosen
 */
function neighbours({ points }, near, chosen) {
  if (chosen < 0 || near === undefined) return "Point at a mark to see its nearest neighbours.";
  const said = near.of[chosen].map((j, n) => `${seen(points[j].label)} ${rough(near.values[chosen][n])}`);
  return `${seen(points[chosen].label)} is nearest to ${said.join(", ") || "nothing"}`;
}

/** The longest that can be said of any point. @param {Scatter} spec @param {Measure | undefined} near */
function longest(spec, near) {
  const all = spec.points.map((_, i) => neighbours(spec, near, i));
  return all.reduce((a, b) => (b.length > a.length ? b : a), neighbours(spec, near, -1));
}

/** @param {Scatter} spec @param {Measure | undefined} near @param {number} i */
function tip({ points, groups }, near, i) {
  const { label, group, tip: more = [] } = points[i];
  const of = near?.of[i] ?? [];
  const said = of.map((j, n) => `${seen(points[j].label)} ${rough(near?.values[i][n] ?? 0)}`);
  return [
    seen(label),
    ...(group === null || groups.length < 2 ? [] : [groups[group]]),
    ...more,
    ...(said.length ? [`nearest by ${near?.name}: ${said.join(", ")}`] : []),
  ];
}

/** @param {number} value to two digits */
function rough(value) {
  return number(Number(value.toPrecision(2)));
}

/** Only images that lie in the page are shown. @param {Point} point */
function image(point) {
  return point.image?.startsWith("data:image/") ? point.image : null;
}

/**
 * The chosen example and its neighbours as images.
 * @param {Point[]} points @param {number[]} which @param {number} size @param {number} y
 */
function shown(points, which, size, y) {
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
 * Names beside their points, those that come first first, none over another.
 * @param {{ i: number, text: string }[]} wanted @param {[number, number][]} spots
 * @param {{ x: number, y: number, width: number, height: number }} frame @param {Set<number>} strong
 */
function placed(wanted, spots, frame, strong) {
  /** @type {{ text: string, x: number, y: number, strong: boolean }[]} */
  const found = [];
  /** @type {number[][]} */
  const taken = [];
  for (const { i, text } of wanted) {
    const [px, py] = spots[i];
    const weight = strong.has(i) ? 600 : 400;
    const shownText = shorten(text, strong.has(i) ? Math.min(240, frame.width - 16) : 150, 12, weight);
    const wide = textWidth(shownText, 12, weight);
    const right = px + 8 + wide <= frame.x + frame.width;
    const x = right ? px + 8 : px - 8 - wide;
    const box = [x, py - 7, x + wide, py + 7];
    const free = x >= frame.x && taken.every(([a, b, c, d]) => box[2] < a || c < box[0] || box[3] < b || d < box[1]);
    if (!free) continue;
    taken.push(box);
    found.push({ text: shownText, x, y: py + 4, strong: strong.has(i) });
  }
  return found;
}

/** @param {string} d @param {number | null} group */
function line(d, group) {
  return tint(svg("path", { class: "thread", d }), sign(group, 1).colour, "stroke");
}

/**
 * The groups with their signs, in rows; pointing at one lets the others fade.
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
    const name = shorten(seen(group), Math.min(160, width - 20), 12);
    const wide = textWidth(name, 12) + 34;
    if (x > 0 && x + wide - 16 > width) [x, row] = [0, row + 22];
    const { colour, path } = sign(g, 5);
    elements.push(
      tint(svg("path", { class: "spot", d: path, transform: `translate(${x + 6} ${row})` }), colour),
      svg("text", { class: "tick", x: x + 17, y: row + 4 }, name),
    );
    const count = points.filter((point) => point.group === g).length;
    targets.push({ box: [x, row - 9, wide - 14, 18], tip: [group, `${count} shown`], hover: { group: g } });
    x += wide;
  });
  return { elements, targets, bottom: row + 20 };
}
