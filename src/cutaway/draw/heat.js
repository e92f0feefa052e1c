// Confusion matrix: rows are actual classes, columns predicted classes; the shade is the fraction of the row.

import { heading } from "./axes.js";
import { fractionColour } from "./colour.js";
import { canvas, shorten, svg, textWidth, setColour } from "./dom.js";
import { count, percent, formatTick } from "./format.js";

/** @typedef {{ title: string, names: string[], counts: number[][] }} Heat */

const STEPS = [0, 0.01, 0.05, 0.1, 0.25, 0.5, 1]; // fractions in the legend

/**
 * @param {Heat} spec @param {number} width
 * @returns {import("./explore.js").Drawn}
 */
export function heat({ title, names, counts }, width) {
  const n = names.length;
  const longest = Math.max(...names.map((name) => textWidth(name, 12)));
  const labelWidth = Math.min(longest, width * 0.28, 140); // pixels of a class name
  const left = Math.max(textWidth("actual ↓", 12, 600), labelWidth) + 12;
  const size = Math.min((width - left) / n, Math.max(48, 240 / n), 760 / n);
  const labelled = size >= 11; // smaller cells are only labelled by their tooltip
  const upright = longest > size - 4; // column names wider than a cell are rotated
  const top = 50 + (labelled ? (upright ? labelWidth : 14) : 0);
  const short = names.map((name) => shorten(name, labelWidth, 12));
  const key = top + n * size + 26;

  const cells = [];
  const targets = [];
  for (let i = 0; i < n; i++) {
    const sum = counts[i].reduce((a, b) => a + b, 0);
    for (let j = 0; j < n; j++) {
      const [x, y, fraction] = [left + j * size, top + i * size, sum ? counts[i][j] / sum : 0];
      const gap = size > 8 ? 1 : 0;
      const shade = { x, y, width: size - gap, height: size - gap, rx: size > 16 ? 2 : 0 };
      cells.push(setColour(svg("rect", shade), fractionColour(fraction)));
      if (counts[i][j] && size >= textWidth(count(counts[i][j]), 12) + 6) {
        const place = { x: x + size / 2 - gap / 2, y: y + size / 2 + 4, "text-anchor": "middle" };
        cells.push(svg("text", { class: fraction > 0.36 ? "cell on-strong" : "cell", ...place }, count(counts[i][j])));
      }
      const of = `${count(counts[i][j])} of ${count(sum)}${sum ? `, ${percent(fraction)}` : ""}`;
      const outcome = i === j ? `${names[i]}, correct` : `${names[i]} predicted as ${names[j]}`;
      targets.push({ box: [x, y, size - gap, size - gap], tip: [outcome, of] });
    }
  }
  const labels = !labelled ? [] : short.flatMap((name, i) => {
    const middle = (i + 0.5) * size;
    const column = upright
      ? { transform: `translate(${left + middle + 4} ${top - 6}) rotate(-90)` }
      : { x: left + middle, y: top - 6, "text-anchor": "middle" };
    return [
      svg("text", { class: "tick", x: left - 8, y: top + middle + 4, "text-anchor": "end" }, name),
      svg("text", { class: "tick", ...column }, name),
    ];
  });
  const drawing = canvas(
    width,
    key + 36,
    heading(title),
    svg("text", { class: "tick strong", x: left, y: 38 }, "predicted →"),
    svg("text", { class: "tick strong", x: left - 8, y: top - 6, "text-anchor": "end" }, "actual ↓"),
    ...labels,
    ...cells,
    ...legend(left, key, Math.min(36, (width - left) / STEPS.length)),
  );
  return { svg: drawing, targets, columns: n };
}

/**
 * Return the legend of the shades.
 * @param {number} left @param {number} top @param {number} size
 */
function legend(left, top, size) {
  return STEPS.flatMap((step, i) => {
    const x = left + i * size;
    return [
      setColour(svg("rect", { x, y: top, width: size, height: 8 }), fractionColour(step)),
      svg("text", { class: "tick", x: x + size / 2, y: top + 24, "text-anchor": "middle" }, formatTick(step, "fraction")),
    ];
  });
}
