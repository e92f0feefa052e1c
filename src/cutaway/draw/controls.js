// What can be set above a drawing: a choice from a list, or a number along a slider. Plain HTML, so the keyboard and
// screen readers know them already.

import { html } from "./dom.js";

/**
 * @typedef {{ key: string, label: string, value: any, options: { value: any, name: string }[] }} Select
 * @typedef {{ key: string, label: string, value: number, low: number, high: number, step: number, written: string }} Slider
 * @typedef {Select | Slider} Control `key` names what it sets in the state of its drawing
 */

let last = 0; // for ids

/**
 * A place for controls, kept as they are for as long as a drawing asks for the same.
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
      const wanted = JSON.stringify(controls.map(({ value, ...rest }) => ({ ...rest, written: null })));
      if (wanted !== shown) {
        shown = wanted;
        const made = controls.map((control) => {
          if ("options" in control) return select(control, (value) => set(control.key, value));
          return slider(control, (value) => set(control.key, value));
        });
        place.replaceChildren(...made.map((one) => one.element));
        updates = made.map((one) => one.update);
        place.hidden = made.length === 0;
      }
      controls.forEach((control, i) => updates[i](control));
    },
  };
}

/**
 * One of a list.
 * @param {Omit<Select, "key">} control @param {(value: any) => void} chosen
 */
export function select({ label, options, value }, chosen) {
  const id = `control-${++last}`;
  const field = html("select", { id }, ...options.map(({ name }, i) => html("option", { value: i }, name)));
  const update = (/** @type {Omit<Select, "key">} */ { value }) => {
    field.value = String(options.findIndex((option) => option.value === value));
  };
  update({ label, options, value });
  field.addEventListener("change", () => chosen(options[Number(field.value)].value));
  return { element: html("div", { class: "control" }, html("label", { for: id }, label), field), update };
}

/**
 * A number along a slider, with what it stands for in words.
 * @param {Omit<Slider, "key">} control @param {(value: number) => void} chosen
 */
export function slider(control, chosen) {
  const id = `control-${++last}`;
  const { low: min, high: max, step } = control;
  const field = html("input", { id, type: "range", min, max, step });
  const said = html("output", { for: id });
  const update = (/** @type {Omit<Slider, "key">} */ { value, written }) => {
    if (field.value !== String(value)) field.value = String(value);
    if (field.getAttribute("aria-valuetext") === written) return;
    field.setAttribute("aria-valuetext", written);
    said.replaceChildren(written);
  };
  update(control);
  field.addEventListener("input", () => chosen(Number(field.value)));
  const label = html("label", { for: id }, control.label);
  return { element: html("div", { class: "control" }, label, field, said), update, said };
}
