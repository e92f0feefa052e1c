// Heatmaps as images: one pixel per value, enlarged without smoothing.
// Missing values are transparent and show the hatching below.

import { buildPalette, scalePosition } from "./colour.js";
import { svg } from "./dom.js";
import { png } from "./png.js";

/**
 * @typedef {(number | null)[][]} Values rows of numbers, from the top
 * @typedef {import("./colour.js").Range} Range
 * @typedef {{ x: number, y: number, width: number, height: number }} Place
 */

const LEVELS = 255; // shades; the last index of the palette is for missing values
/** @type {WeakMap<Values, Map<string, string>>} */
const imageCache = new WeakMap(); // hovering redraws the same maps

/**
 * Return values as an SVG image. With `fade`, small values are transparent.
 * @param {Values} values @param {Range} range @param {Place} place @param {{ fade?: boolean, opacity?: number }} [look]
 */
export function rasterImage(values, range, { x, y, width, height }, { fade = false, opacity } = {}) {
  const columns = values[0]?.length ?? 0;
  const larger = width >= columns && height >= values.length;
  return svg("image", {
    class: larger ? "picture" : "fine",
    href: imageUrl(values, range, fade),
    x,
    y,
    width: Math.max(0, width),
    height: Math.max(0, height),
    opacity,
    preserveAspectRatio: "none",
  });
}

/**
 * Return a heatmap, with hatching in place of missing values.
 * @param {Values} values @param {Range} range @param {Place} place
 */
export function heatmap(values, range, place) {
  const gaps = values.some((row) => row.some((value) => !Number.isFinite(value)));
  return svg("g", {}, gaps ? hatching(place) : null, rasterImage(values, range, place));
}

/**
 * Return hatching for an area without values.
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

/** Return true in dark mode. Print is always light. */
export function isDark() {
  return globalThis.matchMedia?.("screen and (prefers-color-scheme: dark)").matches ?? false;
}

/**
 * Return the heatmap as a data: URL.
 * @param {Values} values @param {Range} range @param {boolean} fade
 */
function imageUrl(values, range, fade) {
  const theme = isDark() ? "dark" : "light";
  const name = [theme, range.scale, range.low, range.high, fade].join(" ");
  let known = imageCache.get(values);
  if (!known) imageCache.set(values, (known = new Map()));
  let url = known.get(name);
  if (!url) {
    if (known.size > 8) known.clear();
    known.set(name, (url = draw(values, range, theme, fade)));
  }
  return url;
}

/**
 * @param {Values} values @param {Range} range @param {"light" | "dark"} theme @param {boolean} fade
 */
function draw(values, range, theme, fade) {
  const [height, width] = [values.length, values[0]?.length ?? 0];
  if (height === 0 || width === 0) return png(1, 1, new Uint8Array([0]), [[0, 0, 0, 0]]);
  const pixels = new Uint8Array(height * width);
  values.forEach((row, i) => {
    for (let j = 0; j < width; j++) {
      const value = row[j];
      const known = typeof value === "number" && Number.isFinite(value);
      pixels[i * width + j] = known ? Math.round(scalePosition(value, range) * (LEVELS - 1)) : LEVELS;
    }
  });
  return png(width, height, pixels, [...buildPalette(range.scale, theme, LEVELS, fade), [0, 0, 0, 0]]);
}
