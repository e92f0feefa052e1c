// Form controls: labelled elements with a value, a change callback and an error message.

import { html } from "../draw/dom.js";
import { number as asNumber } from "../draw/format.js";
import { logScale, stepWidth, toText, parseWidths, formatWidths } from "./settings.js";
import { settingLabel } from "./labels.js";

/**
 * @typedef {(key: string, value: string) => void} Changed
 * @typedef {{ key: string, root: HTMLElement, set: (value: string) => void, showError: (words: string, before?: number) => void,
 *   limit: (options: Option[]) => void }} Control
 * @typedef {{ value: string, name: string, group?: string, here?: boolean }} Option
 */

// Ranges of sliders; typed values may lie outside.
const SLIDER_RANGES = {
  lr: { low: 1e-5, high: 10 },
  weight_decay: { low: 1e-5, high: 1 },
  noise: { low: 0, high: 0.5 },
  "model.dropout": { low: 0, high: 0.9 },
};
const SPEEDS = [1, 5, 20, 60, 200];

let lastId = 0; // for ids
let numMessages = 0; // written so far

/**
 * Return the control for a setting, by its type.
 * @param {import("./settings.js").Setting} setting @param {Changed} onChange
 * @returns {Control}
 */
export function control(setting, onChange) {
  const { key, type, choices, low, high } = setting;
  if (key === "speed") return speedField(setting, onChange);
  if (choices) return selectField(setting, choices.map((name) => ({ value: name, name })), onChange);
  if (type === "bool") return checkbox(setting, onChange);
  if (type === "ints") return layersField(setting, onChange);
  const sliderRange = SLIDER_RANGES[/** @type {keyof typeof SLIDER_RANGES} */ (key)];
  if (sliderRange) return slider({ ...setting, ...sliderRange }, onChange, sliderRange.low > 0);
  const isFraction = type === "float" && typeof low === "number" && typeof high === "number" && high <= 1;
  if (isFraction) return slider(setting, onChange);
  if (type === "int") return numberField(setting, onChange);
  return textField(setting, onChange);
}

/**
 * Drop-down list. Options that are not on this machine are disabled.
 * @param {{ key: string, default: any, says: string, label?: string }} setting @param {Option[]} options
 * @param {Changed} onChange
 * @returns {Control}
 */
export function selectField(setting, options, onChange) {
  const select = html("select", {});
  const field = labelledField(setting, select);
  select.addEventListener("change", () => onChange(setting.key, select.value));
  let shownOptions = "";
  const limit = (/** @type {Option[]} */ options) => {
    const now = JSON.stringify(options);
    if (now === shownOptions) return;
    shownOptions = now;
    const before = select.value;
    select.replaceChildren(...groupOptions(options));
    select.value = before;
  };
  limit(options);
  const set = (/** @type {string} */ value) => setValue(select, value || toText(setting.default));
  set("");
  return { ...field, set, limit };
}

/**
 * Drop-down list of the maximum number of steps per second.
 * @param {import("./settings.js").Setting} setting @param {Changed} onChange
 * @returns {Control}
 */
function speedField(setting, onChange) {
  const speedOptions = (/** @type {number[]} */ list) => [
    ...list.map((n) => ({ value: String(n), name: n === 1 ? "1 step per second" : `${n} steps per second` })),
    { value: "0", name: "unlimited" },
  ];
  const field = selectField(setting, speedOptions(SPEEDS), onChange);
  const set = (/** @type {string} */ value) => {
    const speed = Number(value || toText(setting.default));
    const known = SPEEDS.includes(speed) || !(speed > 0);
    field.limit(speedOptions(known ? SPEEDS : [...SPEEDS, speed].sort((a, b) => a - b)));
    field.set(String(speed));
  };
  set("");
  return { ...field, set };
}

/** @param {Option[]} options @returns {HTMLElement[]} option elements, in groups */
function groupOptions(options) {
  const groups = [...new Set(options.map(({ group }) => group ?? ""))];
  return groups.flatMap((name) => {
    const inside = options
      .filter(({ group }) => (group ?? "") === name)
      .map(({ value, name: label, here }) => html("option", { value, disabled: here === false ? "" : null }, label));
    return name === "" ? inside : [html("optgroup", { label: name }, ...inside)];
  });
}

/**
 * Checkbox.
 * @param {import("./settings.js").Setting} setting @param {Changed} onChange
 * @returns {Control}
 */
function checkbox(setting, onChange) {
  const box = html("input", { type: "checkbox" });
  const field = labelledField(setting, box);
  field.root.classList.add("tick");
  box.addEventListener("change", () => onChange(setting.key, String(box.checked)));
  const set = (/** @type {string} */ value) => {
    const checked = (value || toText(setting.default)).toLowerCase() === "true";
    if (box.checked !== checked) box.checked = checked;
  };
  set("");
  return { ...field, set, limit: () => {} };
}

/**
 * Text field.
 * @param {import("./settings.js").Setting} setting @param {Changed} onChange
 * @returns {Control}
 */
function textField(setting, onChange) {
  const hint = toText(setting.default);
  const input = html("input", { type: "text", autocomplete: "off", spellcheck: "false", placeholder: hint });
  const field = labelledField(setting, input);
  input.addEventListener("change", () => onChange(setting.key, input.value.trim()));
  return { ...field, set: (value) => setValue(input, value), limit: () => {} };
}

/**
 * Integer field with buttons to decrease and increase it.
 * @param {import("./settings.js").Setting} setting @param {Changed} onChange
 * @returns {Control}
 */
function numberField(setting, onChange) {
  const { key, low, high } = setting;
  const input = html("input", { type: "number", min: low ?? null, max: high ?? null, step: 1 });
  const label = settingLabel(key).toLowerCase();
  const move = (/** @type {1 | -1} */ way) => {
    const now = Number(input.value) || 0;
    const next = now < 2 ? now + way : stepWidth(now, way); // stepWidth stays above 0, but some settings may be 0
    input.value = String(Math.max(low ?? 0, Math.min(high ?? Infinity, next)));
    onChange(key, input.value);
  };
  const down = html("button", { type: "button", "aria-label": `Decrease ${label}` }, "−");
  const up = html("button", { type: "button", "aria-label": `Increase ${label}` }, "+");
  down.addEventListener("click", () => move(-1));
  up.addEventListener("click", () => move(1));
  input.addEventListener("change", () => onChange(key, input.value));
  const field = labelledField(setting, input, html("span", { class: "counter" }, input, down, up));
  const set = (/** @type {string} */ value) => {
    const text = value || toText(setting.default);
    const isNumber = text !== "" && Number.isFinite(Number(text));
    if (!isNumber && input.placeholder !== text) input.placeholder = text; // for example auto
    setValue(input, isNumber ? text : "");
  };
  set("");
  return { ...field, set, limit: () => {} };
}

/**
 * Slider with a text field for the same number. Changes are throttled while the slider moves.
 * @param {import("./settings.js").Setting} setting @param {Changed} onChange
 * @param {boolean} [logarithmic] logarithmic scale; its left end is 0 if the setting may be 0
 * @returns {Control}
 */
export function slider(setting, onChange, logarithmic = false) {
  const { key, low, high } = setting;
  const [from, to] = [low ?? 0, high ?? 1];
  const scale = logarithmic ? logScale(from, to) : null;
  const range = html("input", {
    type: "range",
    min: scale ? 0 : from,
    max: scale ? 1 : to,
    step: scale ? 0.01 : (to - from) / 100,
    "aria-label": `${setting.label ?? settingLabel(key)}, slider`,
  });
  const input = html("input", { type: "text", inputmode: "decimal", autocomplete: "off", size: 7 });
  const notify = throttle((/** @type {string} */ value) => onChange(key, value), 120);
  range.addEventListener("input", () => {
    const at = Number(range.value);
    range.dataset.place = range.value;
    const value = scale ? (at === 0 && key !== "lr" ? 0 : scale.value(at)) : Number(at.toPrecision(4));
    input.value = String(value);
    range.setAttribute("aria-valuetext", asNumber(value));
    notify(String(value));
  });
  input.addEventListener("change", () => {
    set(input.value.trim());
    onChange(key, input.value.trim());
  });
  const field = labelledField(setting, input, html("span", { class: "slider" }, range, input));
  function set(/** @type {string} */ value) {
    if (range.matches(":active")) return; // the user is moving it
    const text = value || toText(setting.default);
    if (input.value !== text) setValue(input, text);
    const size = text === "" ? NaN : Number(text); // texts such as auto have no position
    const position = String(Number.isFinite(size) ? (scale ? scale.place(size) : size) : from);
    if (range.dataset.place === position) return;
    range.dataset.place = position;
    range.value = position;
    range.setAttribute("aria-valuetext", Number.isFinite(size) ? asNumber(size) : text);
  }
  set("");
  return { ...field, set, limit: () => {} };
}

/**
 * List of hidden layers, with buttons to change their widths, add and remove them.
 * @param {import("./settings.js").Setting} setting @param {Changed} onChange
 * @returns {Control}
 */
function layersField(setting, onChange) {
  const list = html("ol", { class: "layers" });
  const add = html("button", { type: "button", class: "plain" }, "Add a layer");
  const errorField = errorMessage();
  const root = html(
    "fieldset",
    { class: "field", "data-control": setting.key, "aria-describedby": errorField.id },
    html("legend", { title: setting.says }, setting.label ?? settingLabel(setting.key)),
    list,
    add,
    errorField,
  );
  let shown = "";
  /** @param {number[]} next */
  const notify = (next) => {
    draw(formatWidths(next));
    onChange(setting.key, formatWidths(next));
  };
  add.addEventListener("click", () => notify([...parseWidths(shown), parseWidths(shown).at(-1) ?? 8]));

  /** @param {string} value */
  function draw(value) {
    if (value === shown) return;
    shown = value;
    const now = parseWidths(value);
    const at = [...list.querySelectorAll("button, input")].indexOf(/** @type {any} */ (document.activeElement));
    list.replaceChildren(...now.map((width, i) => row(width, i, now)));
    const buttons = /** @type {HTMLElement[]} */ ([...list.querySelectorAll("button, input")]);
    if (at >= 0) (buttons[at] ?? buttons.at(-1) ?? add).focus(); // keep the focus, so that a button can be pressed again
  }

  /** @param {number} width @param {number} i @param {number[]} now */
  function row(width, i, now) {
    const set = (/** @type {number} */ next) => notify(now.map((old, k) => (k === i ? next : old)));
    const input = html("input", { type: "number", min: 1, step: 1, "aria-label": `Width of hidden layer ${i + 1}` });
    input.value = String(width);
    const buttons = [
      ["−", `Narrow hidden layer ${i + 1}`, () => set(stepWidth(width, -1))],
      ["+", `Widen hidden layer ${i + 1}`, () => set(stepWidth(width, 1))],
      ["×", `Remove hidden layer ${i + 1}`, () => notify(now.filter((_, k) => k !== i))],
    ].map(([symbol, label, act]) => {
      const button = html("button", { type: "button", "aria-label": String(label) }, String(symbol));
      button.addEventListener("click", /** @type {() => void} */ (act));
      return button;
    });
    input.addEventListener("change", () => set(Math.max(1, Math.round(Number(input.value)) || 1)));
    return html("li", { class: "counter" }, input, ...buttons);
  }

  const set = (/** @type {string} */ value) => draw(formatWidths(parseWidths(value || toText(setting.default))));
  set("");
  return { key: setting.key, root, set, showError: errorField.show, limit: () => {} };
}

/**
 * Return a form element with its label and error message.
 * @param {{ key: string, says: string, label?: string }} setting @param {HTMLElement} input
 * @param {HTMLElement} [around] container of the element
 */
function labelledField({ key, says, label }, input, around = input) {
  const errorField = errorMessage();
  input.id = `setting-${++lastId}`;
  input.setAttribute("aria-describedby", errorField.id);
  const words = html("label", { for: input.id, title: says || null }, label ?? settingLabel(key));
  const root = html("div", { class: "field", "data-control": key }, words, around, errorField);
  /** @param {string} text @param {number} [before] */
  function showError(text, before) {
    errorField.show(text, before);
    input.setAttribute("aria-invalid", String(errorField.textContent !== ""));
  }
  return { key, root, showError };
}

/** Return an element for error messages, announced by screen readers. */
export function errorMessage() {
  const place = html("p", { class: "failed", id: `failed-${++lastId}`, role: "alert" });
  let written = 0;
  return Object.assign(place, {
    /** @param {string} text @param {number} [before] keep a message with a higher number */
    show(text, before = Infinity) {
      if (written > before) return;
      written = ++numMessages;
      if (place.textContent !== text) place.textContent = text;
    },
  });
}

/** Return the number of messages shown so far, so that a request does not clear later messages. */
export function messageCount() {
  return numMessages;
}

/**
 * Set the value of an element, unless the user is typing in it.
 * @param {HTMLInputElement | HTMLSelectElement} element @param {string} value
 */
function setValue(element, value) {
  const typing = document.activeElement === element && element.matches("[type=text], [type=number]");
  if (element.value !== value && !typing) element.value = value;
}

/**
 * Call a function at most once per `wait` milliseconds; the last call is always made.
 * @template T
 * @param {(value: T) => void} call @param {number} wait
 */
export function throttle(call, wait) {
  let last = 0;
  let timer = 0;
  return (/** @type {T} */ value) => {
    clearTimeout(timer);
    const left = last + wait - Date.now();
    const go = () => {
      last = Date.now();
      call(value);
    };
    if (left <= 0) go();
    else timer = setTimeout(go, left);
  };
}
