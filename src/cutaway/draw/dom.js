// Elements. Text from a description only ever becomes a text node, so no name can turn into markup.

/** @typedef {Record<string, string | number | null | undefined>} Attributes */
/** @typedef {Node | string | null} Child */

const SVG = "http://www.w3.org/2000/svg";

/**
 * An HTML element: `html("p", { class: "says" }, "words")`. Attributes that are null are left out.
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {Tag} tag @param {Attributes} [attributes] @param {...Child} children
 * @returns {HTMLElementTagNameMap[Tag]}
 */
export function html(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/**
 * An SVG element, made like an HTML one.
 * @template {keyof SVGElementTagNameMap} Tag
 * @param {Tag} tag @param {Attributes} [attributes] @param {...Child} children
 * @returns {SVGElementTagNameMap[Tag]}
 */
export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

/**
 * The root of a drawing, so many pixels wide and high.
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
function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined) element.setAttribute(name, String(value));
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

/**
 * Colour an element with one colour on light pages and another on dark ones; style.css chooses.
 * @template {SVGElement} E
 * @param {E} element @param {import("./colour.js").Pair} pair
 * @param {"fill" | "stroke"} [what] the area, or the line
 * @returns {E}
 */
export function tint(element, { light, dark }, what = "fill") {
  element.style.setProperty("--light", light);
  element.style.setProperty("--dark", dark);
  element.classList.add(what === "fill" ? "tint" : "tint-line");
  return element;
}

/** @type {CanvasRenderingContext2D | null} */
let ruler = null;
let family = "";
/** @type {Map<string, number>} */
const widths = new Map(); // measured before: drawings ask for the same words again and again
const MEASURED = 20000; // that are remembered

/**
 * The width in pixels of a line of text in the page's font.
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
    if (widths.size > MEASURED) widths.clear();
    widths.set(name, width);
  }
  return width;
}

/**
 * The text, or as much of its beginning as has room, with an ellipsis.
 * @param {string} text @param {number} room in pixels @param {number} [size] @param {number} [weight]
 */
export function shorten(text, room, size = 13, weight = 400) {
  if (textWidth(text, size, weight) <= room) return text;
  let kept = [...text];
  while (kept.length > 1 && textWidth(`${kept.join("")}…`, size, weight) > room) kept = kept.slice(0, -1);
  return `${kept.join("")}…`;
}

/**
 * Words in at most so many lines; the last ends in an ellipsis where there is no room.
 * @param {string} text @param {number} width @param {number} most @param {number} [size] @param {number} [weight]
 */
export function lined(text, width, most, size = 12, weight = 400) {
  const words = text.split(" ");
  const lines = [];
  while (words.length > 0 && lines.length < most) {
    let line = String(words.shift());
    while (words.length > 0 && textWidth(`${line} ${words[0]}`, size, weight) <= width) line += ` ${words.shift()}`;
    lines.push(line);
  }
  if (words.length > 0) lines.push(`${lines.pop()} ${words.join(" ")}`);
  return lines.map((line) => shorten(line, width, size, weight));
}
