// Images with a heatmap over each. A slider sets the opacity of the heatmap; a heatmap that fails its check has a warning.

import { heading } from "./axes.js";
import { colourRange } from "./colour.js";
import { canvas, shorten, svg, textWidth } from "./dom.js";
import { number } from "./format.js";
import { COLOUR_BAR_HEIGHT, colourBar } from "./colour_bar.js";
import { sizeOf } from "./png.js";
import { rasterImage } from "./raster.js";
import { pixelTarget, imageClass } from "./tiles.js";

/**
 * @typedef {{ label: string, image: string | null, values: (number | null)[][] | null, tip: string[],
 *   warning: string | null }} Item
 * @typedef {{ title: string, scale: "signed" | "amount", items: Item[], opacity: number,
 *   image?: string | null }} Overlay `image`: default image of items without one
 */

const GAP = 20;
const [LEAST, MOST] = [150, 300]; // pixels, width of an image
const LINE = 16;

/**
 * @param {Overlay} spec @param {number} width @param {{ opacity?: number }} [state]
 * @returns {import("./explore.js").Drawn}
 */
export function overlay(spec, width, state = {}) {
  const opacity = state.opacity ?? spec.opacity;
  const { scale } = spec;
  const items = spec.items.map((item) => ({ ...item, image: item.image ?? spec.image ?? null }));
  const numColumns = Math.max(1, Math.min(items.length, Math.floor((width + GAP) / (LEAST + GAP))));
  const side = Math.min(MOST, (width + GAP) / numColumns - GAP);
  const columns = Math.max(1, Math.min(items.length, Math.floor((width + GAP + 1) / (side + GAP))));
  const tall = Math.max(...items.map((item) => side * aspectRatio(item)));
  const high = tall + 44;
  const own = { scale, low: scale === "signed" ? -1 : 0, high: 1 };
  const names = scale === "signed" ? ["−most", "0", "+most"] : ["0", "most"];
  const top = 30 + COLOUR_BAR_HEIGHT + 10;
  const targets = items.map((item, i) => {
    const height = side * aspectRatio(item);
    const [x, y] = [(i % columns) * (side + GAP), top + Math.floor(i / columns) * high];
    const range = item.values ? colourRange([item.values], scale) : null;
    const rangeText = range ? [`from ${number(scale === "signed" ? range.low : 0)} to ${number(range.high)}`] : [];
    return {
      box: [x, y, side, height],
      tip: [...(item.tip.length > 0 ? item.tip : [item.label]), ...rangeText, ...(item.warning ? [item.warning] : [])],
      at: pixelTarget(item, { x, y, width: side, height }),
      key: item.label,
    };
  });
  const drawing = canvas(
    width,
    top + Math.ceil(items.length / columns) * high,
    heading(spec.title),
    colourBar(0, 30, Math.min(width, 220), own, "number", names),
    ...items.flatMap((item, i) => drawItem(item, targets[i].box, scale, opacity)),
  );
  const step = 0.05;
  const controls = items.some((item) => item.image && item.values)
    ? [{ key: "opacity", label: "Opacity of the map", value: opacity, low: 0, high: 1, step, written: `${Math.round(100 * opacity)} %` }]
    : [];
  return { svg: drawing, targets, columns, controls };
}

/**
 * Draw an image with its heatmap, label and warning.
 * @param {Item} item @param {number[]} box @param {"signed" | "amount"} scale @param {number} opacity
 */
function drawItem({ label, image, values, warning }, [x, y, width, height], scale, opacity) {
  const place = { x, y, width, height };
  const background = image?.startsWith("data:image/") ? image : null;
  const map = values
    ? rasterImage(values, colourRange([values], scale), place, background ? { fade: true, opacity } : {})
    : null;
  return [
    svg("rect", { class: "mat", ...place }),
    background ? svg("image", { class: imageClass(background, width), href: background, ...place, preserveAspectRatio: "none" }) : null,
    map,
    warning ? warningBanner(warning, place) : null,
    svg("text", { class: "name strong", x, y: y + height + 18 }, shorten(label, width, 13, 600)),
  ];
}

/**
 * Draw a warning across the bottom of an image.
 * @param {string} words @param {import("./raster.js").Place} place
 */
function warningBanner(words, { x, y, width, height }) {
  const lines = wrapLabel(words, width - 16, Math.max(1, Math.floor(height / LINE / 2)));
  const high = lines.length * LINE + 8;
  return svg(
    "g",
    { class: "ribbon" },
    svg("rect", { x, y: y + height - high, width, height: high }),
    ...lines.map((line, i) => svg("text", { x: x + 8, y: y + height - high + 16 + i * LINE }, line)),
  );
}

/**
 * Wrap a text into lines; the last one is truncated if there are too many.
 * @param {string} words @param {number} room @param {number} most
 */
export function wrapLabel(words, room, most) {
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

/** @param {Item} item @returns height divided by width of its image or heatmap */
function aspectRatio({ image, values }) {
  const size = (image && sizeOf(image)) || (values && [values[0]?.length || 1, values.length]) || [1, 1];
  return Math.min(2, Math.max(0.1, size[1] / size[0]));
}
