// Linear and logarithmic scales from values to pixels, and round tick values.

/** @typedef {((value: number) => number) & { ticks: number[], domain: number[] }} Scale */

/**
 * Return a linear scale from `domain` to `range`, with about `wanted` round ticks inside the domain.
 * @param {number[]} domain @param {number[]} range @param {number} [numTicks]
 * @returns {Scale}
 */
export function linear([a, b], [start, end], numTicks = 5) {
  const slope = b === a ? 0 : (end - start) / (b - a);
  const at = (/** @type {number} */ value) => start + (value - a) * slope;
  return Object.assign(at, { ticks: ticks(a, b, numTicks), domain: [a, b] });
}

/**
 * Return a logarithmic scale; the domain is above 0. Ticks are powers of ten, and multiples by 2 and 5 if these are few.
 * @param {number[]} domain @param {number[]} range
 * @returns {Scale}
 */
export function logarithmic([a, b], range) {
  const inner = linear([Math.log10(a), Math.log10(b)], range);
  const values = [];
  const decades = Math.log10(b / a);
  const every = Math.max(1, Math.round(decades / 5));
  for (let power = Math.floor(Math.log10(a)); power <= Math.log10(b); power += every) {
    for (const m of decades < 3 ? [1, 2, 5] : [1]) values.push(Number(`${m}e${power}`));
  }
  const at = (/** @type {number} */ value) => inner(Math.log10(value));
  return Object.assign(at, { ticks: values.filter((t) => t >= a * 0.999 && t <= b * 1.001), domain: [a, b] });
}

/**
 * Return round values from low to high: multiples of 1, 2 or 5 times a power of ten, about `wanted` of them.
 * @param {number} low @param {number} high @param {number} [numTicks]
 */
export function ticks(low, high, numTicks = 5) {
  if (!(high > low) || isDegenerate(low, high)) return [low];
  const step = roundStep((high - low) / numTicks);
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) {
    found.push(Number((i * step).toPrecision(12)));
  }
  return found;
}

/**
 * Return round values strictly between low and high for level curves: multiples of 1, 2, 2.5, 4 or 5 times a power of ten,
 * with the step whose number of values is nearest to `wanted`.
 * @param {number} low @param {number} high @param {number} [wanted]
 */
export function levels(low, high, wanted = 5) {
  if (!(high > low) || isDegenerate(low, high)) return [];
  const power = 10 ** Math.floor(Math.log10((high - low) / wanted));
  /** @type {number[]} */
  let best = [];
  for (const factor of [1, 2, 2.5, 4, 5, 10]) {
    const step = factor * power;
    const found = [];
    for (let i = Math.floor(low / step + 1e-9) + 1; i * step < high - step * 1e-9; i++) {
      found.push(Number((i * step).toPrecision(12)));
    }
    if (Math.abs(found.length - wanted) < Math.abs(best.length - wanted)) best = found;
  }
  return best;
}

/**
 * Return the domain of an axis for these values, extended to round values and never empty.
 * @param {number[]} values @param {{ log?: boolean, most?: number }} [options] `most`: upper limit of the domain
 */
export function niceDomain(values, { log = false, most = Infinity } = {}) {
  let low = values.reduce((a, b) => Math.min(a, b), Infinity);
  let high = values.reduce((a, b) => Math.max(a, b), -Infinity);
  if (!(low <= high)) return [0, 1];
  if (log) return [low / 1.15, high * 1.15];
  if (isDegenerate(low, high)) [low, high] = low === 0 ? [0, 1] : [low - Math.abs(low) / 10, high + Math.abs(high) / 10];
  const step = roundStep((high - low) / 4);
  const clean = (/** @type {number} */ value) => Number(value.toPrecision(12));
  return [clean(Math.floor(low / step + 1e-9) * step), Math.min(clean(Math.ceil(high / step - 1e-9) * step), most)];
}

/**
 * Return true if two numbers are equal up to the precision of a float.
 * @param {number} low @param {number} high
 */
function isDegenerate(low, high) {
  return high - low <= 1e-11 * Math.max(Math.abs(low), Math.abs(high));
}

/** Round to the nearest of 1, 2, 5, 10 times a power of ten, by ratio. @param {number} rough */
function roundStep(rough) {
  const power = 10 ** Math.floor(Math.log10(rough));
  const ratio = rough / power;
  return power * (ratio < Math.SQRT2 ? 1 : ratio < Math.sqrt(10) ? 2 : ratio < Math.sqrt(50) ? 5 : 10);
}

/**
 * Move centres of labels, keeping their order, so that neighbours are `gap` apart and all lie within [low, high].
 * @param {number[]} centres sorted @param {number[]} sizes
 * @param {number} low @param {number} high @param {number} [gap]
 */
export function spreadOut(centres, sizes, low, high, gap = 2) {
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
