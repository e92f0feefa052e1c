// Images with a map laid over each. The slider says how much of the map is seen; a map that fails its check says so.

import { heading } from "./axes.js";
import { rangeOf } from "./colour.js";
import { canvas, shorten, svg, textWidth } from "./dom.js";
import { number } from "./format.js";
import { KEY_HIGH, key } from "./key.js";
import { sizeOf } from "./png.js";
import { raster } from "./raster.js";
import { at, look } from "./tiles.js";

/**
 * @typedef {{ label: string, image: string | null, values: (number | null)[][] | null, tip: string[],
 *   warning: string | null }} Item
 * @typedef {{ title: string, scale: "signed" | "amount", items: Item[], opacity: number,
 *   image?: string | null }} Overlay `image`: of all items that have none of their own
 */

const GAP = 20;
const [LEAST, MOST] = [150, 300]; // pixels of an image's width
const LINE = 16;

/**
 * @param {Overlay} spec @param {number} width @param {{ opacity?: number }} [state]
 * @returns {import("./explore.js").Drawn}
 */
export function overlay(spec, width, state = {}) {
  const opacity = state.opacity ?? spec.opacity;
  const { scale } = spec;
  const items = spec.items.map((item) => ({ ...item, image: item.image ?? spec.image ?? null }));
  const wanted = Math.max(1, Math.min(items.length, Math.floor((width + GAP) / (LEAST + GAP))));
  const side = Math.min(MOST, (width + GAP) / wanted - GAP);
  const columns = Math.max(1, Math.min(items.length, Math.floor((width + GAP + 1) / (side + GAP))));
  const tall = Math.max(...items.map((item) => side * proportion(item)));
  const high = tall + 44;
  const own = { scale, low: scale === "signed" ? -1 : 0, high: 1 };
  const names = scale === "signed" ? ["−most", "0", "+most"] : ["0", "most"];
  const top = 30 + KEY_HIGH + 10;
  const targets = items.map((item, i) => {
    const height = side * proportion(item);
    const [x, y] = [(i % columns) * (side + GAP), top + Math.floor(i / columns) * high];
    const range = item.values ? rangeOf([item.values], scale) : null;
    const reach = range ? [`from ${number(scale === "signed" ? range.low : 0)} to ${number(range.high)}`] : [];
    return {
      box: [x, y, side, height],
      tip: [...(item.tip.length > 0 ? item.tip : [item.label]), ...reach, ...(item.warning ? [item.warning] : [])],
      at: at(item, { x, y, width: side, height }),
      key: item.label,
    };
  });
  const drawing = canvas(
    width,
    top + Math.ceil(items.length / columns) * high,
    heading(spec.title),
    key(0, 30, Math.min(width, 220), own, "number", names),
    ...items.flatMap((item, i) => one(item, targets[i].box, scale, opacity)),
  );
  const step = 0.05;
  const controls = items.some((item) => item.image && item.values)
    ? [{ key: "opacity", label: "Strength of the map", value: opacity, low: 0, high: 1, step, written: `${Math.round(100 * opacity)} %` }]
    : [];
  return { svg: drawing, targets, columns, controls };
}

/**
 * An image, its map, its name, and what speaks against it.
 * @param {Item} item @param {number[]} box @param {"signed" | "amount"} scale @param {number} opacity
 */
function one({ label, image, values, warning }, [x, y, width, height], scale, opacity) {
  const place = { x, y, width, height };
  const under = image?.startsWith("data:image/") ? image : null;
  const map = values
    ? raster(values, rangeOf([values], scale), place, under ? { fade: true, opacity } : {})
    : null;
  return [
    svg("rect", { class: "mat", ...place }),
    under ? svg("image", { class: look(under, width), href: under, ...place, preserveAspectRatio: "none" }) : null,
    map,
    warning ? ribbon(warning, place) : null,
    svg("text", { class: "name strong", x, y: y + height + 18 }, shorten(label, width, 13, 600)),
  ];
}

/**
 * A warning across the foot of an image.
 * @param {string} words @param {import("./raster.js").Place} place
 */
function ribbon(words, { x, y, width, height }) {
  const lines = wrapped(words, width - 16, Math.max(1, Math.floor(height / LINE / 2)));
  const high = lines.length * LINE + 8;
  return svg(
    "g",
    { class: "ribbon" },
    svg("rect", { x, y: y + height - high, width, height: high }),
    ...lines.map((line, i) => svg("text", { x: x + 8, y: y + height - high + 16 + i * LINE }, line)),
  );
}

/**
 * Words in lines that have room; the last is cut where they are too many.
 * @param {string} words @param {number} room @param {number} most
 */
export function wrapped(words, room, most) {
  /** @type {string[]} */
  const lines = [];
  for (const word of words.split(/\s+/)) {
    const longer = lines.length > 0 ? `${lines.at(-1)} ${word}` : word;
    if (lines.length > 0 && textWidth(longer, 12, 600) <= room) lines[lines.length - 1] = longer;
    else lines.push(word);
  }
  if (lines.length > most) lines.splice(most - 1, Infinity, lines.slice(most - 1).join(" "));
  return lines.map((line) => shorten(line, room, 12, 600));
}

/** @param {Item} item height over width of its image, or of its map where it has none */
function proportion({ image, values }) {
  const size = (image && sizeOf(image)) || (values && [values[0]?.length || 1, values.length]) || [1, 1];
  return Math.min(2, Math.max(0.1, size[1] / size[0]));
}
