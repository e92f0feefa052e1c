// Gallery of examples, each with its image or columns and a caption of its prediction. Bounding boxes are drawn over an
// image: thin for correct and actual, thick for wrong, dashed for missed objects.

import { heading } from "./axes.js";
import { canvas, wrapLines, shorten, svg } from "./dom.js";
import { sizeOf } from "./png.js";

/**
 * @typedef {{ box: number[], name: string, score: number | null, kind: string }} Box fractions of the image's sides:
 *   left, top, right, bottom; `kind`: right, wrong, missed or actual, without a prediction
 * @typedef {{ name: string, image: string | null, words: string, note: string, lines: string[], boxes?: Box[] }} Item
 * @typedef {{ title: string, items: Item[], size?: [number, number] }} Gallery `size`: of an image, width and height
 */

const TOP = 34;
const IMAGE = [96, 96]; // pixels, as large as the stored images
const BOXED = [192, 192]; // pixels, of an image with boxes
const MAX_COLUMN_LINES = 5; // columns shown of an example; its tooltip has all
const MAX_CAPTION_LINES = 4; // lines of its caption

/**
 * @param {Gallery} spec @param {number} width
 * @returns {import("./explore.js").Drawn}
 */
export function gallery({ title, items, size = [IMAGE[0], IMAGE[1]] }, width) {
  const illustrated = items.some((item) => item.image);
  const boxed = items.some((item) => item.boxes);
  const [side, tall] = boxed ? BOXED : illustrated ? size : [164, 0]; // minimum width of an example, height of its image
  const columns = Math.max(1, Math.floor((width + 20) / (side + 20)));
  const room = illustrated ? side : (width + 20) / columns - 20;
  const body = illustrated ? tall + 6 : 4;
  const captions = items.map((item) => wrapLines(item.words, room - 4, MAX_CAPTION_LINES, 13, 600));
  const columnsOf = items.map((item) => (illustrated ? [] : columnLines(item.lines, room)));
  const words = Math.max(1, ...captions.map((lines) => lines.length)) * 17;
  const lines = Math.max(0, ...columnsOf.map((lines) => lines.length)) * 17;
  const high = body + 23 + words + (items.some((item) => item.note) ? 17 : 0) + lines + 18;
  const targets = items.map((item, i) => ({
    box: [(i % columns) * (room + 20), TOP + Math.floor(i / columns) * high, room, high - 18],
    tip: [item.words, item.name, ...(item.note ? [item.note] : []), ...item.lines, ...(item.boxes ?? []).map(describeBox)],
  }));
  const cells = items.flatMap((item, i) => {
    const [x, y] = targets[i].box;
    const small = [item.name, ...(item.note ? [item.note] : []), ...columnsOf[i]];
    return [
      illustrated
        ? svg("rect", { class: "mat", x, y, width: side, height: tall })
        : svg("line", { class: "axis", x1: x, x2: x + room, y1: y, y2: y }),
      image(item, x, y, side, tall),
      ...boxes(item, x, y, side),
      ...captions[i].map((line, k) => svg("text", { class: "name strong", x, y: y + body + 16 + k * 17 }, line)),
      ...small.map((line, k) => {
        return svg("text", { class: "tick", x, y: y + body + 17 + words + k * 17 }, shorten(line, room, 12));
      }),
    ];
  });
  const height = TOP + Math.ceil(items.length / columns) * high;
  return { svg: canvas(width, height, heading(title), ...cells), targets, columns };
}

/**
 * Return the lines of the first columns; long ones may use the remaining lines.
 * @param {string[]} columns @param {number} room
 */
function columnLines(columns, room) {
  const each = Math.max(1, Math.floor(MAX_COLUMN_LINES / Math.max(1, columns.length)));
  return columns.slice(0, MAX_COLUMN_LINES).flatMap((column) => wrapLines(column, room, each));
}

/**
 * Return the image if it is embedded in the page.
 * @param {Item} item @param {number} x @param {number} y @param {number} side @param {number} tall
 */
function image(item, x, y, side, tall) {
  if (!item.image?.startsWith("data:image/")) return null;
  return svg("image", { class: "picture", href: item.image, x, y, width: side, height: tall });
}

/**
 * Draw the bounding boxes over an image, each with its label.
 * @param {Item} item @param {number} x @param {number} y @param {number} side
 */
function boxes(item, x, y, side) {
  const size = item.image && item.boxes ? sizeOf(item.image) : null;
  if (!size) return [];
  const scale = side / Math.max(...size); // the image is centred in its square
  const [width, height] = [size[0] * scale, size[1] * scale];
  const [left, top] = [x + (side - width) / 2, y + (side - height) / 2];
  return (item.boxes ?? []).map(({ box: [x1, y1, x2, y2], name, kind }) => {
    const [bx, by] = [left + x1 * width, top + y1 * height];
    const place = { x: bx, y: by, width: Math.max(0, x2 - x1) * width, height: Math.max(0, y2 - y1) * height };
    return svg(
      "g",
      { class: `boxed ${kind}` },
      svg("rect", place),
      // The label of a missed object is at the bottom, because the box predicted in its place has its label at the top.
      svg("text", { x: bx + 3, y: kind === "missed" ? by + place.height - 4 : by + 11 }, shorten(name, Math.max(14, place.width - 4), 11)),
    );
  });
}

/** Return a description of a box. @param {Box} box */
function describeBox({ name, score, kind }) {
  if (kind === "actual") return name;
  return score === null ? `${name}, missed` : `${name}, ${Math.round(100 * score)} % sure, ${kind}`;
}
