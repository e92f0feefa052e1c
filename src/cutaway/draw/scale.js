// From values to pixels, and the round values that an axis names.

/** @typedef {((value: number) => number) & { ticks: number[], domain: number[] }} Scale */

/**
 * A linear scale from `domain` to `range`, with about `wanted` round ticks inside the domain.
 * @param {number[]} domain @param {number[]} range @param {number} [wanted]
 * @returns {Scale}
 */
export function linear([a, b], [start, end], wanted = 5) {
  const slope = b === a ? 0 : (end - start) / (b - a);
  const at = (/** @type {number} */ value) => start + (value - a) * slope;
  return Object.assign(at, { ticks: ticks(a, b, wanted), domain: [a, b] });
}

/**
 * A logarithmic scale; the domain is above 0. Its ticks are powers of ten, with 2 and 5 between where these are few.
 * @param {number[]} domain @param {number[]} range
 * @returns {Scale}
 */
export function logarithmic([a, b], range) {
  const inner = linear([Math.log10(a), Math.log10(b)], range);
  const found = [];
  const decades = Math.log10(b / a);
  const every = Math.max(1, Math.round(decades / 5));
  for (let power = Math.floor(Math.log10(a)); power <= Math.log10(b); power += every) {
    for (const m of decades < 3 ? [1, 2, 5] : [1]) found.push(Number(`${m}e${power}`));
  }
  const at = (/** @type {number} */ value) => inner(Math.log10(value));
  return Object.assign(at, { ticks: found.filter((t) => t >= a * 0.999 && t <= b * 1.001), domain: [a, b] });
}

/**
 * Round values from low to high: multiples of 1, 2 or 5 times a power of ten, about `wanted` of them.
 * @param {number} low @param {number} high @param {number} [wanted]
 */
export function ticks(low, high, wanted = 5) {
  if (!(high > low) || narrow(low, high)) return [low];
  const step = roundStep((high - low) / wanted);
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) {
    found.push(Number((i * step).toPrecision(12)));
  }
  return found;
}

/**
 * The domain of an axis over these values: from round value to round value, never empty.
 * @param {number[]} values @param {{ log?: boolean, most?: number }} [options] `most` is a value not to go beyond
 */
export function around(values, { log = false, most = Infinity } = {}) {
  let low = values.reduce((a, b) => Math.min(a, b), Infinity);
  let high = values.reduce((a, b) => Math.max(a, b), -Infinity);
  if (!(low <= high)) return [0, 1];
  if (log) return [low / 1.15, high * 1.15];
  if (narrow(low, high)) [low, high] = low === 0 ? [0, 1] : [low - Math.abs(low) / 10, high + Math.abs(high) / 10];
  const step = roundStep((high - low) / 4);
  const clean = (/** @type {number} */ value) => Number(value.toPrecision(12));
  return [clean(Math.floor(low / step + 1e-9) * step), Math.min(clean(Math.ceil(high / step - 1e-9) * step), most)];
}

/**
 * Whether no round values lie between two numbers: they differ in digits that a float does not hold, or not at all.
 * @param {number} low @param {number} high
 */
function narrow(low, high) {
  return high - low <= 1e-11 * Math.max(Math.abs(low), Math.abs(high));
}

/** @param {number} rough the nearest of 1, 2, 5, 10 times a power of ten, by ratio */
function roundStep(rough) {
  const power = 10 ** Math.floor(Math.log10(rough));
  const ratio = rough / power;
  return power * (ratio < Math.SQRT2 ? 1 : ratio < Math.sqrt(10) ? 2 : ratio < Math.sqrt(50) ? 5 : 10);
}

/**
 * Centres moved, in order, until neighbours are `gap` apart and all lie within [low, high].
 * @param {number[]} centres rising @param {number[]} sizes
 * @param {number} low @param {number} high @param {number} [gap]
 */
export function apart(centres, sizes, low, high, gap = 2) {
  const moved = [...centres];
  let edge = low;
  for (let i = 0; i < moved.length; i++) {
    moved[i] = Math.max(moved[i], edge + sizes[i] / 2);
    edge = moved[i] + sizes[i] / 2 + gap;
  }
  edge = high;
  for (let i = moved.length - 1; i >= 0; i--) {
    moved[i] = Math.min(moved[i], edge - sizes[i] / 2);
    edge = moved[i] - sizes[i] / 2 - gap;
  }
  return moved;
}
