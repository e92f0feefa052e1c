// Controls above a drawing: drop-down lists and sliders, as native HTML elements for keyboard and screen readers.

import { html } from "./dom.js";

/**
 * @typedef {{ key: string, label: string, value: any, options: { value: any, name: string }[] }} Select
 * @typedef {{ key: string, label: string, value: number, low: number, high: number, step: number, written: string }} Slider
 * @typedef {Select | Slider} Control `key`: key in the state of the drawing
 */

let lastId = 0; // for ids

/**
 * Container of controls; they are only rebuilt when their description changes.
 * @param {(key: string, value: any) => void} set
 * @returns {{ place: HTMLElement, show: (controls: Control[]) => void }}
 */
export function controlPanel(set) {
  const place = html("div", { class: "controls" });
  place.hidden = true;
  let shown = "";
  /** @type {((control: any) => void)[]} */
  let updates = [];
  return {
    place,
    show(controls) {
      const description = JSON.stringify(controls.map(({ value, ...rest }) => ({ ...rest, written: null })));
      if (description !== shown) {
        shown = description;
        const elements = controls.map((control) => {
          if ("options" in control) return select(control, (value) => set(control.key, value));
          return slider(control, (value) => set(control.key, value));
        });
        place.replaceChildren(...elements.map((one) => one.element));
        updates = elements.map((one) => one.update);
        place.hidden = elements.length === 0;
      }
      controls.forEach((control, i) => updates[i](control));
    },
  };
}

/**
 * Drop-down list.
 * @param {Omit<Select, "key">} control @param {(value: any) => void} onChange
 */
export function select({ label, options, value }, onChange) {
  const id = `control-${++lastId}`;
  const field = html("select", { id }, ...options.map(({ name }, i) => html("option", { value: i }, name)));
  const update = (/** @type {Omit<Select, "key">} */ { value }) => {
    field.value = String(options.findIndex((option) => option.value === value));
  };
  update({ label, options, value });
  field.addEventListener("change", () => onChange(options[Number(field.value)].value));
  return { element: html("div", { class: "control" }, html("label", { for: id }, label), field), update };
}

/**
 * Slider with a text of its value.
 * @param {Omit<Slider, "key">} control @param {(value: number) => void} onChange
 */
export function slider(control, onChange) {
  const id = `control-${++lastId}`;
  const { low: min, high: max, step } = control;
  const field = html("input", { id, type: "range", min, max, step });
  const output = html("output", { for: id });
  const update = (/** @type {Omit<Slider, "key">} */ { value, written }) => {
    if (field.value !== String(value)) field.value = String(value);
    if (field.getAttribute("aria-valuetext") === written) return;
    field.setAttribute("aria-valuetext", written);
    output.replaceChildren(written);
  };
  update(control);
  field.addEventListener("input", () => onChange(Number(field.value)));
  const label = html("label", { for: id }, control.label);
  return { element: html("div", { class: "control" }, label, field, output), update, output };
}

/**
 * Return the description of a drop-down list, or nothing if there is only one option.
 * @param {string} key @param {string} label @param {{ name: string }[]} named @param {number} value
 */
export function selectControl(key, label, named, value) {
  return named.length < 2 ? [] : [{ key, label, value, options: named.map(({ name }, i) => ({ value: i, name })) }];
}

/** Limit the index of an option, 0 by default. @param {number | undefined} index @param {number} count */
export function clampIndex(index, count) {
  return Math.max(0, Math.min(index ?? 0, count - 1));
}
