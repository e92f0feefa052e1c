// Editor of single weights and biases: opened by a click in a drawing, or by name from a list.

import { html } from "../draw/dom.js";
import { errorMessage, slider } from "./controls.js";

/**
 * @typedef {{ name: string, shape: number[] }} Weight
 * @param {(name: string, index: number[], value?: number) => Promise<Record<string, any>>} send request for the selected side
 */
export function weightEditor(send) {
  const title = html("h2", { id: "weight-title" });
  const place = html("div", {});
  const closeButton = html("button", { type: "button" }, "Done");
  const errorField = errorMessage();
  const dialog = html("dialog", { class: "weight", "aria-labelledby": "weight-title" }, title, place, errorField, closeButton);
  document.body.append(dialog);
  closeButton.addEventListener("click", () => dialog.close());
  dialog.addEventListener("keydown", (event) => event.key === "Escape" && dialog.close());
  /** @type {HTMLElement | null} */
  let opener = null;
  dialog.addEventListener("close", () => opener?.focus());

  /**
   * @param {(value: number) => Promise<unknown>} set
   * @param {string} name @param {number[]} index @param {number} value @param {HTMLElement} anchor element that opened the editor
   */
  function open(set, name, index, value, anchor) {
    opener = anchor;
    title.textContent = `${name}${index.length > 0 ? ` [${index.join(", ")}]` : ""}`;
    errorField.show("");
    const weightList = Number.isFinite(value);
    const most = weightList ? Math.max(3, Math.ceil(2 * Math.abs(value))) : 3;
    const range = { low: -most, high: most };
    const setting = { key: "value", label: "Value", type: "float", default: "", says: "", choices: null, ...range };
    const field = slider(setting, async (_, text) => {
      const number = Number(text);
      if (text === "" || !Number.isFinite(number)) return errorField.show("Invalid value: must be a number, for example 0.5 or -2.");
      errorField.show("");
      try {
        await set(number);
      } catch (error) {
        errorField.show(error instanceof Error ? error.message : String(error));
      }
    });
    field.set(weightList ? String(Number(value.toPrecision(4))) : "");
    place.replaceChildren(field.root);
    dialog.show();
    // Below the clicked element, inside the window.
    const box = anchor.getBoundingClientRect();
    const own = dialog.getBoundingClientRect();
    const room = document.documentElement;
    const left = Math.max(8, Math.min(box.left, room.clientWidth - own.width - 8));
    const under = Math.max(8, Math.min(box.bottom + 8, room.clientHeight - own.height - 8));
    dialog.style.setProperty("left", `${left}px`);
    dialog.style.setProperty("top", `${under}px`);
    field.root.querySelector("input")?.focus();
  }

  const list = weightPicker(async (name, index, anchor, onError) => {
    try {
      const { value } = await send(name, index); // the current value
      open((next) => send(name, index, next), name, index, Number(value), anchor);
    } catch (error) {
      onError(error instanceof Error ? error.message : String(error));
    }
  });
  return { open, list };
}

/**
 * List of weights by name, with inputs for the indices of a single value.
 * @param {(name: string, index: number[], anchor: HTMLElement, onError: (words: string) => void) => void} onSelect
 */
function weightPicker(onSelect) {
  const select = html("select", { id: "weight-name" });
  const indices = html("div", { class: "indices" });
  const button = html("button", { type: "button", class: "plain" }, "Edit");
  const errorField = errorMessage();
  const label = html("label", { for: "weight-name" }, "Weight or bias");
  const field = html("div", { class: "field" }, label, select, indices, button, errorField);
  const head = html("summary", {}, "Edit a weight");
  const root = html("details", { class: "more", "data-control": "weights" }, head, field);
  /** @type {Weight[]} */
  let weightList = [];
  let shown = "";

  function showIndices() {
    const shape = weightList.find(({ name }) => name === select.value)?.shape ?? [];
    const inputs = shape.map((size, i) => {
      const words = shape.length === 1 ? "unit" : ["row", "column"][i] ?? `index ${i + 1}`;
      const input = html("input", { type: "number", min: 0, max: size - 1, step: 1, value: 0 });
      return html("label", {}, `${words}, 0 to ${size - 1}`, input);
    });
    indices.replaceChildren(...inputs);
  }
  select.addEventListener("change", showIndices);
  button.addEventListener("click", () => {
    const inputs = [...indices.querySelectorAll("input")];
    const invalid = inputs.find((input) => input.value === "" || !input.checkValidity());
    errorField.show(invalid ? `Invalid index: must be an integer from 0 to ${invalid.max}.` : "");
    if (invalid) return invalid.focus();
    onSelect(select.value, inputs.map((input) => Number(input.value)), button, errorField.show);
  });
  return {
    root,
    /** @param {Weight[]} weights */
    show(weights) {
      const now = JSON.stringify(weights);
      if (now === shown) return;
      shown = now;
      weightList = weights;
      select.replaceChildren(...weights.map(({ name }) => html("option", { value: name }, name)));
      root.hidden = weights.length === 0;
      showIndices();
    },
  };
}
