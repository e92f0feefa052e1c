// Tour of the page in six steps, by buttons or arrow keys. The current step is kept in the URL.

import { html } from "../draw/dom.js";

/** @type {[string, string, string][]} selector, title, description */
const STOPS = [
  ["#data", "Data", "The training examples. Each colour is a class. Choose another toy data set, a named data set, or your own file, which stays on this machine."],
  ["#model", "Model", "The network. Add a layer or a unit, or choose another activation or architecture."],
  ["#player .play", "Play", "Each step moves the weights a little against the gradient of the loss on one batch. Press Play or the space bar; use the slider to go back to earlier steps."],
  ["#training", "Training", "The training loss is measured on the training examples, the validation loss on other examples. Change the learning rate during training to see its effect."],
  ["#learned", "What it has learned", "The prediction at every point of the plane, and the activation of each unit. Click a line to edit a weight. Try your own text or image here: type, draw or drop a file."],
  ["#tools", "Compare, save, share", "Compare trains a second model side by side. Save writes a run. Share gives a command that opens the same state anywhere."],
]; // prettier-ignore
const SEEN_KEY = "cutaway-tour"; // in session storage

/**
 * @param {HTMLElement} root parent of its button
 * @param {(step: string) => void} onStep called with the step, or "" when the tour ends
 */
export function createTour(root, onStep) {
  const button = html("button", { type: "button", "data-control": "tour" }, "Tour");
  const title = html("h2", { id: "tour-title" });
  const text = html("p", { id: "tour-words" });
  const position = html("p", { class: "hint" });
  const [back, next, skip] = ["Back", "Next", "Skip"].map((name) => html("button", { type: "button" }, name));
  const box = html(
    "dialog",
    { class: "tour", "aria-labelledby": "tour-title", "aria-describedby": "tour-words" },
    title,
    text,
    position,
    html("div", { class: "buttons" }, back, next, skip),
  );
  document.body.append(box);
  root.append(button);
  let at = -1;
  /** @type {Element | null} */
  let highlighted = null;

  /** @param {number} step */
  function go(step) {
    highlighted?.classList.remove("toured");
    at = step;
    if (at < 0 || at >= STOPS.length) return end();
    const [selector, name, description] = STOPS[at];
    highlighted = document.querySelector(selector);
    const fold = highlighted?.closest("details");
    if (fold) fold.open = true;
    highlighted?.classList.add("toured");
    title.textContent = name;
    text.textContent = description;
    position.textContent = `${at + 1} of ${STOPS.length}`;
    back.disabled = at === 0;
    next.textContent = at === STOPS.length - 1 ? "Done" : "Next";
    skip.hidden = at === STOPS.length - 1;
    if (!box.open) box.show();
    highlighted?.scrollIntoView({ block: "nearest" });
    placeDialog(box, highlighted);
    next.focus();
    onStep(String(at + 1));
  }

  function end() {
    at = -1;
    box.close();
    highlighted = null;
    try {
      sessionStorage.setItem(SEEN_KEY, "yes");
    } catch {} // storage may be disabled
    onStep("");
    button.focus();
  }

  button.addEventListener("click", () => go(0));
  back.addEventListener("click", () => go(at - 1));
  next.addEventListener("click", () => go(at + 1));
  skip.addEventListener("click", () => go(-1));
  box.addEventListener("keydown", (event) => {
    const step = { ArrowRight: at + 1, ArrowLeft: Math.max(0, at - 1), Escape: -1 }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    go(step);
  });
  addEventListener("resize", () => at >= 0 && placeDialog(box, highlighted));

  return {
    /** @param {string | undefined} step from the URL @param {boolean} first true if the URL has no state */
    start(step, first) {
      const index = Number(step ?? 0);
      if (Number.isInteger(index) && index >= 1 && index <= STOPS.length) return go(index - 1);
      let isSeen = true;
      try {
        isSeen = sessionStorage.getItem(SEEN_KEY) !== null;
      } catch {}
      if (!first || isSeen) return;
      button.classList.add("offered");
      button.textContent = "Take the tour (1 minute)";
      button.addEventListener("click", () => resetButton(), { once: true });
      document.querySelector(".play")?.addEventListener("click", () => resetButton(), { once: true });
    },
  };

  function resetButton() {
    button.classList.remove("offered");
    button.textContent = "Tour";
  }
}

/**
 * Place the dialog next to its target, without covering it if there is room.
 * @param {HTMLElement} box @param {Element | null} target
 */
function placeDialog(box, target) {
  if (!target) return;
  const [targetBox, dialogBox] = [target.getBoundingClientRect(), box.getBoundingClientRect()];
  const [width, height] = [document.documentElement.clientWidth, document.documentElement.clientHeight];
  const clamp = (/** @type {number} */ value, /** @type {number} */ most) => Math.max(8, Math.min(value, most - 8));
  const right = targetBox.right + dialogBox.width + 16 < width;
  const left = right ? targetBox.right + 8 : targetBox.left - dialogBox.width - 8 > 0 ? targetBox.left - dialogBox.width - 8 : targetBox.left;
  const isBeside = right || targetBox.left - dialogBox.width - 8 > 0;
  const top = isBeside ? Math.max(targetBox.top, 64) + 8 : targetBox.bottom + 8 < height - dialogBox.height ? targetBox.bottom + 8 : height - dialogBox.height - 8;
  box.style.setProperty("left", `${clamp(left, width - dialogBox.width)}px`);
  box.style.setProperty("top", `${clamp(top, height - dialogBox.height)}px`);
}
