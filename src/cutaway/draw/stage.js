// Container of one drawing: keeps its state, and redraws when the state or the width changes.
// A drawing is a pure function of its description, a width and a state.

import { controlPanel } from "./controls.js";
import { html, textWidth } from "./dom.js";
import { explore } from "./explore.js";
import { exportButtons } from "./export.js";
import { isDark } from "./raster.js";

/**
 * @typedef {import("./explore.js").State} State
 * @typedef {(spec: any, width: number, state: State) => import("./explore.js").Drawn} Draw
 * @typedef {HTMLElement & { point: (key: string | null) => void, redraw: () => void, state: State }} Stage
 *   `point`: highlight the target with this key; `redraw`: draw immediately
 */

/**
 * Create the container of a drawing, with its controls and export buttons.
 * @param {Draw} draw @param {{ kind: string, title: string }} spec @param {string} summary ID of the element that describes it
 */
export function createStage(draw, spec, summary) {
  /** @type {State} */
  const state = {};
  /** @type {State | null} */
  let hover = null;
  /** @type {SVGSVGElement | null} */
  let current = null;
  let drawnFor = ""; // width, theme and state of the current drawing
  let stale = false; // the description has changed
  let scheduled = false; // a redraw is scheduled for the next frame
  let loading = false; // a drawing waits until its images are decoded
  let turn = 0; // number of the latest drawing
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
      scheduleRedraw();
    },
    set(next) {
      Object.assign(state, next);
      scheduleRedraw();
    },
  });
  const caption = html("figcaption");
  caption.hidden = true;
  const panel = controlPanel((key, value) => {
    state[key] = value;
    scheduleRedraw();
  });

  function scheduleRedraw() {
    if (scheduled) return;
    scheduled = true;
    requestAnimationFrame(() => {
      scheduled = false;
      redraw();
    });
  }

  function redraw(now = false) {
    const width = Math.floor(element.clientWidth);
    if (width === 0 || (loading && !now)) return;
    const all = { ...state, ...hover };
    const wanted = JSON.stringify([width, isDark(), all]);
    if (wanted === drawnFor && !stale && !now) return;
    drawnFor = wanted;
    stale = false;
    const drawn = draw(spec, width, all);
    const { kept: reused, fresh: added } = images(current, drawn.svg);
    panel.show(drawn.controls ?? []);
    const name = drawn.svg.querySelector(".heading")?.textContent ?? "";
    if (caption.textContent !== name) caption.replaceChildren(name);
    caption.hidden = name === "" || (panel.place.hidden && textWidth(name, 14, 600) <= width); // a caption can wrap
    const ownTurn = ++turn;
    if (added.length === 0 || current === null || now) return show(drawn, reused);
    // Decode new images before old ones are removed, to avoid flickering.
    loading = true;
    Promise.allSettled(added.map(decodeImage)).then(() => {
      loading = false;
      if (ownTurn === turn) show(drawn, reused);
      redraw(); // in case something changed meanwhile
    });
  }

  /** @param {import("./explore.js").Drawn} drawn @param {[SVGImageElement, SVGImageElement][]} reused */
  function show(drawn, reused) {
    for (const [old, next] of reused) replaceImage(old, next);
    current = drawn.svg;
    element.replaceChildren(current);
    exploring.setDrawing(drawn);
  }

  // In the next frame: resizing the observed element within the callback is an error.
  new ResizeObserver(scheduleRedraw).observe(element);
  observeVisibility(element);
  const onVisible = () => stale && scheduleRedraw();
  const stage = Object.assign(element, { point: exploring.point, redraw: () => redraw(true), seen: onVisible, state });
  const buttons = exportButtons(() => /** @type {SVGSVGElement} */ (current), spec.title);
  return {
    element: html("figure", { class: spec.kind }, caption, panel.place, stage, buttons),
    /** Update the description; the state is kept. @param {any} next */
    update(next) {
      if (next === spec) return;
      spec = next;
      stale = true;
      if (onScreen.get(element) === false) return; // redrawn when it becomes visible
      scheduleRedraw();
    },
  };
}

/** @type {WeakMap<Element, boolean>} */
const onScreen = new WeakMap();
/** @type {IntersectionObserver | null} */
let observer = null;

/**
 * Redraw elements that become visible, and all when the theme changes or the page is printed.
 * @param {HTMLElement} element
 */
function observeVisibility(element) {
  if (observer === null) {
    const redrawAll = () => document.querySelectorAll(".stage").forEach((stage) => /** @type {Stage} */ (stage).redraw());
    matchMedia("screen and (prefers-color-scheme: dark)").addEventListener("change", redrawAll);
    addEventListener("beforeprint", redrawAll);
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
 * Match the images of a drawing with those of the previous one: return pairs of old and new, and added images.
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
  const reused = [];
  const added = [];
  for (const image of to.querySelectorAll("image")) {
    const old = known.get(String(image.getAttribute("href")))?.pop();
    if (old) reused.push([old, image]);
    else added.push(image);
  }
  return { kept: reused, fresh: added };
}

/**
 * Replace a new image by the equal old one, which is decoded already.
 * @param {SVGImageElement} old @param {SVGImageElement} next
 */
function replaceImage(old, next) {
  for (const { name } of [...old.attributes]) if (!next.hasAttribute(name)) old.removeAttribute(name);
  for (const { name, value } of next.attributes) {
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  next.replaceWith(old);
}

/** @param {SVGImageElement} image */
function decodeImage(image) {
  const copy = new Image();
  copy.src = String(image.getAttribute("href"));
  return copy.decode();
}
