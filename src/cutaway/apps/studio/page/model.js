// Panel of the model: its architecture and settings, and the selected side when two models are compared.

import { html } from "../draw/dom.js";
import { selectField, control } from "./controls.js";
import { modelSettings, compatibleModels } from "./settings.js";

/**
 * @param {HTMLElement} root @param {import("./settings.js").Choices} choices
 * @param {(key: string, value: string) => void} onChange
 * @param {(side: "a" | "b") => void} onSideChange called with the selected side
 */
export function modelPanel(root, choices, onChange, onSideChange) {
  const selector = sideSelector(onSideChange);
  const architecture = selectField({ key: "model", default: "", says: "" }, [], onChange);
  const settings = html("div", { class: "settings" });
  root.append(selector.root, architecture.root, settings);
  /** @type {import("./controls.js").Control[]} */
  let fields = [];
  let built = "";

  /** @param {string} name */
  function build(name) {
    if (built === name) return;
    built = name;
    const model = choices.models.find((one) => one.name === name);
    const [shown, more] = (model ? modelSettings(model) : [[], []]).map((settings) =>
      settings.map((setting) => control(setting, onChange)),
    );
    fields = [...shown, ...more];
    settings.replaceChildren(...shown.map((one) => one.root), ...collapsible("More settings", more));
  }

  return {
    /** @returns {import("./controls.js").Control[]} */
    controls: () => [architecture, ...fields],
    /**
     * @param {Record<string, string>} state @param {import("./settings.js").DataChoice | undefined} data
     * @param {string[] | undefined} compatible models that the server found compatible with the data, once known
     * @param {"a" | "b"} side @param {boolean} two
     */
    show(state, data, compatible, side, two) {
      const candidates = data && data.kind !== "run" && !compatible ? compatibleModels(choices.models, data) : choices.models;
      const suitable = compatible ? candidates.filter(({ name }) => compatible.includes(name)) : candidates;
      const options = suitable.map(({ name, family }) => ({ value: name, name, group: family }));
      const name = state.model ?? "";
      if (name && !suitable.some((model) => model.name === name)) options.push({ value: name, name, group: "opened" });
      architecture.limit(options);
      architecture.set(name);
      build(name);
      for (const one of fields) one.set(state[one.key] ?? "");
      selector.show(side, two);
      return name;
    },
  };
}

/** @param {(side: "a" | "b") => void} onSideChange */
function sideSelector(onSideChange) {
  const inputs = ["a", "b"].map((side) => html("input", { type: "radio", name: "side", value: side }));
  const names = ["Model A", "Model B"];
  const labels = inputs.map((input, i) => html("label", {}, input, html("span", {}, names[i])));
  const root = html("fieldset", { class: "sides" }, html("legend", {}, "Settings of"), ...labels);
  for (const input of inputs) input.addEventListener("change", () => onSideChange(/** @type {"a" | "b"} */ (input.value)));
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
 * Return a collapsible section of less common settings.
 * @param {string} name @param {import("./controls.js").Control[]} controls
 */
export function collapsible(name, controls) {
  if (controls.length === 0) return [];
  return [html("details", { class: "more" }, html("summary", {}, name), ...controls.map((one) => one.root))];
}
