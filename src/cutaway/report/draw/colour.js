// One scale for one meaning: a single hue for amounts, two hues that meet in grey for what has a sign.
// The parts of the data (train, val, test) have their colours in style.css. All hold up for colour-blind eyes.

/** @typedef {{ light: string, dark: string }} Pair the colour on a light page and on a dark one */

const AMOUNT = {
  light: ["#f1f5f9", "#cfe1f4", "#93bfe6", "#3f84c4", "#1b61a8", "#0c3f78"],
  dark: ["#1d242d", "#1f3f60", "#276297", "#3f8acb", "#7db7ea", "#cfe6fb"],
};
const SIGNED = {
  light: ["#1b7837", "#66a873", "#a9aeb4", "#a67fba", "#762a83"],
  dark: ["#62d184", "#529d66", "#6f767e", "#ab82c4", "#dba4ec"],
};

/**
 * The colour of an amount between nothing (0) and all (1).
 * @param {number} t @returns {Pair}
 */
export function amount(t) {
  return { light: along(AMOUNT.light, t), dark: along(AMOUNT.dark, t) };
}

/**
 * The colour of a share, 0 to 1: by its square root, so that 1 % can be told from nothing.
 * @param {number} share
 */
export function ofShare(share) {
  return amount(Math.sqrt(share));
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
