// A first tour of one minute: six places, by button or by key, left at any time. Where it stands is in the URL.

import { html } from "../draw/dom.js";

/** @type {[string, string, string][]} where, what it is called, what is said of it */
const STOPS = [
  ["#data", "Data", "It learns from these examples. Each colour is a class. Take another toy, a data set, or a file of your own: it stays on this machine."],
  ["#model", "Model", "What learns: here a network of layers. Add a layer or a unit, choose another activation, or another architecture."],
  ["#player .play", "Play", "Each step moves the weights a little against the gradient of the loss on one batch. Press Play, or the space bar; look back in time with the slider."],
  ["#training", "Training", "The training loss is of examples that it learns from, the validation loss of others. Change the learning rate while it trains, and see what that does."],
  ["#learned", "What it has learned", "What the model predicts at every place, and what each of its units sees. Click a line to set a weight by hand. Text and images can be tried here: type, draw, drop."],
  ["#tools", "Keep it", "Compare trains a second model beside the first. Save makes a run of it, Share a command that opens the same anywhere."],
]; // prettier-ignore
const SEEN = "cutaway-tour"; // in the memory of this tab alone

/**
 * @param {HTMLElement} root where its button stands
 * @param {(step: string) => void} remember the step, for the URL; nothing where there is none
 */
export function touring(root, remember) {
  const button = html("button", { type: "button", "data-control": "tour" }, "Tour");
  const title = html("h2", { id: "tour-title" });
  const words = html("p", { id: "tour-words" });
  const where = html("p", { class: "hint" });
  const [back, next, leave] = ["Back", "Next", "Skip"].map((name) => html("button", { type: "button" }, name));
  const box = html(
    "dialog",
    { class: "tour", "aria-labelledby": "tour-title", "aria-describedby": "tour-words" },
    title,
    words,
    where,
    html("div", { class: "buttons" }, back, next, leave),
  );
  document.body.append(box);
  root.append(button);
  let at = -1;
  /** @type {Element | null} */
  let shown = null;

  /** @param {number} step */
  function go(step) {
    shown?.classList.remove("toured");
    at = step;
    if (at < 0 || at >= STOPS.length) return end();
    const [place, name, said] = STOPS[at];
    shown = document.querySelector(place);
    const fold = shown?.closest("details");
    if (fold) fold.open = true;
    shown?.classList.add("toured");
    title.textContent = name;
    words.textContent = said;
    where.textContent = `${at + 1} of ${STOPS.length}`;
    back.disabled = at === 0;
    next.textContent = at === STOPS.length - 1 ? "Done" : "Next";
    leave.hidden = at === STOPS.length - 1;
    if (!box.open) box.show();
    shown?.scrollIntoView({ block: "nearest" });
    put(box, shown);
    next.focus();
    remember(String(at + 1));
  }

  function end() {
    at = -1;
    box.close();
    shown = null;
    try {
      sessionStorage.setItem(SEEN, "yes");
    } catch {} // where a browser keeps nothing
    remember("");
    button.focus();
  }

  button.addEventListener("click", () => go(0));
  back.addEventListener("click", () => go(at - 1));
  next.addEventListener("click", () => go(at + 1));
  leave.addEventListener("click", () => go(-1));
  box.addEventListener("keydown", (event) => {
    const step = { ArrowRight: at + 1, ArrowLeft: Math.max(0, at - 1), Escape: -1 }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    go(step);
  });
  addEventListener("resize", () => at >= 0 && put(box, shown));

  return {
    /** @param {string | undefined} step as the URL says it @param {boolean} first whether nobody has asked for anything */
    begin(step, first) {
      const wanted = Number(step ?? 0);
      if (Number.isInteger(wanted) && wanted >= 1 && wanted <= STOPS.length) return go(wanted - 1);
      let seen = true;
      try {
        seen = sessionStorage.getItem(SEEN) !== null;
      } catch {}
      if (!first || seen) return;
      button.classList.add("offered");
      button.textContent = "Take the tour: one minute";
      button.addEventListener("click", () => settle(), { once: true });
      document.querySelector(".play")?.addEventListener("click", () => settle(), { once: true });
    },
  };

  function settle() {
    button.classList.remove("offered");
    button.textContent = "Tour";
  }
}

/**
 * Beside what is spoken of, and never over it where there is room.
 * @param {HTMLElement} box @param {Element | null} target
 */
function put(box, target) {
  if (!target) return;
  const [of, own] = [target.getBoundingClientRect(), box.getBoundingClientRect()];
  const [width, height] = [document.documentElement.clientWidth, document.documentElement.clientHeight];
  const inside = (/** @type {number} */ value, /** @type {number} */ most) => Math.max(8, Math.min(value, most - 8));
  const right = of.right + own.width + 16 < width;
  const left = right ? of.right + 8 : of.left - own.width - 8 > 0 ? of.left - own.width - 8 : of.left;
  const beside = right || of.left - own.width - 8 > 0;
  const top = beside ? Math.max(of.top, 64) + 8 : of.bottom + 8 < height - own.height ? of.bottom + 8 : height - own.height - 8;
  box.style.setProperty("left", `${inside(left, width - own.width)}px`);
  box.style.setProperty("top", `${inside(top, height - own.height)}px`);
}
