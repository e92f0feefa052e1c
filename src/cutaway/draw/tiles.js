// Many small maps side by side: filters, feature maps, heads. Whoever looks chooses what the strongest colour stands
// for, and opens one map to see each of its values.

import { heading } from "./axes.js";
import { rangeOf } from "./colour.js";
import { canvas, shorten, svg, textWidth } from "./dom.js";
import { number } from "./format.js";
import { KEY_HIGH, key } from "./key.js";
import { map } from "./raster.js";
import { sizeOf } from "./png.js";

/**
 * @typedef {import("./raster.js").Values} Values
 * @typedef {"unit" | "layer" | "global"} Reach
 * @typedef {{ label: string, group?: string, values?: Values | null, image?: string | null, tip: string[],
 *   key?: string }} Tile `image`, a data: URL, stands in place of values
 * @typedef {{ title: string, scale: "signed" | "amount", range?: Reach, tiles: Tile[], pixel?: number }} Tiles
 *   `pixel`: screen pixels for each value, where they have room
 * @typedef {import("./explore.js").Target} Target
 * @typedef {import("./colour.js").Range} Range
 */

const GAP = 12;
const [SMALL, LARGE] = [64, 176]; // pixels of a tile's longer side
const LABEL = 84; // that a name below a small tile may take
const OPENED = 440; // the most of one that was opened
const CELLS = 1024; // values of an opened map that the keyboard can go through
const REACHES = [
  { value: "unit", name: "of each map by itself" },
  { value: "layer", name: "of its group" },
  { value: "global", name: "of all maps" },
];

/**
 * @param {Tiles} spec @param {number} width @param {{ range?: Reach, open?: number | null }} [state]
 * @returns {import("./explore.js").Drawn}
 */
export function tiles(spec, width, state = {}) {
  const reach = state.range ?? spec.range ?? "layer";
  const groups = grouped(spec.tiles);
  const ranges = rangesOf(spec, groups, reach);
  const mapped = spec.tiles.some((tile) => tile.values);
  const open = state.open !== null && state.open !== undefined && spec.tiles[state.open] ? state.open : null;
  /** @type {(SVGElement | null)[]} */
  const parts = [heading(spec.title)];
  /** @type {Target[]} */
  const targets = [];
  let y = 30;
  if (mapped && reach !== "layer") {
    parts.push(legend(0, y, Math.min(width, 220), reach === "unit" ? null : ranges[0], spec.scale));
    y += KEY_HIGH + 14;
  }
  for (const [name, members] of groups) {
    if (name) parts.push(svg("text", { class: "name strong", x: 0, y: y + 12 }, shorten(name, width, 13, 600)));
    if (name) y += 22;
    if (mapped && reach === "layer") {
      parts.push(legend(0, y, Math.min(width, 220), ranges[members[0]], spec.scale));
      y += KEY_HIGH + 10;
    }
    const [wide, high] = sideOf(spec, members, width);
    const widest = Math.max(...members.map((i) => textWidth(spec.tiles[i].label, 12)));
    const step = Math.max(wide, Math.min(44, width), Math.min(widest + 6 - GAP, LABEL, width)) + GAP;
    const columns = Math.max(1, Math.floor((width + GAP) / step));
    members.forEach((i, k) => {
      if (k > 0 && k % columns === 0) y += high + 28;
      const [x, top] = [(k % columns) * step, y];
      const place = { x, y: top, width: wide, height: high };
      const tile = spec.tiles[i];
      parts.push(image(tile, ranges[i], place));
      if (i === open) parts.push(svg("rect", { class: "chosen", ...place }));
      parts.push(svg("text", { class: "tick", x, y: top + high + 15 }, shorten(tile.label, step - 6, 12)));
      targets.push({
        box: [x, top, wide, high],
        tip: words(tile),
        key: tile.key ?? `${tile.group ?? ""} ${tile.label}`,
        set: tile.values ? { open: i === open ? null : i } : undefined,
        at: at(tile, place),
      });
      // What is open stands below the line of tiles that it is one of, so that no tile before it moves.
      const shown = open === null ? -1 : members.indexOf(open);
      if (shown < 0 || k !== Math.min(members.length, (Math.floor(shown / columns) + 1) * columns) - 1) return;
      const drawn = opened(spec.tiles[members[shown]], ranges[members[shown]], width, y + high + 28);
      parts.push(...drawn.parts);
      targets.push(...drawn.targets);
      y += drawn.height;
    });
    y += high + 36;
  }
  const controls = mapped && spec.tiles.length > 1 ? [reachControl(reach, groups.size)] : [];
  return { svg: canvas(width, y, ...parts), targets, columns: 0, controls };
}

/** @param {Reach} value @param {number} groups */
function reachControl(value, groups) {
  const options = REACHES.filter((one) => groups > 1 || one.value !== "layer" || value === "layer");
  return { key: "range", label: "Colours span the values", value, options };
}

/**
 * The numbers of the tiles by the name of their group, in the order in which groups come.
 * @param {Tile[]} tiles
 */
function grouped(tiles) {
  /** @type {Map<string, number[]>} */
  const groups = new Map();
  tiles.forEach(({ group = "" }, i) => groups.set(group, [...(groups.get(group) ?? []), i]));
  return groups;
}

/**
 * The range of each tile.
 * @param {Tiles} spec @param {Map<string, number[]>} groups @param {Reach} reach
 * @returns {Range[]}
 */
function rangesOf({ tiles, scale }, groups, reach) {
  const of = (/** @type {Tile[]} */ some) => rangeOf(some.map((tile) => tile.values ?? []), scale);
  if (reach === "unit") return tiles.map((tile) => of([tile]));
  if (reach === "global") {
    const all = of(tiles);
    return tiles.map(() => all);
  }
  const found = new Map([...groups].map(([name, members]) => [name, of(members.map((i) => tiles[i]))]));
  return tiles.map(({ group = "" }) => /** @type {Range} */ (found.get(group)));
}

/**
 * The key: with numbers where maps share a range, with words where each has its own.
 * @param {number} x @param {number} y @param {number} width @param {Range | null} range
 * @param {"signed" | "amount"} scale
 */
function legend(x, y, width, range, scale) {
  if (range) return key(x, y, width, range);
  const own = { scale, low: scale === "signed" ? -1 : 0, high: 1 };
  return key(x, y, width, own, "number", scale === "signed" ? ["−most", "0", "+most"] : ["0", "most"]);
}

/**
 * The width and height of the tiles of a group: as large as all of them suggest, whole screen pixels for each value.
 * @param {Tiles} spec @param {number[]} members @param {number} width
 */
function sideOf({ tiles, pixel }, members, width) {
  let [columns, rows] = [1, 1];
  for (const i of members) {
    const [wide, high] = shapeOf(tiles[i]);
    [columns, rows] = [Math.max(columns, wide), Math.max(rows, high)];
  }
  const wanted = Math.max(SMALL, Math.min(LARGE, Math.sqrt((width * 480) / tiles.length) - GAP));
  const longer = Math.max(columns, rows);
  let each = pixel ?? (longer <= wanted ? Math.floor(wanted / longer) : wanted / longer);
  each = Math.min(each, width / columns);
  return [columns * each, Math.max(rows * each, Math.min(12, columns * each))];
}

/** @param {Tile} tile columns and rows */
function shapeOf({ values, image }) {
  if (values) return [values[0]?.length ?? 1, values.length];
  return (image && sizeOf(image)) || [64, 64];
}

/**
 * @param {Tile} tile @param {Range} range @param {import("./raster.js").Place} place
 */
function image({ values, image: url }, range, place) {
  if (values) return map(values, range, place);
  const ground = svg("rect", { class: "mat", ...place });
  if (!url?.startsWith("data:image/")) return ground;
  return svg("g", {}, ground, svg("image", { class: look(url, place.width), href: url, ...place }));
}

/**
 * How an image is enlarged: pixel by pixel where it is clearly smaller than its place.
 * @param {string} url @param {number} width
 */
export function look(url, width) {
  const size = sizeOf(url);
  return size && size[0] * 1.5 <= width ? "picture" : "photo";
}

/** @param {Tile} tile what to say of it: its own words, and from where to where its values go */
function words({ label, tip, values }) {
  const own = tip.length > 0 ? tip : [label];
  if (!values) return own;
  const found = values.flat().filter((value) => typeof value === "number" && Number.isFinite(value));
  if (found.length === 0) return [...own, "no values"];
  const [low, high] = [found.reduce((a, b) => Math.min(a, b)), found.reduce((a, b) => Math.max(a, b))];
  return [...own, low === high ? `all ${number(low)}` : `from ${number(low)} to ${number(high)}`];
}

/**
 * What stands at a place of a map, for the pointer.
 * @param {{ label: string, tip: string[], values?: Values | null }} tile @param {import("./raster.js").Place} place
 */
export function at({ label, tip, values }, place) {
  if (!values) return undefined;
  const [rows, columns] = [values.length, values[0]?.length ?? 0];
  const [wide, high] = [place.width / columns, place.height / rows];
  return (/** @type {number} */ x, /** @type {number} */ y) => {
    const [i, j] = [Math.floor((y - place.y) / high), Math.floor((x - place.x) / wide)];
    if (i < 0 || j < 0 || i >= rows || j >= columns) return null;
    const value = values[i][j];
    return {
      box: [place.x + j * wide, place.y + i * high, wide, high],
      tip: [typeof value === "number" ? number(value) : "no value", tip[0] ?? label, `row ${i + 1}, column ${j + 1}`],
    };
  };
}

/**
 * One map large, with a target for every value where these are not too many.
 * @param {Tile} tile @param {Range} range @param {number} width @param {number} y
 */
function opened(tile, range, width, y) {
  const [columns, rows] = shapeOf(tile);
  const each = Math.min(OPENED / Math.max(columns, rows), width / columns);
  const place = { x: 0, y: y + 22, width: columns * each, height: rows * each };
  const closer = at(tile, place);
  /** @type {Target[]} */
  const targets = [];
  for (let k = 0; k < rows * columns && rows * columns <= CELLS; k++) {
    const [i, j] = [Math.floor(k / columns), k % columns];
    const found = closer?.(place.x + (j + 0.5) * each, place.y + (i + 0.5) * each);
    if (found) targets.push({ ...found, set: { open: null } });
  }
  if (targets.length === 0) {
    targets.push({ box: [place.x, place.y, place.width, place.height], tip: words(tile), set: { open: null }, at: closer });
  }
  const parts = [
    svg("text", { class: "name strong", x: 0, y: y + 12 }, shorten(tile.tip[0] ?? tile.label, width, 13, 600)),
    image(tile, range, place),
  ];
  return { parts, targets, height: place.height + 44 };
}
