// The second column: which architecture, and its settings. With two models, which of them is being set.

import { html } from "../draw/dom.js";
import { chooser, control } from "./controls.js";
import { ofModel, suiting } from "./settings.js";

/**
 * @param {HTMLElement} root @param {import("./settings.js").Choices} choices
 * @param {(key: string, value: string) => void} changed
 * @param {(side: "a" | "b") => void} turned to the other model
 */
export function modelPanel(root, choices, changed, turned) {
  const which = sides(turned);
  const architecture = chooser({ key: "model", default: "", says: "" }, [], changed);
  const place = html("div", { class: "settings" });
  root.append(which.root, architecture.root, place);
  /** @type {import("./controls.js").Control[]} */
  let own = [];
  let built = "";

  /** @param {string} name */
  function build(name) {
    if (built === name) return;
    built = name;
    const model = choices.models.find((one) => one.name === name);
    const [shown, more] = (model ? ofModel(model) : [[], []]).map((settings) =>
      settings.map((setting) => control(setting, changed)),
    );
    own = [...shown, ...more];
    place.replaceChildren(...shown.map((one) => one.root), ...folded("More of its settings", more));
  }

  return {
    /** @returns {import("./controls.js").Control[]} */
    controls: () => [architecture, ...own],
    /**
     * @param {Record<string, string>} state @param {import("./settings.js").DataChoice | undefined} data
     * @param {string[] | undefined} learners that can learn from it, where the server has said so
     * @param {"a" | "b"} side @param {boolean} two
     */
    show(state, data, learners, side, two) {
      const taking = data && data.kind !== "run" && !learners ? suiting(choices.models, data) : choices.models;
      const suit = learners ? taking.filter(({ name }) => learners.includes(name)) : taking;
      const fits = suit.map(({ name, family }) => ({ value: name, name, group: family }));
      const name = state.model ?? "";
      if (name && !suit.some((model) => model.name === name)) fits.push({ value: name, name, group: "opened" });
      architecture.limit(fits);
      architecture.set(name);
      build(name);
      for (const one of own) one.set(state[one.key] ?? "");
      which.show(side, two);
      return name;
    },
  };
}

/** @param {(side: "a" | "b") => void} turned */
function sides(turned) {
  const inputs = ["a", "b"].map((side) => html("input", { type: "radio", name: "side", value: side }));
  const names = ["Model A", "Model B"];
  const labels = inputs.map((input, i) => html("label", {}, input, html("span", {}, names[i])));
  const root = html("fieldset", { class: "sides" }, html("legend", {}, "Settings of"), ...labels);
  for (const input of inputs) input.addEventListener("change", () => turned(/** @type {"a" | "b"} */ (input.value)));
  root.hidden = true;
  return {
    root,
    /** @param {"a" | "b"} side @param {boolean} two */
    show(side, two) {
      root.hidden = !two;
      for (const input of inputs) input.checked = input.value === side;
    },
  };
}

/**
 * Settings that are wanted less often.
 * @param {string} name @param {import("./controls.js").Control[]} controls
 */
export function folded(name, controls) {
  if (controls.length === 0) return [];
  return [html("details", { class: "more" }, html("summary", {}, name), ...controls.map((one) => one.root))];
}
