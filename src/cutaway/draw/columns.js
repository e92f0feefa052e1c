// Columns of a table, each with a small histogram: bins of numbers, or a bar per value.

import { heading } from "./axes.js";
import { canvas, shorten, svg, textWidth } from "./dom.js";
import { count, percent } from "./format.js";

/**
 * @typedef {{ name: string, note: string, gaps: string, counts: number[], ends?: [string, string], labels?: string[],
 *   missing: number }} Item
 *   `note`, `gaps`: texts of its type and its missing values
 *   `ends`: labels of the first and the last bin, of numbers; `labels`: label of each bar, of values
 * @typedef {{ title: string, items: Item[] }} Columns
 */

const TOP = 34;
const HIGH = 56; // pixels, the highest bar
const LEAST = 150; // pixels of a column
const GAP = 24;
const LINE = 15; // pixels of a value and its bar
const VALUES = 6; // maximum number of value bars

/**
 * @param {Columns} spec @param {number} width
 * @returns {import("./explore.js").Drawn}
 */
export function columns({ title, items }, width) {
  const perRow = Math.max(1, Math.floor((width + GAP) / (LEAST + GAP)));
  const columnWidth = (width + GAP) / perRow - GAP;
  const gaps = items.some((item) => item.gaps) ? 16 : 0;
  const high = 22 + VALUES * LINE + 46 + gaps;
  const targets = items.map((item, i) => ({
    box: [(i % perRow) * (columnWidth + GAP), TOP + Math.floor(i / perRow) * high, columnWidth, high - 20],
    tip: tooltip(item),
  }));
  const cells = items.flatMap((item, i) => {
    const [x, y] = targets[i].box;
    return [
      svg("text", { class: "name strong", x, y: y + 10 }, shorten(item.name, columnWidth, 13, 600)),
      ...(item.labels ? valueBars(item, item.labels, x, y + 22, columnWidth) : histogramBars(item, x, y + 22, columnWidth)),
      ...[item.note, item.gaps].map((line, k) => {
        return svg("text", { class: "tick", x, y: y + 22 + VALUES * LINE + 16 + 16 * k }, shorten(line, columnWidth, 12));
      }),
    ];
  });
  return { svg: canvas(width, TOP + Math.ceil(items.length / perRow) * high, heading(title), ...cells), targets, columns: perRow };
}

/** @param {Item} item */
function tooltip({ name, note, counts, ends, labels, missing }) {
  const total = counts.reduce((a, b) => a + b, 0) + missing;
  const most = counts.indexOf(Math.max(...counts));
  const between = ends ? [`${ends[0]} to ${ends[1]}`, `largest of ${counts.length} bins: ${count(counts[most])}`] : [];
  const each = (labels ?? []).map((label, k) => `${label}: ${count(counts[k])}, ${percent(counts[k] / (total || 1))}`);
  return [name, note, ...between, ...each, ...(missing ? [`${count(missing)} missing`] : [])];
}

/**
 * Draw a histogram with labelled ends.
 * @param {Item} item @param {number} left @param {number} top @param {number} room
 */
function histogramBars({ counts, ends }, left, top, room) {
  const most = Math.max(...counts, 1);
  const each = room / counts.length;
  const bottom = top + HIGH;
  const bars = counts.map((n, k) => {
    const tall = n ? Math.max(1, (n / most) * HIGH) : 0;
    const box = { x: left + k * each + 0.5, y: bottom - tall, width: Math.max(each - 1, 0.5), height: tall };
    return svg("rect", { class: "bar split-train", ...box });
  });
  const [first, last] = ends ?? ["", ""];
  const two = textWidth(first, 12) + textWidth(last, 12) + 8 <= room;
  return [
    ...bars,
    svg("line", { class: "axis", x1: left, x2: left + room, y1: bottom, y2: bottom }),
    svg("text", { class: "tick", x: left, y: bottom + 15 }, two ? first : shorten(`${first} to ${last}`, room, 12)),
    two ? svg("text", { class: "tick", x: left + room, y: bottom + 15, "text-anchor": "end" }, last) : null,
  ];
}

/**
 * Draw a bar for each value, after its label.
 * @param {Item} item @param {string[]} labels @param {number} left @param {number} top @param {number} room
 */
function valueBars({ counts }, labels, left, top, room) {
  const most = Math.max(...counts, 1);
  const shown = labels.slice(0, VALUES);
  const wide = Math.min(Math.max(...shown.map((label) => textWidth(label, 12))), room * 0.5);
  return shown.flatMap((label, k) => {
    const y = top + k * LINE;
    const long = Math.max(1, (counts[k] / most) * (room - wide - 8));
    return [
      svg("text", { class: "tick", x: left, y: y + 10 }, shorten(label, wide + 1, 12)),
      svg("rect", { class: "bar split-train", x: left + wide + 8, y: y + 2, width: long, height: 9, rx: 1 }),
    ];
  });
}
