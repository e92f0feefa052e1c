// The place of one drawing: it follows the width, remembers the drawing's state, and draws anew when either changes.
// A drawing is a pure function of its description, a width and a state, so that is all there is to do.

import { controlPanel } from "./controls.js";
import { html, textWidth } from "./dom.js";
import { explore } from "./explore.js";
import { exportButtons } from "./export.js";
import { dark } from "./raster.js";

/**
 * @typedef {import("./explore.js").State} State
 * @typedef {(spec: any, width: number, state: State) => import("./explore.js").Drawn} Draw
 * @typedef {HTMLElement & { point: (key: string | null) => void, redraw: () => void, state: State }} Stage
 *   `point`: show the target with this key; `redraw`: draw now, whatever has changed
 */

/**
 * A drawing that follows the width of its place, with its controls and buttons.
 * @param {Draw} draw @param {{ kind: string, title: string }} spec @param {string} summary id of the words for it
 */
export function stageOf(draw, spec, summary) {
  /** @type {State} */
  const state = {};
  /** @type {State | null} */
  let hover = null;
  /** @type {SVGSVGElement | null} */
  let current = null;
  let shown = ""; // what the current drawing was made for: width, ground and state
  let stale = false; // the description has changed since
  let due = false; // a drawing is ordered for the next frame
  let coming = false; // a drawing waits for its images
  let turn = 0; // the number of the newest drawing
  const element = html("div", {
    class: "stage",
    tabindex: 0,
    role: "application",
    "aria-roledescription": "drawing",
    "aria-label": `${spec.title}. Arrow keys move through its values.`,
    "aria-describedby": summary,
  });
  const exploring = explore(element, {
    hover(next) {
      if (JSON.stringify(next) === JSON.stringify(hover)) return;
      hover = next;
      soon();
    },
    set(next) {
      Object.assign(state, next);
      soon();
    },
  });
  const caption = html("figcaption");
  caption.hidden = true;
  const panel = controlPanel((key, value) => {
    state[key] = value;
    soon();
  });

  function soon() {
    if (due) return;
    due = true;
    requestAnimationFrame(() => {
      due = false;
      redraw();
    });
  }

  function redraw(now = false) {
    const width = Math.floor(element.clientWidth);
    if (width === 0 || (coming && !now)) return;
    const all = { ...state, ...hover };
    const wanted = JSON.stringify([width, dark(), all]);
    if (wanted === shown && !stale && !now) return;
    shown = wanted;
    stale = false;
    const drawn = draw(spec, width, all);
    const { kept, fresh } = images(current, drawn.svg);
    panel.show(drawn.controls ?? []);
    const name = drawn.svg.querySelector(".heading")?.textContent ?? "";
    if (caption.textContent !== name) caption.replaceChildren(name);
    caption.hidden = name === "" || (panel.place.hidden && textWidth(name, 14, 600) <= width); // which breaks lines
    const mine = ++turn;
    if (fresh.length === 0 || current === null || now) return put(drawn, kept);
    // New images are read before the old ones go, or the drawing would blink.
    coming = true;
    Promise.allSettled(fresh.map(readable)).then(() => {
      coming = false;
      if (mine === turn) put(drawn, kept);
      redraw(); // for what has changed meanwhile
    });
  }

  /** @param {import("./explore.js").Drawn} drawn @param {[SVGImageElement, SVGImageElement][]} kept */
  function put(drawn, kept) {
    for (const [old, next] of kept) takeOver(old, next);
    current = drawn.svg;
    element.replaceChildren(current);
    exploring.drawn(drawn);
  }

  // In the next frame: a drawing changes the height of what is observed, which within the callback is an error.
  new ResizeObserver(soon).observe(element);
  watchScreen(element);
  const seen = () => stale && soon();
  const stage = Object.assign(element, { point: exploring.point, redraw: () => redraw(true), seen, state });
  const buttons = exportButtons(() => /** @type {SVGSVGElement} */ (current), spec.title);
  return {
    element: html("figure", { class: spec.kind }, caption, panel.place, stage, buttons),
    /** Draw another description of the same kind; its state stays. @param {any} next */
    update(next) {
      if (next === spec) return;
      spec = next;
      stale = true;
      if (onScreen.get(element) === false) return; // when it comes into sight
      soon();
    },
  };
}

/** @type {WeakMap<Element, boolean>} */
const onScreen = new WeakMap();
/** @type {IntersectionObserver | null} */
let observer = null;

/**
 * Draw again what comes into sight, and all when the ground changes or the page goes to paper.
 * @param {HTMLElement} element
 */
function watchScreen(element) {
  if (observer === null) {
    const everything = () => document.querySelectorAll(".stage").forEach((stage) => /** @type {Stage} */ (stage).redraw());
    matchMedia("screen and (prefers-color-scheme: dark)").addEventListener("change", everything);
    addEventListener("beforeprint", everything);
    observer = new IntersectionObserver(
      (entries) => {
        for (const { target, isIntersecting } of entries) {
          const before = onScreen.get(target);
          onScreen.set(target, isIntersecting);
          if (isIntersecting && before === false) /** @type {any} */ (target).seen();
        }
      },
      { rootMargin: "25%" },
    );
  }
  observer.observe(element);
}

/**
 * The images of a drawing: those that the last drawing has too, each beside the one it had, and those that are new.
 * @param {SVGSVGElement | null} from @param {SVGSVGElement} to
 */
function images(from, to) {
  /** @type {Map<string, SVGImageElement[]>} */
  const known = new Map();
  for (const image of from?.querySelectorAll("image") ?? []) {
    const name = String(image.getAttribute("href"));
    known.set(name, [...(known.get(name) ?? []), image]);
  }
  /** @type {[SVGImageElement, SVGImageElement][]} */
  const kept = [];
  const fresh = [];
  for (const image of to.querySelectorAll("image")) {
    const old = known.get(String(image.getAttribute("href")))?.pop();
    if (old) kept.push([old, image]);
    else fresh.push(image);
  }
  return { kept, fresh };
}

/**
 * Put an image that is already there in the place of a new one that is the same: it need not be read again.
 * @param {SVGImageElement} old @param {SVGImageElement} next
 */
function takeOver(old, next) {
  for (const { name } of [...old.attributes]) if (!next.hasAttribute(name)) old.removeAttribute(name);
  for (const { name, value } of next.attributes) {
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  next.replaceWith(old);
}

/** @param {SVGImageElement} image */
function readable(image) {
  const copy = new Image();
  copy.src = String(image.getAttribute("href"));
  return copy.decode();
}
