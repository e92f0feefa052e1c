// One scale for one meaning: a single hue for amounts, two hues that meet in grey for what has a sign.
// The parts of the data (train, val, test) have their colours in style.css. All hold up for colour-blind eyes.

/**
 * @typedef {{ light: string, dark: string }} Pair the colour on a light page and on a dark one
 * @typedef {{ scale: "signed" | "amount", low: number, high: number }} Range what the ends of a scale stand for
 */

const AMOUNT = {
  light: ["#f1f5f9", "#cfe1f4", "#93bfe6", "#3f84c4", "#1b61a8", "#0c3f78"],
  dark: ["#1d242d", "#1f3f60", "#276297", "#3f8acb", "#7db7ea", "#cfe6fb"],
};
const SIGNED = {
  light: ["#1b7837", "#66a873", "#a9aeb4", "#a67fba", "#762a83"],
  dark: ["#62d184", "#529d66", "#6f767e", "#ab82c4", "#dba4ec"],
};

// For things that have no order. Found by search: seven colours as far apart as can be for usual and for dichromatic eyes.
const CATEGORIES = {
  light: ["#1d0caa", "#c38824", "#db2478", "#416729", "#8f8cd0", "#621f38", "#8613ac"],
  dark: ["#6dc8eb", "#ae5528", "#e69399", "#5cad13", "#8843db", "#127d9d", "#a5eb7c"],
};
const DASHES = [null, "7 3", "2 3", "9 3 2 3"];

/**
 * The colour of the i-th of some things without an order. They repeat after seven: give names, and `dash` for lines.
 * @param {number} i @returns {Pair}
 */
export function category(i) {
  const k = i % CATEGORIES.light.length;
  return { light: CATEGORIES.light[k], dark: CATEGORIES.dark[k] };
}

/**
 * The dashes of the i-th line, so that lines can be told apart without colour too.
 * @param {number} i
 */
export function dash(i) {
  return DASHES[i % DASHES.length];
}

/**
 * The colour of an amount between nothing (0) and all (1).
 * @param {number} t @returns {Pair}
 */
export function amount(t) {
  return { light: along(AMOUNT.light, t), dark: along(AMOUNT.dark, t) };
}

/**
 * The colour of a fraction, 0 to 1: by its square root, so that 1 % can be told from nothing.
 * @param {number} fraction
 */
export function ofFraction(fraction) {
  return amount(Math.sqrt(fraction));
}

/**
 * The colour of a signed value between −1 and 1: green below, grey at 0, purple above.
 * @param {number} t @returns {Pair}
 */
export function signed(t) {
  const position = (Math.max(-1, Math.min(1, t)) + 1) / 2;
  return { light: along(SIGNED.light, position), dark: along(SIGNED.dark, position) };
}

/**
 * The range of some maps: for a signed scale the same to both sides of 0; for amounts from 0, or the least if below it.
 * @param {(number | null)[][][]} maps @param {"signed" | "amount"} scale
 * @returns {Range}
 */
export function rangeOf(maps, scale) {
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
 * Where on its scale a value stands, from 0 (the lowest colour) to 1.
 * @param {number} value @param {Range} range
 */
export function place(value, { scale, low, high }) {
  const most = Math.max(Math.abs(low), Math.abs(high)) || 1;
  const t = scale === "signed" ? (value / most + 1) / 2 : (value - low) / (high - low || 1);
  return Math.max(0, Math.min(1, t));
}

/**
 * The colour of a value on a scale.
 * @param {number} value @param {Range} range
 */
export function ofValue(value, range) {
  const t = place(value, range);
  return range.scale === "signed" ? signed(2 * t - 1) : amount(t);
}

/**
 * So many colours of a scale from its lowest to its highest, as [red, green, blue, opacity], each 0 to 255.
 * With `fade` a colour is the clearer the nearer it is to 0.
 * @param {"signed" | "amount"} scale @param {"light" | "dark"} ground @param {number} levels @param {boolean} fade
 */
export function paletteOf(scale, ground, levels, fade = false) {
  const name = [scale, ground, levels, fade].join(" ");
  let found = palettes.get(name);
  if (!found) {
    found = [...Array(levels).keys()].map((i) => {
      const t = i / (levels - 1);
      const colour = channels((scale === "signed" ? signed(2 * t - 1) : amount(t))[ground]);
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
 * The colour of words on a colour: black or white, whichever can be read better. At least 4.5:1.
 * @param {Pair} ground @returns {Pair}
 */
export function over({ light, dark }) {
  const words = (/** @type {string} */ hex) => (luminance(hex) > 0.179 ? "#000000" : "#ffffff");
  return { light: words(light), dark: words(dark) };
}

/** @param {string} hex relative luminance (WCAG 2.2) */
function luminance(hex) {
  const [r, g, b] = channels(hex).map((c) => (c <= 10 ? c / 3294.6 : ((c / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

/**
 * The colour at position t in [0, 1] along evenly spaced ones.
 * @param {string[]} anchors @param {number} t
 */
function along(anchors, t) {
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
