// Grid of small heatmaps: filters, feature maps, attention heads. The range of the colours can be selected, and a click
// enlarges one map.

import { heading } from "./axes.js";
import { colourRange } from "./colour.js";
import { canvas, shorten, svg, textWidth } from "./dom.js";
import { number } from "./format.js";
import { COLOUR_BAR_HEIGHT, colourBar } from "./colour_bar.js";
import { heatmap } from "./raster.js";
import { sizeOf } from "./png.js";

/**
 * @typedef {import("./raster.js").Values} Values
 * @typedef {"unit" | "layer" | "global"} Reach
 * @typedef {{ label: string, group?: string, values?: Values | null, image?: string | null, tip: string[],
 *   key?: string }} Tile `image`: data: URL, in place of values
 * @typedef {{ title: string, scale: "signed" | "amount", range?: Reach, tiles: Tile[], pixel?: number }} Tiles
 *   `pixel`: screen pixels per value, if there is room
 * @typedef {import("./explore.js").Target} Target
 * @typedef {import("./colour.js").Range} Range
 */

const GAP = 12;
const [SMALL, LARGE] = [64, 176]; // pixels, longer side of a tile
const LABEL = 84; // maximum pixels of a label below a small tile
const OPENED = 440; // maximum pixels of an enlarged map
const CELLS = 1024; // up to this number, values of an enlarged map are keyboard targets
const REACHES = [
  { value: "unit", name: "of each map" },
  { value: "layer", name: "of its group" },
  { value: "global", name: "of all maps" },
];

/**
 * @param {Tiles} spec @param {number} width @param {{ range?: Reach, open?: number | null }} [state]
 * @returns {import("./explore.js").Drawn}
 */
export function tiles(spec, width, state = {}) {
  const reach = state.range ?? spec.range ?? "layer";
  const groups = groupTiles(spec.tiles);
  const ranges = tileRanges(spec, groups, reach);
  const mapped = spec.tiles.some((tile) => tile.values);
  const open = state.open !== null && state.open !== undefined && spec.tiles[state.open] ? state.open : null;
  /** @type {(SVGElement | null)[]} */
  const parts = [heading(spec.title)];
  /** @type {Target[]} */
  const targets = [];
  let y = 30;
  if (mapped && reach !== "layer") {
    parts.push(legend(0, y, Math.min(width, 220), reach === "unit" ? null : ranges[0], spec.scale));
    y += COLOUR_BAR_HEIGHT + 14;
  }
  for (const [name, members] of groups) {
    if (name) parts.push(svg("text", { class: "name strong", x: 0, y: y + 12 }, shorten(name, width, 13, 600)));
    if (name) y += 22;
    if (mapped && reach === "layer") {
      parts.push(legend(0, y, Math.min(width, 220), ranges[members[0]], spec.scale));
      y += COLOUR_BAR_HEIGHT + 10;
    }
    const [wide, high] = tileSize(spec, members, width);
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
        tip: tooltip(tile),
        key: tile.key ?? `${tile.group ?? ""} ${tile.label}`,
        set: tile.values ? { open: i === open ? null : i } : undefined,
        at: pixelTarget(tile, place),
      });
      // The enlarged map is drawn below its row of tiles, so that earlier tiles do not move.
      const shown = open === null ? -1 : members.indexOf(open);
      if (shown < 0 || k !== Math.min(members.length, (Math.floor(shown / columns) + 1) * columns) - 1) return;
      const drawn = enlargedTile(spec.tiles[members[shown]], ranges[members[shown]], width, y + high + 28);
      parts.push(...drawn.parts);
      targets.push(...drawn.targets);
      y += drawn.height;
    });
    y += high + 36;
  }
  const controls = mapped && spec.tiles.length > 1 ? [rangeControl(reach, groups.size)] : [];
  return { svg: canvas(width, y, ...parts), targets, columns: 0, controls };
}

/** @param {Reach} value @param {number} groups */
function rangeControl(value, groups) {
  const options = REACHES.filter((one) => groups > 1 || one.value !== "layer" || value === "layer");
  return { key: "range", label: "Colours span the values", value, options };
}

/**
 * Return the indices of tiles by group, in order of appearance.
 * @param {Tile[]} tiles
 */
function groupTiles(tiles) {
  /** @type {Map<string, number[]>} */
  const groups = new Map();
  tiles.forEach(({ group = "" }, i) => groups.set(group, [...(groups.get(group) ?? []), i]));
  return groups;
}

/**
 * Return the colour range of each tile.
 * @param {Tiles} spec @param {Map<string, number[]>} groups @param {Reach} reach
 * @returns {Range[]}
 */
function tileRanges({ tiles, scale }, groups, reach) {
  const of = (/** @type {Tile[]} */ some) => colourRange(some.map((tile) => tile.values ?? []), scale);
  if (reach === "unit") return tiles.map((tile) => of([tile]));
  if (reach === "global") {
    const all = of(tiles);
    return tiles.map(() => all);
  }
  const found = new Map([...groups].map(([name, members]) => [name, of(members.map((i) => tiles[i]))]));
  return tiles.map(({ group = "" }) => /** @type {Range} */ (found.get(group)));
}

/**
 * Return the colour bar: with numbers if maps share a range, otherwise with relative labels.
 * @param {number} x @param {number} y @param {number} width @param {Range | null} range
 * @param {"signed" | "amount"} scale
 */
function legend(x, y, width, range, scale) {
  if (range) return colourBar(x, y, width, range);
  const own = { scale, low: scale === "signed" ? -1 : 0, high: 1 };
  return colourBar(x, y, width, own, "number", scale === "signed" ? ["−most", "0", "+most"] : ["0", "most"]);
}

/**
 * Return the width and height of the tiles of a group, with whole screen pixels per value.
 * @param {Tiles} spec @param {number[]} members @param {number} width
 */
function tileSize({ tiles, pixel }, members, width) {
  let [columns, rows] = [1, 1];
  for (const i of members) {
    const [wide, high] = gridShape(tiles[i]);
    [columns, rows] = [Math.max(columns, wide), Math.max(rows, high)];
  }
  const wanted = Math.max(SMALL, Math.min(LARGE, Math.sqrt((width * 480) / tiles.length) - GAP));
  const longer = Math.max(columns, rows);
  let each = pixel ?? (longer <= wanted ? Math.floor(wanted / longer) : wanted / longer);
  each = Math.min(each, width / columns);
  return [columns * each, Math.max(rows * each, Math.min(12, columns * each))];
}

/** Return the number of columns and rows. @param {Tile} tile */
function gridShape({ values, image }) {
  if (values) return [values[0]?.length ?? 1, values.length];
  return (image && sizeOf(image)) || [64, 64];
}

/**
 * @param {Tile} tile @param {Range} range @param {import("./raster.js").Place} place
 */
function image({ values, image: url }, range, place) {
  if (values) return heatmap(values, range, place);
  const ground = svg("rect", { class: "mat", ...place });
  if (!url?.startsWith("data:image/")) return ground;
  return svg("g", {}, ground, svg("image", { class: imageClass(url, place.width), href: url, ...place }));
}

/**
 * Return the CSS class of an image: without smoothing if it is much smaller than its area.
 * @param {string} url @param {number} width
 */
export function imageClass(url, width) {
  const size = sizeOf(url);
  return size && size[0] * 1.5 <= width ? "picture" : "photo";
}

/** @param {Tile} tile @returns its description and the range of its values */
function tooltip({ label, tip, values }) {
  const own = tip.length > 0 ? tip : [label];
  if (!values) return own;
  const found = values.flat().filter((value) => typeof value === "number" && Number.isFinite(value));
  if (found.length === 0) return [...own, "no values"];
  const [low, high] = [found.reduce((a, b) => Math.min(a, b)), found.reduce((a, b) => Math.max(a, b))];
  return [...own, low === high ? `all ${number(low)}` : `from ${number(low)} to ${number(high)}`];
}

/**
 * Return a function that finds the value at a point of a map.
 * @param {{ label: string, tip: string[], values?: Values | null }} tile @param {import("./raster.js").Place} place
 */
export function pixelTarget({ label, tip, values }, place) {
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
 * Draw an enlarged map, with a target per value unless there are too many.
 * @param {Tile} tile @param {Range} range @param {number} width @param {number} y
 */
function enlargedTile(tile, range, width, y) {
  const [columns, rows] = gridShape(tile);
  const each = Math.min(OPENED / Math.max(columns, rows), width / columns);
  const place = { x: 0, y: y + 22, width: columns * each, height: rows * each };
  const closer = pixelTarget(tile, place);
  /** @type {Target[]} */
  const targets = [];
  for (let k = 0; k < rows * columns && rows * columns <= CELLS; k++) {
    const [i, j] = [Math.floor(k / columns), k % columns];
    const found = closer?.(place.x + (j + 0.5) * each, place.y + (i + 0.5) * each);
    if (found) targets.push({ ...found, set: { open: null } });
  }
  if (targets.length === 0) {
    targets.push({ box: [place.x, place.y, place.width, place.height], tip: tooltip(tile), set: { open: null }, at: closer });
  }
  const parts = [
    svg("text", { class: "name strong", x: 0, y: y + 12 }, shorten(tile.tip[0] ?? tile.label, width, 13, 600)),
    image(tile, range, place),
  ];
  return { parts, targets, height: place.height + 44 };
}
