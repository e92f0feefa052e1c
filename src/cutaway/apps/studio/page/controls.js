// What a person sets: each a labelled form element that can be read, written and told what was wrong with it.

import { html } from "../draw/dom.js";
import { number as asNumber } from "../draw/format.js";
import { decades, stepped, typed, widths, writtenWidths } from "./settings.js";
import { named } from "./words.js";

/**
 * @typedef {(key: string, value: string) => void} Changed
 * @typedef {{ key: string, root: HTMLElement, set: (value: string) => void, fail: (words: string, before?: number) => void,
 *   limit: (options: Option[]) => void }} Control
 * @typedef {{ value: string, name: string, group?: string, here?: boolean }} Option
 */

// Where sliders begin and end: what may be typed goes further.
const USUAL = {
  lr: { low: 1e-5, high: 10 },
  weight_decay: { low: 1e-5, high: 1 },
  noise: { low: 0, high: 0.5 },
  "model.dropout": { low: 0, high: 0.9 },
};
const SPEEDS = [1, 5, 20, 60, 200];

let made = 0; // for ids
let messages = 0; // written so far

/**
 * The control that suits a setting's type.
 * @param {import("./settings.js").Setting} setting @param {Changed} changed
 * @returns {Control}
 */
export function control(setting, changed) {
  const { key, type, choices, low, high } = setting;
  if (key === "speed") return speed(setting, changed);
  if (choices) return chooser(setting, choices.map((name) => ({ value: name, name })), changed);
  if (type === "bool") return tick(setting, changed);
  if (type === "ints") return layers(setting, changed);
  const usual = USUAL[/** @type {keyof typeof USUAL} */ (key)];
  if (usual) return slider({ ...setting, ...usual }, changed, usual.low > 0);
  const inShares = type === "float" && typeof low === "number" && typeof high === "number" && high <= 1;
  if (inShares) return slider(setting, changed);
  if (type === "int") return counter(setting, changed);
  return entry(setting, changed);
}

/**
 * A list to choose from. What is not here can be seen, but not chosen.
 * @param {{ key: string, default: any, says: string, label?: string }} setting @param {Option[]} options
 * @param {Changed} changed
 * @returns {Control}
 */
export function chooser(setting, options, changed) {
  const select = html("select", {});
  const field = framed(setting, select);
  select.addEventListener("change", () => changed(setting.key, select.value));
  let offered = "";
  const limit = (/** @type {Option[]} */ wanted) => {
    const now = JSON.stringify(wanted);
    if (now === offered) return;
    offered = now;
    const before = select.value;
    select.replaceChildren(...grouped(wanted));
    select.value = before;
  };
  limit(options);
  const set = (/** @type {string} */ value) => write(select, value || typed(setting.default));
  set("");
  return { ...field, set, limit };
}

/**
 * How many steps to take in a second, at most, so that they can be watched.
 * @param {import("./settings.js").Setting} setting @param {Changed} changed
 * @returns {Control}
 */
function speed(setting, changed) {
  const offered = (/** @type {number[]} */ list) => [
    ...list.map((n) => ({ value: String(n), name: n === 1 ? "one step a second" : `${n} steps a second` })),
    { value: "0", name: "as fast as it goes" },
  ];
  const field = chooser(setting, offered(SPEEDS), changed);
  const set = (/** @type {string} */ value) => {
    const wanted = Number(value || typed(setting.default));
    const known = SPEEDS.includes(wanted) || !(wanted > 0);
    field.limit(offered(known ? SPEEDS : [...SPEEDS, wanted].sort((a, b) => a - b)));
    field.set(String(wanted));
  };
  set("");
  return { ...field, set };
}

/** @param {Option[]} options @returns {HTMLElement[]} under the names of their groups */
function grouped(options) {
  const groups = [...new Set(options.map(({ group }) => group ?? ""))];
  return groups.flatMap((name) => {
    const inside = options
      .filter(({ group }) => (group ?? "") === name)
      .map(({ value, name: said, here }) => html("option", { value, disabled: here === false ? "" : null }, said));
    return name === "" ? inside : [html("optgroup", { label: name }, ...inside)];
  });
}

/**
 * Yes or no.
 * @param {import("./settings.js").Setting} setting @param {Changed} changed
 * @returns {Control}
 */
function tick(setting, changed) {
  const box = html("input", { type: "checkbox" });
  const field = framed(setting, box);
  field.root.classList.add("tick");
  box.addEventListener("change", () => changed(setting.key, String(box.checked)));
  const set = (/** @type {string} */ value) => {
    const wanted = (value || typed(setting.default)).toLowerCase() === "true";
    if (box.checked !== wanted) box.checked = wanted;
  };
  set("");
  return { ...field, set, limit: () => {} };
}

/**
 * A number or words, typed.
 * @param {import("./settings.js").Setting} setting @param {Changed} changed
 * @returns {Control}
 */
function entry(setting, changed) {
  const hint = typed(setting.default);
  const input = html("input", { type: "text", autocomplete: "off", spellcheck: "false", placeholder: hint });
  const field = framed(setting, input);
  input.addEventListener("change", () => changed(setting.key, input.value.trim()));
  return { ...field, set: (value) => write(input, value), limit: () => {} };
}

/**
 * A whole number with a step down and a step up.
 * @param {import("./settings.js").Setting} setting @param {Changed} changed
 * @returns {Control}
 */
function counter(setting, changed) {
  const { key, low, high } = setting;
  const input = html("input", { type: "number", min: low ?? null, max: high ?? null, step: 1 });
  const say = named(key).toLowerCase();
  const move = (/** @type {1 | -1} */ way) => {
    const now = Number(input.value) || 0;
    const next = now < 2 ? now + way : stepped(now, way); // stepped stays above 0, where some numbers may be 0
    input.value = String(Math.max(low ?? 0, Math.min(high ?? Infinity, next)));
    changed(key, input.value);
  };
  const down = html("button", { type: "button", "aria-label": `Less: ${say}` }, "−");
  const up = html("button", { type: "button", "aria-label": `More: ${say}` }, "+");
  down.addEventListener("click", () => move(-1));
  up.addEventListener("click", () => move(1));
  input.addEventListener("change", () => changed(key, input.value));
  const field = framed(setting, input, html("span", { class: "counter" }, input, down, up));
  const set = (/** @type {string} */ value) => {
    const wanted = value || typed(setting.default);
    const isNumber = wanted !== "" && Number.isFinite(Number(wanted));
    if (!isNumber && input.placeholder !== wanted) input.placeholder = wanted; // auto: nobody has said it yet
    write(input, isNumber ? wanted : "");
  };
  set("");
  return { ...field, set, limit: () => {} };
}

/**
 * A number on a slider, and the same number to type. While the slider moves, the latest place is told.
 * @param {import("./settings.js").Setting} setting @param {Changed} changed
 * @param {boolean} [logarithmic] over powers of ten; its left end is then 0 where the setting may be 0
 * @returns {Control}
 */
export function slider(setting, changed, logarithmic = false) {
  const { key, low, high } = setting;
  const [from, to] = [low ?? 0, high ?? 1];
  const scale = logarithmic ? decades(from, to) : null;
  const range = html("input", {
    type: "range",
    min: scale ? 0 : from,
    max: scale ? 1 : to,
    step: scale ? 0.01 : (to - from) / 100,
    "aria-label": `${setting.label ?? named(key)}, slider`,
  });
  const input = html("input", { type: "text", inputmode: "decimal", autocomplete: "off", size: 7 });
  const tell = throttled((/** @type {string} */ value) => changed(key, value), 120);
  range.addEventListener("input", () => {
    const at = Number(range.value);
    range.dataset.place = range.value;
    const value = scale ? (at === 0 && key !== "lr" ? 0 : scale.value(at)) : Number(at.toPrecision(4));
    input.value = String(value);
    range.setAttribute("aria-valuetext", asNumber(value));
    tell(String(value));
  });
  input.addEventListener("change", () => {
    set(input.value.trim());
    changed(key, input.value.trim());
  });
  const field = framed(setting, input, html("span", { class: "slider" }, range, input));
  function set(/** @type {string} */ value) {
    if (range.matches(":active")) return; // it is being moved
    const wanted = value || typed(setting.default);
    if (input.value !== wanted) write(input, wanted);
    const size = wanted === "" ? NaN : Number(wanted); // words, as auto, have no place
    const place = String(Number.isFinite(size) ? (scale ? scale.place(size) : size) : from);
    if (range.dataset.place === place) return;
    range.dataset.place = place;
    range.value = place;
    range.setAttribute("aria-valuetext", Number.isFinite(size) ? asNumber(size) : wanted);
  }
  set("");
  return { ...field, set, limit: () => {} };
}

/**
 * Hidden layers, each with its width, to widen, narrow, add and take away.
 * @param {import("./settings.js").Setting} setting @param {Changed} changed
 * @returns {Control}
 */
function layers(setting, changed) {
  const list = html("ol", { class: "layers" });
  const add = html("button", { type: "button", class: "plain" }, "Add a layer");
  const error = failing();
  const root = html(
    "fieldset",
    { class: "field", "data-control": setting.key, "aria-describedby": error.id },
    html("legend", { title: setting.says }, setting.label ?? named(setting.key)),
    list,
    add,
    error,
  );
  let shown = "";
  /** @param {number[]} next */
  const tell = (next) => {
    draw(writtenWidths(next));
    changed(setting.key, writtenWidths(next));
  };
  add.addEventListener("click", () => tell([...widths(shown), widths(shown).at(-1) ?? 8]));

  /** @param {string} value */
  function draw(value) {
    if (value === shown) return;
    shown = value;
    const now = widths(value);
    const at = [...list.querySelectorAll("button, input")].indexOf(/** @type {any} */ (document.activeElement));
    list.replaceChildren(...now.map((width, i) => row(width, i, now)));
    const again = /** @type {HTMLElement[]} */ ([...list.querySelectorAll("button, input")]);
    if (at >= 0) (again[at] ?? again.at(-1) ?? add).focus(); // whoever pressed + goes on pressing it
  }

  /** @param {number} width @param {number} i @param {number[]} now */
  function row(width, i, now) {
    const set = (/** @type {number} */ next) => tell(now.map((old, k) => (k === i ? next : old)));
    const input = html("input", { type: "number", min: 1, step: 1, "aria-label": `Width of hidden layer ${i + 1}` });
    input.value = String(width);
    const buttons = [
      ["−", `Narrow hidden layer ${i + 1}`, () => set(stepped(width, -1))],
      ["+", `Widen hidden layer ${i + 1}`, () => set(stepped(width, 1))],
      ["×", `Take hidden layer ${i + 1} away`, () => tell(now.filter((_, k) => k !== i))],
    ].map(([sign, label, act]) => {
      const button = html("button", { type: "button", "aria-label": String(label) }, String(sign));
      button.addEventListener("click", /** @type {() => void} */ (act));
      return button;
    });
    input.addEventListener("change", () => set(Math.max(1, Math.round(Number(input.value)) || 1)));
    return html("li", { class: "counter" }, input, ...buttons);
  }

  const set = (/** @type {string} */ value) => draw(writtenWidths(widths(value || typed(setting.default))));
  set("");
  return { key: setting.key, root, set, fail: error.say, limit: () => {} };
}

/**
 * A label, its element, and room for what was wrong.
 * @param {{ key: string, says: string, label?: string }} setting @param {HTMLElement} input
 * @param {HTMLElement} [around] the element with what belongs to it
 */
function framed({ key, says, label }, input, around = input) {
  const error = failing();
  input.id = `setting-${++made}`;
  input.setAttribute("aria-describedby", error.id);
  const words = html("label", { for: input.id, title: says || null }, label ?? named(key));
  const root = html("div", { class: "field", "data-control": key }, words, around, error);
  /** @param {string} text @param {number} [before] */
  function fail(text, before) {
    error.say(text, before);
    input.setAttribute("aria-invalid", String(error.textContent !== ""));
  }
  return { key, root, fail };
}

/** A place for the words that say what was wrong; read aloud when they come. */
export function failing() {
  const place = html("p", { class: "failed", id: `failed-${++made}`, role: "alert" });
  let written = 0;
  return Object.assign(place, {
    /** @param {string} text @param {number} [before] leave a message that was written after this moment */
    say(text, before = Infinity) {
      if (written > before) return;
      written = ++messages;
      if (place.textContent !== text) place.textContent = text;
    },
  });
}

/** The moment up to which messages have been written: a request that began now clears no later message. */
export function moment() {
  return messages;
}

/**
 * Write a value, unless a person is just typing there.
 * @param {HTMLInputElement | HTMLSelectElement} element @param {string} value
 */
function write(element, value) {
  const typing = document.activeElement === element && element.matches("[type=text], [type=number]");
  if (element.value !== value && !typing) element.value = value;
}

/**
 * At most one call in so many milliseconds; the last one is never lost.
 * @template T
 * @param {(value: T) => void} call @param {number} wait
 */
export function throttled(call, wait) {
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
