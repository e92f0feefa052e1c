// One of several groups of drawings, chosen from a list or along a slider that can play by itself.

import { select, slider } from "./controls.js";
import { html } from "./dom.js";

/**
 * @typedef {import("./view.js").Drawing} Drawing
 * @typedef {{ name: string, drawings: Drawing[] }} Option
 * @typedef {{ kind: string, title: string, label: string, slider?: boolean, start?: number, options: Option[] }} Choice
 * @typedef {(place: HTMLElement) => (drawings: Drawing[]) => void} Fill makes a place that shows drawings
 */

const WHOLE = 6000; // milliseconds that a slider takes from end to end, where its steps can still be followed
const SOON = 150; // milliseconds until what was chosen from elsewhere is drawn and comes into sight
const [FASTEST, SLOWEST] = [120, 900]; // milliseconds for a step

/**
 * The choice with the drawings of what is chosen; the others are not in the document.
 * @param {Choice} spec @param {Fill} fill
 */
export function choice(spec, fill) {
  const id = `choice-${++last}`;
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
  let chosen = bounded(spec.start ?? 0, spec.options.length);
  let built = ""; // what the controls were made for
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
    made.said.style.setProperty("min-width", `${Math.min(widest, 24)}ch`); // so that nothing moves with the words
    update = made.update;
    const player = playing(() => chosen, () => spec.options.length, choose, element);
    play = player.play;
    controls.replaceChildren(player.button, made.element);
  }

  element.addEventListener("choose", (event) => {
    const { label, name } = /** @type {CustomEvent} */ (event).detail;
    const wanted = label === spec.label ? spec.options.findIndex((option) => option.name === name) : -1;
    if (wanted < 0) return;
    play(false);
    choose(wanted);
    setTimeout(() => element.scrollIntoView({ block: "nearest" }), SOON);
  });
  draw();
  return {
    element,
    /** Show another description of the same choice: what was chosen by name stays chosen. @param {Choice} next */
    update(next) {
      const name = spec.options[chosen]?.name;
      const atEnd = chosen === spec.options.length - 1 && next.slider;
      const same = next.options.findIndex((option) => option.name === name);
      const kept = same >= 0 ? same : bounded(chosen, next.options.length);
      chosen = atEnd && next.options.length > spec.options.length && same < 0 ? next.options.length - 1 : kept;
      spec = next;
      draw();
    },
  };
}

let last = 0; // for ids

/**
 * @param {number} i @param {number} count
 */
function bounded(i, count) {
  return Math.max(0, Math.min(Math.round(i), count - 1));
}

/**
 * A button that goes from step to step, and stops at the end. It only ever starts when it is pressed.
 * @param {() => number} at @param {() => number} count @param {(i: number) => void} choose
 * @param {HTMLElement} inside it stops when this has left the page
 */
function playing(at, count, choose, inside) {
  const button = html("button", { type: "button", class: "play" }, "Play");
  /** @type {ReturnType<typeof setTimeout> | null} */
  let timer = null;
  const pause = () => Math.max(FASTEST, Math.min(WHOLE / count(), SLOWEST));
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
