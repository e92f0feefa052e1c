// Maps of one byte for each cell: as images, as numbers, and the lines on which they are zero.

import { paletteOf } from "./colour.js";
import { svg } from "./dom.js";
import { png } from "./png.js";
import { dark } from "./raster.js";

/**
 * `bytes` is base64 of one byte for each cell, row by row from the top: low + byte / 254 · (high − low).
 * @typedef {{ bytes: string, low: number, high: number }} Level
 * @typedef {import("./raster.js").Place} Place
 */

export const MOST = 254; // the byte of the highest value; 0 of a signed map is the byte 127
const KEPT = 256; // images that are kept: hovering draws the same ones again and again

/** @type {globalThis.Map<string, string>} */
const made = new globalThis.Map();

/** @type {globalThis.Map<string, Uint8Array>} */
const read = new globalThis.Map();

/** @param {string} bytes base64; what comes back is not to be written to @returns {Uint8Array} */
export function decoded(bytes) {
  let found = read.get(bytes);
  if (found === undefined) {
    const text = atob(bytes);
    found = new Uint8Array(text.length);
    for (let i = 0; i < text.length; i++) found[i] = text.charCodeAt(i);
    if (read.size >= KEPT) read.clear();
    read.set(bytes, found);
  }
  return found;
}

/**
 * The value of a cell.
 * @param {Level} level @param {number} size cells to a side @param {number} row @param {number} column
 */
export function valueAt({ bytes, low, high }, size, row, column) {
  return low + (decoded(bytes)[row * size + column] / MOST) * (high - low);
}

/**
 * The map as a smooth image.
 * @param {Level} level @param {number} size @param {Place} place @param {"signed" | "amount"} scale
 * @param {number} [opacity]
 */
export function levelImage(level, size, place, scale, opacity) {
  const ground = dark() ? "dark" : "light";
  const url = kept(`${ground} ${scale} ${level.bytes}`, () =>
    png(size, size, decoded(level.bytes), paletteOf(scale, ground, MOST + 1)),
  );
  return image(url, place, opacity);
}

/**
 * A map of classes, each in its colour, the paler the less sure.
 * @param {string} said base64 of the class of each cell @param {Level} sure @param {number} size @param {Place} place
 * @param {import("./colour.js").Pair[]} colours of the classes, over and over where there are more classes
 * @param {number} [opacity]
 */
export function classImage(said, sure, size, place, colours, opacity) {
  const ground = dark() ? "dark" : "light";
  const shades = Math.floor(255 / colours.length);
  const url = kept(`${ground} classes ${said} ${sure.bytes}`, () => {
    const strength = decoded(sure.bytes);
    const pixels = decoded(said).map(
      (k, i) => (k % colours.length) * shades + Math.round((strength[i] / MOST) * (shades - 1)),
    );
    const palette = colours.flatMap((pair) => {
      const full = [1, 3, 5].map((i) => parseInt(pair[ground].slice(i, i + 2), 16));
      const grey = ground === "dark" ? 56 : 226;
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
function kept(name, make) {
  let url = made.get(name);
  if (url === undefined) {
    if (made.size >= KEPT) made.clear();
    made.set(name, (url = make()));
  }
  return url;
}

/** @param {string} href @param {Place} place @param {number} [opacity] */
function image(href, { x, y, width, height }, opacity) {
  return svg("image", { class: "fine", href, x, y, width, height, opacity, preserveAspectRatio: "none" });
}

/**
 * The lines on which a signed map is zero, as the `d` of a path: in each square between four cells, straight from one
 * crossing of its sides to the next (W. Lorensen, H. Cline, Marching cubes, 1987, in the plane). "" where there is none.
 * @param {Level} level @param {number} size @param {Place} place
 */
export function zeroLine(level, size, { x, y, width, height }) {
  const bytes = decoded(level.bytes);
  const zero = (-level.low / (level.high - level.low)) * MOST; // on the scale of bytes
  const [dx, dy] = [width / size, height / size];
  /** @param {number} i @param {number} j */
  const at = (i, j) => bytes[i * size + j] - zero;
  let path = "";
  for (let i = 0; i + 1 < size; i++) {
    for (let j = 0; j + 1 < size; j++) {
      const first = at(i, j) > 0;
      if (at(i, j + 1) > 0 === first && at(i + 1, j + 1) > 0 === first && at(i + 1, j) > 0 === first) continue;
      const corners = [at(i, j), at(i, j + 1), at(i + 1, j + 1), at(i + 1, j)];
      const above = corners.map((value) => value > 0);
      const crossings = [];
      for (let k = 0; k < 4; k++) {
        if (above[k] === above[(k + 1) % 4]) continue;
        const t = corners[k] / (corners[k] - corners[(k + 1) % 4]);
        const [u, v] = [
          [t, 0],
          [1, t],
          [1 - t, 1],
          [0, 1 - t],
        ][k];
        crossings.push(`${(x + (j + 0.5 + u) * dx).toFixed(1)} ${(y + (i + 0.5 + v) * dy).toFixed(1)}`);
      }
      for (let k = 0; k + 1 < crossings.length; k += 2) path += `M${crossings[k]}L${crossings[k + 1]}`;
    }
  }
  return path;
}
