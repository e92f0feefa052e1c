// Number formats: thousands separators, minus signs, units after a narrow no-break space. number_format.py does the same.

const THIN = "\u202f";
const SUPERSCRIPT = "⁰¹²³⁴⁵⁶⁷⁸⁹";

/** @param {number} value an integer, as 61 706 */
export function count(value) {
  return withMinusSign(String(Math.round(value)).replace(/\B(?=(\d{3})+$)/g, THIN));
}

/** @param {number} value a fraction, as 97.8 %; with more decimals if it would round to 0 % or 100 % */
export function percent(value) {
  const hundredths = 100 * value;
  if (hundredths === 0 || Math.abs(hundredths) === 100) return withMinusSign(`${hundredths}${THIN}%`);
  const inside = (/** @type {number} */ d) => ![0, 100].includes(Math.abs(Number(hundredths.toFixed(d))));
  return withMinusSign(`${hundredths.toFixed([1, 2].find(inside) ?? 3)}${THIN}%`);
}

/** @param {number} value a number to four significant digits, integers in full: 0.01235, 54 322, 1.23×10⁻⁵ */
export function number(value) {
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-4 || size >= 1e15)) {
    const [mantissa, exponent] = value.toExponential(2).split("e");
    const raised = String(Number(exponent)).replace("-", "⁻").replace(/\d/g, (d) => SUPERSCRIPT[Number(d)]);
    return withMinusSign(`${Number(mantissa)}×10${raised}`);
  }
  const rounded = size >= 1000 ? Math.round(value) : Number(value.toPrecision(4));
  return Math.abs(rounded) >= 1000 ? count(rounded) : withMinusSign(String(rounded));
}

/** Format with two significant digits. @param {number} value */
export function twoDigits(value) {
  return number(Number(value.toPrecision(2)));
}

/** @type {Record<string, (value: number) => string>} */
const FORMATS = { count, fraction: percent, number };

/**
 * Format a value of a column or axis. Texts are returned unchanged.
 * @param {unknown} value @param {string} format count, fraction, number, or text
 */
export function formatValue(value, format) {
  if (value === null || value === undefined) return format === "text" ? "" : "unknown";
  if (typeof value !== "number") return String(value);
  return FORMATS[format]?.(value) ?? String(value);
}

/**
 * Format a value on an axis, without trailing decimals.
 * @param {number} value @param {string} format
 */
export function formatTick(value, format) {
  return format === "fraction" ? `${number(Number((100 * value).toPrecision(12)))}${THIN}%` : number(value);
}

/** @param {string} text */
function withMinusSign(text) {
  return text.replace("-", "−");
}
