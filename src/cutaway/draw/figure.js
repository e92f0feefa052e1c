// The main metric in large type, with its confidence interval and the baseline on a line.

import { tickAnchor } from "./axes.js";
import { canvas, svg, textWidth, wrapText } from "./dom.js";
import { formatTick, formatValue } from "./format.js";
import { niceDomain, linear } from "./scale.js";

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
  const text = formatValue(value, format);
  const phraseX = textWidth(text, large, 600) + 20;
  const fits = phraseX + textWidth(spec.phrase, small) < width;
  const phrase = fits ? [spec.phrase] : wrapText(spec.phrase, width, small);
  const below = large + (fits ? 0 : phrase.length * small * 1.3 + 6);

  const domain = niceDomain([0, value, ...[low, high, baseline?.value].filter((v) => typeof v === "number")]);
  if (spec.end !== null) domain[1] = spec.end;
  const x = linear(domain, [8, width - 8], Math.max(2, Math.min(width / 160, 10)));
  const known = low !== null && high !== null;
  const interval = known ? `95\u202f% interval: ${formatValue(low, format)} to ${formatValue(high, format)}` : "";
  const baselineText = baseline ? `${baseline.name}: ${formatValue(baseline.value, format)}` : "";
  const baselineX = x(baseline?.value ?? 0);
  const lines = wrapText(baselineText, width, 12);
  const longest = lines.reduce((a, b) => (textWidth(b, 12) > textWidth(a, 12) ? b : a), "");
  const [over, under] = [caption(textWidth(interval, 13, 600), x(value), width), caption(textWidth(longest, 12), baselineX, width)];
  const separate = Math.abs(over.x - under.x) > over.half + under.half + 16;
  const line = below + (separate ? 56 : 78) + 16 * Math.max(0, lines.length - 1);
  const raised = separate ? line - 18 : line - 40; // keep the baseline clear of the interval's label
  const drawing = canvas(
    width,
    line + 28,
    svg("text", { class: `hero split-${split}`, x: 0, y: large * 0.82, "font-size": large }, text),
    ...phrase.map((words, i) => {
      const place = fits ? { x: phraseX, y: large * 0.82 } : { x: 0, y: large + 8 + (i + 0.5) * small * 1.3 };
      return svg("text", { class: "phrase", "font-size": small, ...place }, words);
    }),
    svg("line", { class: "axis", x1: x(domain[0]), x2: x(domain[1]), y1: line, y2: line }),
    ...x.ticks.flatMap((t) => [
      svg("line", { class: "axis", x1: x(t), x2: x(t), y1: line, y2: line + 5 }),
      svg("text", { class: "tick", x: x(t), y: line + 20, ...tickAnchor(t, x) }, formatTick(t, format)),
    ]),
    known ? svg("line", { class: `interval wide split-${split}`, x1: x(low), x2: x(high), y1: line, y2: line }) : null,
    svg("circle", { class: `dot split-${split}`, cx: x(value), cy: line, r: 7 }),
    svg("text", { class: "label", x: over.x, y: line - 18, "text-anchor": "middle" }, interval),
    baseline && svg("line", { class: "mark", x1: baselineX, x2: baselineX, y1: raised + 5, y2: line + 5 }),
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
    const tip = [baseline.name, formatValue(baseline.value, format)];
    targets.push({ box: [baselineX - 5, line - 14, 10, 24], tip });
  }
  return { svg: drawing, targets, columns: 1 };
}

/**
 * Return the position of a label: centred on `at` as far as the edges allow.
 * @param {number} wide width of the label @param {number} at @param {number} width
 */
function caption(wide, at, width) {
  const half = wide / 2;
  return { x: Math.max(half, Math.min(at, width - half)), half };
}
