// Play, pause, step, epoch, reset, and the way back in time. It stays in reach at the top of the page.

import { html } from "../draw/dom.js";
import { throttled } from "./controls.js";
import { looking, pace, progress } from "./words.js";

/**
 * @param {HTMLElement} root
 * @param {(what: "play" | "pause" | "step" | "epoch" | "reset" | "seek", to?: number) => void} act
 */
export function player(root, act) {
  let playing = false;
  /** @type {number[]} */
  let snapshots = [];
  const play = button("Play", () => act(playing ? "pause" : "play"));
  play.className = "play";
  play.title = "Space does this too";
  const others = [
    button("Step", () => act("step"), "One step: one batch of examples"),
    button("Epoch", () => act("epoch"), "One epoch: every example once"),
    button("Reset", () => act("reset"), "Back to before the first step, with the same seed"),
  ];
  const far = html("strong", { class: "far" });
  const fast = html("span", { class: "fast" });
  const back = html("input", { type: "range", id: "back", min: 0, max: 0, step: 1 });
  const where = html("output", { for: "back", class: "where" });
  const seek = throttled((/** @type {number} */ to) => act("seek", to), 120);
  back.addEventListener("input", () => {
    const to = snapshots[Number(back.value)];
    if (to === undefined) return;
    back.setAttribute("aria-valuetext", `step ${to}`);
    seek(to);
  });
  const label = html("label", { for: "back" }, "Look back");
  root.append(
    html("div", { class: "buttons", "data-control": "play" }, play, ...others),
    html("p", { class: "status" }, far, " ", fast),
    html("div", { class: "back", "data-control": "back" }, label, back, where),
  );

  // Space plays and pauses, except where it has another meaning.
  document.addEventListener("keydown", (event) => {
    const at = /** @type {Element} */ (event.target);
    if (event.key !== " " || event.repeat || event.ctrlKey || event.altKey || event.metaKey || event.shiftKey) return;
    if (at.closest("button, input, select, textarea, summary, a, dialog")) return;
    event.preventDefault();
    if (!play.closest("[hidden]")) play.click();
  });

  return {
    /**
     * @param {import("./words.js").Frame} frame @param {import("./words.js").Frame | null} other the second model's
     * @param {boolean} anyPlays
     * @param {boolean} coming whether what was opened last is yet to be seen
     */
    show(frame, other, anyPlays, coming) {
      playing = anyPlays;
      put(play, playing ? "Pause" : "Play");
      put(far, progress(frame) + (other && other.step !== frame.step ? ` (B ${other.step})` : ""));
      const behind = frame.at !== undefined && frame.at !== frame.step;
      const going = pace({ ...frame, playing: anyPlays || frame.playing });
      put(fast, coming ? "Opening …" : behind ? "Looking back" : going);
      const list = frame.snapshots ?? [];
      const newest = list.at(-1) === frame.step ? list : [...list, frame.step];
      const last = String(newest.length - 1);
      if (back.max !== last) back.max = last;
      back.disabled = newest.length < 2;
      snapshots = newest;
      if (!back.matches(":active")) {
        const place = String(nearest(newest, frame.at ?? frame.step));
        if (back.value !== place) back.value = place;
      }
      back.setAttribute("aria-valuetext", `step ${frame.at ?? frame.step}`);
      put(where, newest.length < 2 ? "" : looking(frame.at ?? frame.step, frame.step));
    },
  };
}

/** @param {number[]} list rising @param {number} wanted */
function nearest(list, wanted) {
  return list.reduce((best, step, i) => (Math.abs(step - wanted) < Math.abs(list[best] - wanted) ? i : best), 0);
}

/** @param {string} name @param {() => void} act @param {string} [title] */
function button(name, act, title) {
  const made = html("button", { type: "button", title }, name);
  made.addEventListener("click", act);
  return made;
}

/**
 * Words, written only where they changed: a page that is written anew at every frame is never at rest.
 * @param {Element} element @param {string} words
 */
export function put(element, words) {
  if (element.textContent !== words) element.textContent = words;
}
