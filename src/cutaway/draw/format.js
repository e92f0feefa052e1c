// Numbers as text: digits in threes, a minus sign, units after a narrow no-break space. words.py writes the same.

const THIN = "\u202f";
const SUPERSCRIPT = "⁰¹²³⁴⁵⁶⁷⁸⁹";

/** @param {number} value a whole number, as 61 706 */
export function count(value) {
  return minus(String(Math.round(value)).replace(/\B(?=(\d{3})+$)/g, THIN));
}

/** @param {number} value a fraction, as 97.8 %; with more decimals where it would be rounded to all or nothing */
export function percent(value) {
  const hundredths = 100 * value;
  if (hundredths === 0 || Math.abs(hundredths) === 100) return minus(`${hundredths}${THIN}%`);
  const inside = (/** @type {number} */ d) => ![0, 100].includes(Math.abs(Number(hundredths.toFixed(d))));
  return minus(`${hundredths.toFixed([1, 2].find(inside) ?? 3)}${THIN}%`);
}

/** @param {number} value a number to four significant digits, all the whole ones: 0.01235, 54 322, 1.23×10⁻⁵ */
export function number(value) {
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-4 || size >= 1e15)) {
    const [mantissa, exponent] = value.toExponential(2).split("e");
    const raised = String(Number(exponent)).replace("-", "⁻").replace(/\d/g, (d) => SUPERSCRIPT[Number(d)]);
    return minus(`${Number(mantissa)}×10${raised}`);
  }
  const rounded = size >= 1000 ? Math.round(value) : Number(value.toPrecision(4));
  return Math.abs(rounded) >= 1000 ? count(rounded) : minus(String(rounded));
}

/** @type {Record<string, (value: number) => string>} */
const FORMATS = { count, fraction: percent, number };

/**
 * A value in the format that a column or an axis asks for. What is already words stays as it is.
 * @param {unknown} value @param {string} format count, fraction, number, or text
 */
export function written(value, format) {
  if (value === null || value === undefined) return format === "text" ? "" : "unknown";
  if (typeof value !== "number") return String(value);
  return FORMATS[format]?.(value) ?? String(value);
}

/**
 * A value on an axis, where round numbers need no decimals.
 * @param {number} value @param {string} format
 */
export function tick(value, format) {
  return format === "fraction" ? `${number(Number((100 * value).toPrecision(12)))}${THIN}%` : number(value);
}

/** @param {string} text */
function minus(text) {
  return text.replace("-", "−");
}
