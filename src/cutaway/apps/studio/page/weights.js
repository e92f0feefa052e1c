// One weight or bias set by hand: on a slider beside the place where it was clicked, or by its name from a list.

import { html } from "../draw/dom.js";
import { failing, slider } from "./controls.js";

/**
 * @typedef {{ name: string, shape: number[] }} Weight
 * @param {(name: string, index: number[], value?: number) => Promise<Record<string, any>>} send for the side being set
 */
export function weightEditor(send) {
  const title = html("h2", { id: "weight-title" });
  const place = html("div", {});
  const close = html("button", { type: "button" }, "Done");
  const failed = failing();
  const dialog = html("dialog", { class: "weight", "aria-labelledby": "weight-title" }, title, place, failed, close);
  document.body.append(dialog);
  close.addEventListener("click", () => dialog.close());
  dialog.addEventListener("keydown", (event) => event.key === "Escape" && dialog.close());
  /** @type {HTMLElement | null} */
  let from = null;
  dialog.addEventListener("close", () => from?.focus());

  /**
   * @param {(value: number) => Promise<unknown>} set
   * @param {string} name @param {number[]} index @param {number} value @param {HTMLElement} at where it was asked for
   */
  function open(set, name, index, value, at) {
    from = at;
    title.textContent = `${name}${index.length > 0 ? ` [${index.join(", ")}]` : ""}`;
    failed.say("");
    const known = Number.isFinite(value);
    const most = known ? Math.max(3, Math.ceil(2 * Math.abs(value))) : 3;
    const range = { low: -most, high: most };
    const setting = { key: "value", label: "Value", type: "float", default: "", says: "", choices: null, ...range };
    const field = slider(setting, async (_, typed) => {
      const wanted = Number(typed);
      if (typed === "" || !Number.isFinite(wanted)) return failed.say("Write a number, as 0.5 or -2.");
      failed.say("");
      try {
        await set(wanted);
      } catch (error) {
        failed.say(error instanceof Error ? error.message : String(error));
      }
    });
    field.set(known ? String(Number(value.toPrecision(4))) : "");
    place.replaceChildren(field.root);
    dialog.show();
    // Below what was clicked, within the window.
    const box = at.getBoundingClientRect();
    const own = dialog.getBoundingClientRect();
    const room = document.documentElement;
    const left = Math.max(8, Math.min(box.left, room.clientWidth - own.width - 8));
    const under = Math.max(8, Math.min(box.bottom + 8, room.clientHeight - own.height - 8));
    dialog.style.setProperty("left", `${left}px`);
    dialog.style.setProperty("top", `${under}px`);
    field.root.querySelector("input")?.focus();
  }

  const list = byName(async (name, index, at, fail) => {
    try {
      const { value } = await send(name, index); // what it is now
      open((next) => send(name, index, next), name, index, Number(value), at);
    } catch (error) {
      fail(error instanceof Error ? error.message : String(error));
    }
  });
  return { open, list };
}

/**
 * The weights by name, each with as many numbers as point to one of its values.
 * @param {(name: string, index: number[], at: HTMLElement, fail: (words: string) => void) => void} chosen
 */
function byName(chosen) {
  const select = html("select", { id: "weight-name" });
  const places = html("div", { class: "indices" });
  const button = html("button", { type: "button", class: "plain" }, "Change it");
  const failed = failing();
  const label = html("label", { for: "weight-name" }, "Weight or bias");
  const field = html("div", { class: "field" }, label, select, places, button, failed);
  const head = html("summary", {}, "Set a weight by hand");
  const root = html("details", { class: "more", "data-control": "weights" }, head, field);
  /** @type {Weight[]} */
  let known = [];
  let shown = "";

  function choose() {
    const shape = known.find(({ name }) => name === select.value)?.shape ?? [];
    const inputs = shape.map((size, i) => {
      const words = shape.length === 1 ? "unit" : ["row", "column"][i] ?? `place ${i + 1}`;
      const input = html("input", { type: "number", min: 0, max: size - 1, step: 1, value: 0 });
      return html("label", {}, `${words}, 0 to ${size - 1}`, input);
    });
    places.replaceChildren(...inputs);
  }
  select.addEventListener("change", choose);
  button.addEventListener("click", () => {
    const inputs = [...places.querySelectorAll("input")];
    const wrong = inputs.find((input) => input.value === "" || !input.checkValidity());
    failed.say(wrong ? `Choose a whole number from 0 to ${wrong.max}.` : "");
    if (wrong) return wrong.focus();
    chosen(select.value, inputs.map((input) => Number(input.value)), button, failed.say);
  });
  return {
    root,
    /** @param {Weight[]} weights */
    show(weights) {
      const now = JSON.stringify(weights);
      if (now === shown) return;
      shown = now;
      known = weights;
      select.replaceChildren(...weights.map(({ name }) => html("option", { value: name }, name)));
      root.hidden = weights.length === 0;
      choose();
    },
  };
}
