// Maps with one byte per cell: images, values of cells, and zero contours.

import { buildPalette } from "./colour.js";
import { svg } from "./dom.js";
import { png } from "./png.js";
import { isDark } from "./raster.js";

/**
 * `bytes` is base64 of one byte for each cell, row by row from the top: low + byte / 254 · (high − low).
 * @typedef {{ bytes: string, low: number, high: number }} Level
 * @typedef {import("./raster.js").Place} Place
 */

export const MAX_BYTE = 254; // byte of the highest value; 0 of a signed map is byte 127
const CACHE_SIZE = 256; // cached images: hovering redraws the same ones

/** @type {globalThis.Map<string, string>} */
const imageCache = new globalThis.Map();

/** @type {globalThis.Map<string, Uint8Array>} */
const byteCache = new globalThis.Map();

/** @param {string} bytes base64; the result is cached and must not be modified @returns {Uint8Array} */
export function decodeBytes(bytes) {
  let found = byteCache.get(bytes);
  if (found === undefined) {
    const text = atob(bytes);
    found = new Uint8Array(text.length);
    for (let i = 0; i < text.length; i++) found[i] = text.charCodeAt(i);
    if (byteCache.size >= CACHE_SIZE) byteCache.clear();
    byteCache.set(bytes, found);
  }
  return found;
}

/**
 * Return the value of a cell.
 * @param {Level} level @param {number} size cells to a side @param {number} row @param {number} column
 */
export function valueAt({ bytes, low, high }, size, row, column) {
  return low + (decodeBytes(bytes)[row * size + column] / MAX_BYTE) * (high - low);
}

/**
 * Return a map as a smooth image.
 * @param {Level} level @param {number} size @param {Place} place @param {"signed" | "amount"} scale
 * @param {number} [opacity]
 */
export function levelImage(level, size, place, scale, opacity) {
  const theme = isDark() ? "dark" : "light";
  const url = cachedImage(`${theme} ${scale} ${level.bytes}`, () =>
    png(size, size, decodeBytes(level.bytes), buildPalette(scale, theme, MAX_BYTE + 1)),
  );
  return image(url, place, opacity);
}

/**
 * Return a map of predicted classes: the colour is the class, its strength the confidence.
 * @param {string} predicted base64 of the class of each cell @param {Level} confidence @param {number} size @param {Place} place
 * @param {import("./colour.js").Pair[]} colours of the classes, repeated if there are more classes
 * @param {number} [opacity]
 */
export function classImage(predicted, confidence, size, place, colours, opacity) {
  const theme = isDark() ? "dark" : "light";
  const shades = Math.floor(255 / colours.length);
  const url = cachedImage(`${theme} classes ${predicted} ${confidence.bytes}`, () => {
    const strength = decodeBytes(confidence.bytes);
    const pixels = decodeBytes(predicted).map(
      (k, i) => (k % colours.length) * shades + Math.round((strength[i] / MAX_BYTE) * (shades - 1)),
    );
    const palette = colours.flatMap((pair) => {
      const full = [1, 3, 5].map((i) => parseInt(pair[theme].slice(i, i + 2), 16));
      const grey = theme === "dark" ? 56 : 226;
      return [...Array(shades).keys()].map((i) => {
        const t = 0.1 + (0.9 * i) / Math.max(1, shades - 1);
        return [...full.map((c) => Math.round(grey + (c - grey) * t)), 255];
      });
    });
    return png(size, size, pixels, palette);
  });
  return image(url, place, opacity);
}

/** @param {string} name @param {() => string} make */
function cachedImage(name, make) {
  let url = imageCache.get(name);
  if (url === undefined) {
    if (imageCache.size >= CACHE_SIZE) imageCache.clear();
    imageCache.set(name, (url = make()));
  }
  return url;
}

/** @param {string} href @param {Place} place @param {number} [opacity] */
function image(href, { x, y, width, height }, opacity) {
  return svg("image", { class: "fine", href, x, y, width, height, opacity, preserveAspectRatio: "none" });
}

/**
 * Return the zero contour of a signed map as the `d` of a path, or "" if there is none.
 * @param {Level} level @param {number} size @param {Place} place
 */
export function zeroLine(level, size, place) {
  return pathOf(contour(level, size, place, 0));
}

/** @param {[number, number][][]} lines @returns the `d` of a path of their segments */
export function pathOf(lines) {
  const point = (/** @type {[number, number]} */ [x, y]) => `${x.toFixed(1)} ${y.toFixed(1)}`;
  return lines.map((line) => line.slice(1).map((end, k) => `M${point(line[k])}L${point(end)}`).join("")).join("");
}

/**
 * Return the lines on which a map has a value, by marching squares (the planar case of W. Lorensen, H. Cline, Marching
 * cubes, 1987), with linear interpolation between the centres of cells. A closed line ends at its first point.
 * @param {Level} level @param {number} size cells to a side @param {Place} place @param {number} value
 * @returns {[number, number][][]}
 */
export function contour(level, size, { x, y, width, height }, value) {
  const bytes = decodeBytes(level.bytes);
  const wanted = ((value - level.low) / (level.high - level.low)) * MAX_BYTE; // on the scale of bytes
  const [dx, dy] = [width / size, height / size];
  /** @param {number} i @param {number} j */
  const at = (i, j) => bytes[i * size + j] - wanted;
  /** @type {globalThis.Map<number, [number, number]>} the point on an edge of the grid that the line crosses */
  const points = new globalThis.Map();
  /** @type {globalThis.Map<number, number[]>} the crossed edges next to a crossed edge, at most two */
  const next = new globalThis.Map();
  for (let i = 0; i + 1 < size; i++) {
    for (let j = 0; j + 1 < size; j++) {
      const first = at(i, j) > 0;
      if (at(i, j + 1) > 0 === first && at(i + 1, j + 1) > 0 === first && at(i + 1, j) > 0 === first) continue;
      const corners = [at(i, j), at(i, j + 1), at(i + 1, j + 1), at(i + 1, j)];
      const above = corners.map((corner) => corner > 0);
      const cell = i * size + j;
      const edges = [2 * cell, 2 * (cell + 1) + 1, 2 * (cell + size), 2 * cell + 1]; // top, right, bottom, left
      const crossed = [];
      for (let k = 0; k < 4; k++) {
        if (above[k] === above[(k + 1) % 4]) continue;
        const t = corners[k] / (corners[k] - corners[(k + 1) % 4]);
        const [u, v] = [
          [t, 0],
          [1, t],
          [1 - t, 1],
          [0, 1 - t],
        ][k];
        points.set(edges[k], [x + (j + 0.5 + u) * dx, y + (i + 0.5 + v) * dy]);
        crossed.push(edges[k]);
      }
      for (let k = 0; k + 1 < crossed.length; k += 2) {
        const [a, b] = [crossed[k], crossed[k + 1]];
        next.set(a, [...(next.get(a) ?? []), b]);
        next.set(b, [...(next.get(b) ?? []), a]);
      }
    }
  }
  return joinSegments(points, next);
}

/**
 * Join the crossed edges into lines: first those that begin and end at the border, then the closed ones.
 * @param {globalThis.Map<number, [number, number]>} points @param {globalThis.Map<number, number[]>} next
 * @returns {[number, number][][]}
 */
function joinSegments(points, next) {
  const seen = new Set();
  const lines = [];
  const ends = [...next.keys()].filter((edge) => next.get(edge)?.length === 1);
  for (const start of [...ends, ...next.keys()]) {
    if (seen.has(start)) continue;
    const line = [];
    /** @type {number | undefined} */
    let edge = start;
    while (edge !== undefined) {
      seen.add(edge);
      line.push(/** @type {[number, number]} */ (points.get(edge)));
      edge = next.get(edge)?.find((other) => !seen.has(other));
    }
    if (next.get(start)?.length === 2) line.push(line[0]);
    lines.push(line);
  }
  return lines;
}
