// Colour scales: sequential with a single hue for amounts, diverging with two hues for signed values.
// The colours of splits (train, val, test) are in style.css. All are safe for colour-blind readers.

/**
 * @typedef {{ light: string, dark: string }} Pair colours for light and for dark mode
 * @typedef {{ scale: "signed" | "amount", low: number, high: number }} Range values at the ends of a scale
 */

const AMOUNT = {
  light: ["#f1f5f9", "#cfe1f4", "#93bfe6", "#3f84c4", "#1b61a8", "#0c3f78"],
  dark: ["#1d242d", "#1f3f60", "#276297", "#3f8acb", "#7db7ea", "#cfe6fb"],
};
const SIGNED = {
  light: ["#1b7837", "#66a873", "#a9aeb4", "#a67fba", "#762a83"],
  dark: ["#62d184", "#529d66", "#6f767e", "#ab82c4", "#dba4ec"],
};

// Categorical colours: seven colours with maximal distances for normal and dichromatic vision, found by search.
const CATEGORIES = {
  light: ["#1d0caa", "#c38824", "#db2478", "#416729", "#8f8cd0", "#621f38", "#8613ac"],
  dark: ["#6dc8eb", "#ae5528", "#e69399", "#5cad13", "#8843db", "#127d9d", "#a5eb7c"],
};
const DASHES = [null, "7 3", "2 3", "9 3 2 3"];

/**
 * Return the i-th categorical colour. Colours repeat after seven: also add labels, and `dashPattern` for lines.
 * @param {number} i @returns {Pair}
 */
export function categoryColour(i) {
  const k = i % CATEGORIES.light.length;
  return { light: CATEGORIES.light[k], dark: CATEGORIES.dark[k] };
}

/**
 * Return the dash pattern of the i-th line, so that lines differ without colour.
 * @param {number} i
 */
export function dashPattern(i) {
  return DASHES[i % DASHES.length];
}

/**
 * Return the sequential colour of an amount between 0 and 1.
 * @param {number} t @returns {Pair}
 */
export function amountColour(t) {
  return { light: interpolate(AMOUNT.light, t), dark: interpolate(AMOUNT.dark, t) };
}

/**
 * Return the colour of a fraction between 0 and 1, by its square root so that 1 % is visible.
 * @param {number} fraction
 */
export function fractionColour(fraction) {
  return amountColour(Math.sqrt(fraction));
}

/**
 * Return the diverging colour of a value between −1 and 1: green below, grey at 0, purple above.
 * @param {number} t @returns {Pair}
 */
export function signedColour(t) {
  const position = (Math.max(-1, Math.min(1, t)) + 1) / 2;
  return { light: interpolate(SIGNED.light, position), dark: interpolate(SIGNED.dark, position) };
}

/**
 * Return the range of several maps: symmetric for a signed scale; from min(0, minimum) for amounts.
 * @param {(number | null)[][][]} maps @param {"signed" | "amount"} scale
 * @returns {Range}
 */
export function colourRange(maps, scale) {
  let [low, high] = [0, 0];
  for (const rows of maps) {
    for (const row of rows) {
      for (const value of row) {
        if (typeof value !== "number" || !Number.isFinite(value)) continue;
        if (value < low) low = value;
        if (value > high) high = value;
      }
    }
  }
  if (scale === "signed") [low, high] = [-Math.max(-low, high), Math.max(-low, high)];
  return { scale, low, high: high > low ? high : low + 1 };
}

/**
 * Return the position of a value on its scale, from 0 (the lowest colour) to 1.
 * @param {number} value @param {Range} range
 */
export function scalePosition(value, { scale, low, high }) {
  const most = Math.max(Math.abs(low), Math.abs(high)) || 1;
  const t = scale === "signed" ? (value / most + 1) / 2 : (value - low) / (high - low || 1);
  return Math.max(0, Math.min(1, t));
}

/**
 * Return the colour of a value on a scale.
 * @param {number} value @param {Range} range
 */
export function valueColour(value, range) {
  const t = scalePosition(value, range);
  return range.scale === "signed" ? signedColour(2 * t - 1) : amountColour(t);
}

/**
 * Return `levels` colours of a scale from lowest to highest, as [red, green, blue, opacity], each 0 to 255.
 * With `fade`, colours near 0 are transparent.
 * @param {"signed" | "amount"} scale @param {"light" | "dark"} ground @param {number} levels @param {boolean} fade
 */
export function buildPalette(scale, ground, levels, fade = false) {
  const name = [scale, ground, levels, fade].join(" ");
  let found = palettes.get(name);
  if (!found) {
    found = [...Array(levels).keys()].map((i) => {
      const t = i / (levels - 1);
      const colour = channels((scale === "signed" ? signedColour(2 * t - 1) : amountColour(t))[ground]);
      const strength = scale === "signed" ? Math.abs(2 * t - 1) : t;
      return [...colour, fade ? Math.round(255 * Math.min(1, 1.6 * strength)) : 255];
    });
    palettes.set(name, found);
  }
  return found;
}

/** @type {Map<string, number[][]>} */
const palettes = new Map();

/**
 * Return the text colour on a background: black or white, whichever has more contrast (at least 4.5:1).
 * @param {Pair} ground @returns {Pair}
 */
export function textColour({ light, dark }) {
  const words = (/** @type {string} */ hex) => (luminance(hex) > 0.179 ? "#000000" : "#ffffff");
  return { light: words(light), dark: words(dark) };
}

/** @param {string} hex relative luminance (WCAG 2.2) */
function luminance(hex) {
  const [r, g, b] = channels(hex).map((c) => (c <= 10 ? c / 3294.6 : ((c / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

/**
 * Interpolate between evenly spaced colours at t in [0, 1].
 * @param {string[]} anchors @param {number} t
 */
function interpolate(anchors, t) {
  const position = Math.max(0, Math.min(1, t)) * (anchors.length - 1);
  const i = Math.min(Math.floor(position), anchors.length - 2);
  const [from, to] = [channels(anchors[i]), channels(anchors[i + 1])];
  const mixed = from.map((c, k) => Math.round(c + (to[k] - c) * (position - i)));
  return `#${mixed.map((c) => c.toString(16).padStart(2, "0")).join("")}`;
}

/** @param {string} hex */
function channels(hex) {
  return [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
}
