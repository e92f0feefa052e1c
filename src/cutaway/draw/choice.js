// One of several groups of drawings, selected from a list or with a slider that can play automatically.

import { select, slider } from "./controls.js";
import { html } from "./dom.js";

/**
 * @typedef {import("./view.js").Drawing} Drawing
 * @typedef {{ name: string, drawings: Drawing[] }} Option
 * @typedef {{ kind: string, title: string, label: string, slider?: boolean, start?: number, options: Option[] }} Choice
 * @typedef {(place: HTMLElement) => (drawings: Drawing[]) => void} Fill returns a function that shows drawings in a container
 */

const FULL_DURATION = 6000; // milliseconds to play a slider from end to end
const REDRAW_DELAY = 150; // milliseconds until an option selected elsewhere is drawn and scrolled into view
const [FASTEST, SLOWEST] = [120, 900]; // milliseconds for a step

/**
 * Draw the selected option; drawings of other options are not in the document.
 * @param {Choice} spec @param {Fill} fill
 */
export function choice(spec, fill) {
  const id = `choice-${++lastId}`;
  const place = html("div", { class: "figures" });
  const show = fill(place);
  const controls = html("div", { class: "controls" });
  const element = html(
    "div",
    { class: "choice", role: spec.title ? "group" : null, "aria-labelledby": spec.title ? id : null },
    spec.title ? html("h3", { id }, spec.title) : null,
    controls,
    place,
  );
  let chosen = clampIndex(spec.start ?? 0, spec.options.length);
  let built = ""; // description the controls were built for
  /** @type {(control: any) => void} */
  let update = () => {};
  /** @type {(on: boolean) => void} */
  let play = () => {};

  /** @param {number} i */
  function choose(i) {
    chosen = i;
    draw();
    const { name } = spec.options[i];
    element.dispatchEvent(new CustomEvent("chosen", { bubbles: true, detail: { label: spec.label, name, index: i } }));
  }

  function draw() {
    const wanted = JSON.stringify([spec.label, spec.slider, spec.options.map((option) => option.name)]);
    if (wanted !== built) build(wanted);
    update({ value: chosen, written: spec.options[chosen]?.name ?? "" });
    show(spec.options[chosen]?.drawings ?? []);
  }

  /** @param {string} wanted */
  function build(wanted) {
    built = wanted;
    play(false);
    const { label, options } = spec;
    if (!spec.slider) {
      const made = select({ label, options: options.map(({ name }, value) => ({ value, name })), value: chosen }, choose);
      update = made.update;
      return controls.replaceChildren(made.element);
    }
    const high = options.length - 1;
    const stopAndChoose = (/** @type {number} */ i) => {
      play(false);
      choose(i);
    };
    const made = slider({ label, value: chosen, low: 0, high, step: 1, written: "" }, stopAndChoose);
    const widest = Math.max(...options.map(({ name }) => [...name].length));
    made.output.style.setProperty("min-width", `${Math.min(widest, 24)}ch`); // so that the layout does not change with the text
    update = made.update;
    const player = createPlayer(() => chosen, () => spec.options.length, choose, element);
    play = player.play;
    controls.replaceChildren(player.button, made.element);
  }

  element.addEventListener("choose", (event) => {
    const { label, name } = /** @type {CustomEvent} */ (event).detail;
    const wanted = label === spec.label ? spec.options.findIndex((option) => option.name === name) : -1;
    if (wanted < 0) return;
    play(false);
    choose(wanted);
    setTimeout(() => element.scrollIntoView({ block: "nearest" }), REDRAW_DELAY);
  });
  draw();
  return {
    element,
    /** Update the description; the selected option is kept by name. @param {Choice} next */
    update(next) {
      const name = spec.options[chosen]?.name;
      const atEnd = chosen === spec.options.length - 1 && next.slider;
      const same = next.options.findIndex((option) => option.name === name);
      const kept = same >= 0 ? same : clampIndex(chosen, next.options.length);
      chosen = atEnd && next.options.length > spec.options.length && same < 0 ? next.options.length - 1 : kept;
      spec = next;
      draw();
    },
  };
}

let lastId = 0; // for ids

/**
 * @param {number} i @param {number} count
 */
function clampIndex(i, count) {
  return Math.max(0, Math.min(Math.round(i), count - 1));
}

/**
 * Button that plays through all steps and stops at the end. It never starts automatically.
 * @param {() => number} at @param {() => number} count @param {(i: number) => void} choose
 * @param {HTMLElement} inside stops when this element is removed
 */
function createPlayer(at, count, choose, inside) {
  const button = html("button", { type: "button", class: "play" }, "Play");
  /** @type {ReturnType<typeof setTimeout> | null} */
  let timer = null;
  const pause = () => Math.max(FASTEST, Math.min(FULL_DURATION / count(), SLOWEST));
  /** @param {boolean} on */
  function play(on) {
    if (timer !== null) clearTimeout(timer);
    timer = on ? setTimeout(next, pause()) : null;
    button.replaceChildren(on ? "Pause" : "Play");
  }
  function next() {
    if (!inside.isConnected || at() + 1 >= count()) return play(false);
    choose(at() + 1);
    play(at() + 1 < count());
  }
  button.addEventListener("click", () => {
    if (timer !== null) return play(false);
    if (at() + 1 >= count()) choose(0); // from the beginning again
    play(true);
  });
  return { button, play };
}
