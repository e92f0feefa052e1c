// The one figure that matters, in large type, with its interval and the simplest guess on a line.

import { within } from "./axes.js";
import { canvas, svg, textWidth } from "./dom.js";
import { tick, written } from "./format.js";
import { around, linear } from "./scale.js";

/**
 * @typedef {{ title: string, phrase: string, format: string, split: string, value: number, low: number | null,
 *   high: number | null, end: number | null, baseline: { name: string, value: number } | null }} Figure
 */

/**
 * @param {Figure} spec @param {number} width
 * @returns {import("./explore.js").Drawn}
 */
export function figure(spec, width) {
  const { value, low, high, baseline, format, split } = spec;
  const large = Math.max(56, Math.min(width / 8, 112));
  const small = Math.max(18, Math.min(width / 40, 28));
  const text = written(value, format);
  const beside = textWidth(text, large, 600) + 20;
  const fits = beside + textWidth(spec.phrase, small) < width;
  const phrase = fits ? [spec.phrase] : wrapped(spec.phrase, width, small);
  const below = large + (fits ? 0 : phrase.length * small * 1.3 + 6);

  const domain = around([0, value, ...[low, high, baseline?.value].filter((v) => typeof v === "number")]);
  if (spec.end !== null) domain[1] = spec.end;
  const x = linear(domain, [8, width - 8], Math.max(2, Math.min(width / 160, 10)));
  const known = low !== null && high !== null;
  const interval = known ? `95\u202f% interval: ${written(low, format)} to ${written(high, format)}` : "";
  const simplest = baseline ? `${baseline.name}: ${written(baseline.value, format)}` : "";
  const guess = x(baseline?.value ?? 0);
  const lines = wrapped(simplest, width, 12);
  const longest = lines.reduce((a, b) => (textWidth(b, 12) > textWidth(a, 12) ? b : a), "");
  const [over, under] = [caption(textWidth(interval, 13, 600), x(value), width), caption(textWidth(longest, 12), guess, width)];
  const apart = Math.abs(over.x - under.x) > over.half + under.half + 16;
  const line = below + (apart ? 56 : 78) + 16 * Math.max(0, lines.length - 1);
  const raised = apart ? line - 18 : line - 40; // the simplest guess keeps clear of the interval's words
  const drawing = canvas(
    width,
    line + 28,
    svg("text", { class: `hero split-${split}`, x: 0, y: large * 0.82, "font-size": large }, text),
    ...phrase.map((words, i) => {
      const place = fits ? { x: beside, y: large * 0.82 } : { x: 0, y: large + 8 + (i + 0.5) * small * 1.3 };
      return svg("text", { class: "phrase", "font-size": small, ...place }, words);
    }),
    svg("line", { class: "axis", x1: x(domain[0]), x2: x(domain[1]), y1: line, y2: line }),
    ...x.ticks.flatMap((t) => [
      svg("line", { class: "axis", x1: x(t), x2: x(t), y1: line, y2: line + 5 }),
      svg("text", { class: "tick", x: x(t), y: line + 20, ...within(t, x) }, tick(t, format)),
    ]),
    known ? svg("line", { class: `interval wide split-${split}`, x1: x(low), x2: x(high), y1: line, y2: line }) : null,
    svg("circle", { class: `dot split-${split}`, cx: x(value), cy: line, r: 7 }),
    svg("text", { class: "label", x: over.x, y: line - 18, "text-anchor": "middle" }, interval),
    baseline && svg("line", { class: "mark", x1: guess, x2: guess, y1: raised + 5, y2: line + 5 }),
    ...lines.map((words, i) => {
      const y = raised - 16 * (lines.length - 1 - i);
      return svg("text", { class: "tick", x: under.x, y, "text-anchor": "middle" }, words);
    }),
  );
  const [from, to] = known ? [x(low), x(high)] : [x(value), x(value)];
  const targets = [
    { box: [from - 8, line - 11, to - from + 16, 22], tip: [`${text} ${spec.phrase}`, ...(known ? [interval] : [])] },
  ];
  if (baseline) {
    const tip = [baseline.name, written(baseline.value, format)];
    targets.push({ box: [guess - 5, line - 14, 10, 24], tip });
  }
  return { svg: drawing, targets, columns: 1 };
}

/**
 * Where words over the line stand: centred on their place as far as the edges allow.
 * @param {number} wide the words @param {number} at @param {number} width
 */
function caption(wide, at, width) {
  const half = wide / 2;
  return { x: Math.max(half, Math.min(at, width - half)), half };
}

/**
 * The text in lines that are no wider than there is room.
 * @param {string} text @param {number} room @param {number} size
 */
export function wrapped(text, room, size) {
  const lines = [""];
  for (const word of text.split(" ")) {
    const longer = `${lines[lines.length - 1]} ${word}`.trim();
    if (textWidth(longer, size) <= room) lines[lines.length - 1] = longer;
    else lines.push(word);
  }
  return lines.filter((line) => line !== "");
}
