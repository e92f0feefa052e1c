// HTML and SVG elements. Texts only become text nodes, so that no text can turn into markup.

/** @typedef {Record<string, string | number | null | undefined>} Attributes */
/** @typedef {Node | string | null} Child */

const SVG = "http://www.w3.org/2000/svg";

/**
 * Create an HTML element: `html("p", { class: "says" }, "text")`. Attributes that are null are omitted.
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {Tag} tag @param {Attributes} [attributes] @param {...Child} children
 * @returns {HTMLElementTagNameMap[Tag]}
 */
export function html(tag, attributes = {}, ...children) {
  return populate(document.createElement(tag), attributes, children);
}

/**
 * Create an SVG element, with the same arguments as `html`.
 * @template {keyof SVGElementTagNameMap} Tag
 * @param {Tag} tag @param {Attributes} [attributes] @param {...Child} children
 * @returns {SVGElementTagNameMap[Tag]}
 */
export function svg(tag, attributes = {}, ...children) {
  return populate(document.createElementNS(SVG, tag), attributes, children);
}

/**
 * Create the SVG root of a drawing, with a size in pixels.
 * @param {number} width @param {number} height @param {...Child} children
 */
export function canvas(width, height, ...children) {
  return svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" }, ...children);
}

/**
 * @template {Element} E
 * @param {E} element @param {Attributes} attributes @param {Child[]} children
 * @returns {E}
 */
function populate(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined) element.setAttribute(name, String(value));
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

/**
 * Set the colour of an element for light and for dark mode; style.css selects one.
 * @template {SVGElement} E
 * @param {E} element @param {import("./colour.js").Pair} pair
 * @param {"fill" | "stroke"} [what] fill or stroke
 * @returns {E}
 */
export function setColour(element, { light, dark }, what = "fill") {
  element.style.setProperty("--light", light);
  element.style.setProperty("--dark", dark);
  element.classList.add(what === "fill" ? "tint" : "tint-line");
  return element;
}

/** @type {CanvasRenderingContext2D | null} */
let ruler = null;
let family = "";
/** @type {Map<string, number>} */
const widths = new Map(); // cache: drawings measure the same texts repeatedly
const MAX_CACHED_WIDTHS = 20000;

/**
 * Return the width in pixels of a line of text in the page's font.
 * @param {string} text @param {number} [size] @param {number} [weight]
 */
export function textWidth(text, size = 13, weight = 400) {
  ruler ??= document.createElement("canvas").getContext("2d");
  if (ruler === null) return text.length * size * 0.6;
  family ||= getComputedStyle(document.body).fontFamily;
  const name = `${weight} ${size} ${text}`;
  let width = widths.get(name);
  if (width === undefined) {
    ruler.font = `${weight} ${size}px ${family}`;
    width = ruler.measureText(text).width;
    if (widths.size > MAX_CACHED_WIDTHS) widths.clear();
    widths.set(name, width);
  }
  return width;
}

/**
 * Truncate a text to a width, with an ellipsis.
 * @param {string} text @param {number} maxWidth in pixels @param {number} [size] @param {number} [weight]
 */
export function shorten(text, maxWidth, size = 13, weight = 400) {
  if (textWidth(text, size, weight) <= maxWidth) return text;
  let letters = [...text];
  while (letters.length > 1 && textWidth(`${letters.join("")}…`, size, weight) > maxWidth) letters = letters.slice(0, -1);
  return `${letters.join("")}…`;
}

/**
 * Wrap a text into at most `maxLines` lines; the last one is truncated with an ellipsis if necessary.
 * @param {string} text @param {number} width @param {number} maxLines @param {number} [size] @param {number} [weight]
 */
export function wrapLines(text, width, maxLines, size = 12, weight = 400) {
  const words = text.split(" ");
  const lines = [];
  while (words.length > 0 && lines.length < maxLines) {
    let line = String(words.shift());
    while (words.length > 0 && textWidth(`${line} ${words[0]}`, size, weight) <= width) line += ` ${words.shift()}`;
    lines.push(line);
  }
  if (words.length > 0) lines.push(`${lines.pop()} ${words.join(" ")}`);
  return lines.map((line) => shorten(line, width, size, weight));
}

/**
 * Wrap a text into lines that fit.
 * @param {string} text @param {number} room @param {number} [size]
 */
export function wrapText(text, room, size = 12) {
  const lines = [""];
  for (const word of text.split(" ")) {
    const longer = `${lines[lines.length - 1]} ${word}`.trim();
    if (textWidth(longer, size) <= room) lines[lines.length - 1] = longer;
    else lines.push(word);
  }
  return lines.filter((line) => line !== "");
}
