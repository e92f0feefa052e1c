// Maps of numbers as images: one pixel for each number, enlarged without smoothing.
// Where there is no number the image is clear, and shows the hatching that `map` puts under it.

import { paletteOf, place as placeOf } from "./colour.js";
import { svg } from "./dom.js";
import { png } from "./png.js";

/**
 * @typedef {(number | null)[][]} Values rows of numbers, from the top
 * @typedef {import("./colour.js").Range} Range
 * @typedef {{ x: number, y: number, width: number, height: number }} Place
 */

const LEVELS = 255; // shades; the last number of the palette is for no value
/** @type {WeakMap<Values, Map<string, string>>} */
const made = new WeakMap(); // images of maps that have not changed: hovering draws them again and again

/**
 * A map as an SVG image. `fade` lets what lies under it show through where values are small.
 * @param {Values} values @param {Range} range @param {Place} place @param {{ fade?: boolean, opacity?: number }} [look]
 */
export function raster(values, range, { x, y, width, height }, { fade = false, opacity } = {}) {
  const columns = values[0]?.length ?? 0;
  const larger = width >= columns && height >= values.length;
  return svg("image", {
    class: larger ? "picture" : "fine",
    href: imageOf(values, range, fade),
    x,
    y,
    width: Math.max(0, width),
    height: Math.max(0, height),
    opacity,
    preserveAspectRatio: "none",
  });
}

/**
 * A map on its ground: hatched where it has no values.
 * @param {Values} values @param {Range} range @param {Place} place
 */
export function map(values, range, place) {
  const gaps = values.some((row) => row.some((value) => !Number.isFinite(value)));
  return svg("g", {}, gaps ? hatching(place) : null, raster(values, range, place));
}

/**
 * Slanted lines over a place: nothing is known here.
 * @param {Place} place
 */
export function hatching({ x, y, width, height }) {
  let path = "";
  for (let from = 6; from < width + height; from += 6) {
    const [x1, y1] = [Math.max(0, from - height), Math.min(from, height)];
    const [x2, y2] = [Math.min(from, width), Math.max(0, from - width)];
    path += `M${(x + x1).toFixed(1)} ${(y + y1).toFixed(1)}L${(x + x2).toFixed(1)} ${(y + y2).toFixed(1)}`;
  }
  return svg("path", { class: "hatch", d: path });
}

/** Whether drawings are on a dark ground now. Paper is always light. */
export function dark() {
  return globalThis.matchMedia?.("screen and (prefers-color-scheme: dark)").matches ?? false;
}

/**
 * The map as a data: URL.
 * @param {Values} values @param {Range} range @param {boolean} fade
 */
function imageOf(values, range, fade) {
  const ground = dark() ? "dark" : "light";
  const name = [ground, range.scale, range.low, range.high, fade].join(" ");
  let known = made.get(values);
  if (!known) made.set(values, (known = new Map()));
  let url = known.get(name);
  if (!url) {
    if (known.size > 8) known.clear();
    known.set(name, (url = draw(values, range, ground, fade)));
  }
  return url;
}

/**
 * @param {Values} values @param {Range} range @param {"light" | "dark"} ground @param {boolean} fade
 */
function draw(values, range, ground, fade) {
  const [height, width] = [values.length, values[0]?.length ?? 0];
  if (height === 0 || width === 0) return png(1, 1, new Uint8Array([0]), [[0, 0, 0, 0]]);
  const pixels = new Uint8Array(height * width);
  values.forEach((row, i) => {
    for (let j = 0; j < width; j++) {
      const value = row[j];
      const known = typeof value === "number" && Number.isFinite(value);
      pixels[i * width + j] = known ? Math.round(placeOf(value, range) * (LEVELS - 1)) : LEVELS;
    }
  });
  return png(width, height, pixels, [...paletteOf(range.scale, ground, LEVELS, fade), [0, 0, 0, 0]]);
}
