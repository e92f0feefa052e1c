// A bar divided into named parts.

import { heading } from "./axes.js";
import { canvas, svg, textWidth } from "./dom.js";
import { count, percent } from "./format.js";
import { spreadOut } from "./scale.js";

/** @typedef {{ title: string, parts: { name: string, value: number }[] }} Fractions */

/**
 * @param {Fractions} spec @param {number} width
 * @returns {import("./explore.js").Drawn}
 */
export function fractions({ title, parts }, width) {
  const total = parts.reduce((sum, p) => sum + p.value, 0) || 1;
  let at = 0;
  const boxes = parts.map((p) => {
    const box = { ...p, x: at, width: (p.value / total) * width };
    at += box.width;
    return box;
  });
  const sizes = boxes.map((b) => Math.max(textWidth(b.name, 13, 600), textWidth(count(b.value))));
  const centres = spreadOut(boxes.map((b, i) => b.x + sizes[i] / 2), sizes, 0, width, 12);
  const drawing = canvas(
    width,
    92,
    heading(title),
    ...boxes.flatMap((b, i) => [
      svg("rect", { class: `bar split-${b.name}`, x: b.x, y: 28, width: Math.max(b.width - 2, 1), height: 18, rx: 2 }),
      svg("text", { class: `label split-${b.name}`, x: centres[i] - sizes[i] / 2, y: 66 }, b.name),
      svg("text", { class: "name", x: centres[i] - sizes[i] / 2, y: 84 }, count(b.value)),
    ]),
  );
  const targets = boxes.map((b) => ({
    box: [b.x, 28, b.width - 2, 18],
    tip: [b.name, `${count(b.value)} examples, ${percent(b.value / total)}`],
  }));
  return { svg: drawing, targets, columns: 1 };
}
