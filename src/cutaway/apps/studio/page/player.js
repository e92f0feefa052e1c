// Buttons to play, pause, step and reset, and the slider to go back to earlier steps, at the top of the page.

import { html } from "../draw/dom.js";
import { throttle } from "./controls.js";
import { stepText, speedText, progressText } from "./labels.js";

/**
 * @param {HTMLElement} root
 * @param {(what: "play" | "pause" | "step" | "epoch" | "reset" | "seek", to?: number) => void} onAction
 */
export function player(root, onAction) {
  let playing = false;
  /** @type {number[]} */
  let snapshots = [];
  const play = button("Play", () => onAction(playing ? "pause" : "play"));
  play.className = "play";
  play.title = "Shortcut: space";
  const others = [
    button("Step", () => onAction("step"), "One step: one batch of examples"),
    button("Epoch", () => onAction("epoch"), "One epoch: every example once"),
    button("Reset", () => onAction("reset"), "Back to the initial weights, with the same seed"),
  ];
  const progress = html("strong", { class: "far" });
  const speed = html("span", { class: "fast" });
  const slider = html("input", { type: "range", id: "back", min: 0, max: 0, step: 1 });
  const stepOutput = html("output", { for: "back", class: "where" });
  const seek = throttle((/** @type {number} */ to) => onAction("seek", to), 120);
  slider.addEventListener("input", () => {
    const to = snapshots[Number(slider.value)];
    if (to === undefined) return;
    slider.setAttribute("aria-valuetext", `step ${to}`);
    seek(to);
  });
  const label = html("label", { for: "back" }, "History");
  root.append(
    html("div", { class: "buttons", "data-control": "play" }, play, ...others),
    html("p", { class: "status" }, progress, " ", speed),
    html("div", { class: "back", "data-control": "back" }, label, slider, stepOutput),
  );

  // Space plays and pauses, unless the focused element uses it.
  document.addEventListener("keydown", (event) => {
    const at = /** @type {Element} */ (event.target);
    if (event.key !== " " || event.repeat || event.ctrlKey || event.altKey || event.metaKey || event.shiftKey) return;
    if (at.closest("button, input, select, textarea, summary, a, dialog")) return;
    event.preventDefault();
    if (!play.closest("[hidden]")) play.click();
  });

  return {
    /**
     * @param {import("./labels.js").Frame} frame @param {import("./labels.js").Frame | null} other the second model's
     * @param {boolean} anyPlaying
     * @param {boolean} opening true until the first frame of the opened model arrives
     */
    show(frame, other, anyPlaying, opening) {
      playing = anyPlaying;
      setText(play, playing ? "Pause" : "Play");
      setText(progress, progressText(frame) + (other && other.step !== frame.step ? ` (B ${other.step})` : ""));
      const isBehind = frame.at !== undefined && frame.at !== frame.step;
      const currentSpeed = speedText({ ...frame, playing: anyPlaying || frame.playing });
      setText(speed, opening ? "Opening …" : isBehind ? "Earlier step" : currentSpeed);
      const list = frame.snapshots ?? [];
      const steps = list.at(-1) === frame.step ? list : [...list, frame.step];
      const last = String(steps.length - 1);
      if (slider.max !== last) slider.max = last;
      slider.disabled = steps.length < 2;
      snapshots = steps;
      if (!slider.matches(":active")) {
        const place = String(nearest(steps, frame.at ?? frame.step));
        if (slider.value !== place) slider.value = place;
      }
      slider.setAttribute("aria-valuetext", `step ${frame.at ?? frame.step}`);
      setText(stepOutput, steps.length < 2 ? "" : stepText(frame.at ?? frame.step, frame.step));
    },
  };
}

/** @param {number[]} steps sorted @param {number} target @returns the index of the nearest step */
function nearest(steps, target) {
  return steps.reduce((best, step, i) => (Math.abs(step - target) < Math.abs(steps[best] - target) ? i : best), 0);
}

/** @param {string} name @param {() => void} onAction @param {string} [title] */
function button(name, onAction, title) {
  const element = html("button", { type: "button", title }, name);
  element.addEventListener("click", onAction);
  return element;
}

/**
 * Set the text of an element if it has changed, to avoid needless repaints.
 * @param {Element} element @param {string} text
 */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}
