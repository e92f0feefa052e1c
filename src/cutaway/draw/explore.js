// Tooltips and targets of a drawing, for mouse, touch and keyboard.
// A drawing is one tab stop; arrow keys move between targets, Enter clicks, Escape closes the tooltip.

import { html, svg } from "./dom.js";

/**
 * @typedef {Record<string, any>} State state of a drawing
 * @typedef {{ box: number[], tip: string[], hover?: State, set?: State, key?: string, act?: object,
 *   at?: (x: number, y: number) => Partial<Target> | null }} Target
 *   `box`: x, y, width, height; `tip`: lines of the tooltip; `hover`: state while hovered; `set`: state after a click;
 *   `key`: name shared with drawings of the same things; `act`: detail of the event that a click sends to the page;
 *   `at`: finer target at a point within it, for the pointer
 * @typedef {{ svg: SVGSVGElement, targets: Target[], columns: number,
 *   controls?: import("./controls.js").Control[] }} Drawn
 *   `columns`: targets in a row of a grid; 0 if they form no grid and arrows go to the nearest target in their direction
 * @typedef {{ hover: (state: State | null) => void, set: (state: State) => void }} Follow
 */

const REACH = 12; // pixels within which a click hits a target

/** @type {HTMLElement | null} */
let tip = null; // shared by the page
/** @type {HTMLElement | null} */
let owner = null; // the stage whose tooltip is shown

/**
 * Add tooltips and keyboard navigation to a stage.
 * @param {HTMLElement} stage @param {Follow} follow callbacks for changes of state
 * @returns {{ setDrawing: (drawn: Drawn) => void, point: (key: string | null) => void }} `setDrawing`: call with each
 *   new drawing; `point`: highlight the target with a key, without a tooltip
 */
export function explore(stage, follow) {
  /** @type {Drawn | null} */
  let drawn = null;
  let current = 0;
  /** @type {number[] | null} */
  let pointer = null; // position of the pointer, in pixels of the drawing
  /** @type {"no" | "words" | "ring"} */
  let shown = "no";
  /** @type {string | null} */
  let lastKey = null; // the key last sent to the page
  const ring = svg("rect", { class: "ring", rx: 2 });

  /** @returns {Target | null} the current target */
  function target() {
    const found = drawn?.targets[current] ?? null;
    const closer = pointer && found?.at ? found.at(pointer[0], pointer[1]) : null;
    return found && closer ? { ...found, ...closer } : found;
  }

  /** @param {"words" | "ring"} [how] */
  function show(how = "words") {
    const found = target();
    if (drawn === null || found === null) return;
    shown = how;
    const { box: [x, y, width, height], tip: words, hover, key } = found;
    for (const [name, value] of Object.entries({ x, y, width, height })) ring.setAttribute(name, String(value));
    drawn.svg.append(ring);
    if (how === "words") {
      owner = stage;
      showTooltip(words, ring.getBoundingClientRect());
      emitHover(key ?? null);
    }
    stage.classList.toggle("clickable", Boolean(found.set ?? found.act));
    follow.hover(hover ?? null);
  }

  function hide() {
    if (shown === "no") return;
    if (shown === "words") emitHover(null);
    shown = "no";
    pointer = null;
    ring.remove();
    if (tip && owner === stage) tip.hidden = true;
    follow.hover(null);
  }

  /** @param {string | null} key */
  function emitHover(key) {
    if (key === lastKey) return;
    lastKey = key;
    stage.dispatchEvent(new CustomEvent("hovering", { bubbles: true, detail: { key } }));
  }

  /** @param {PointerEvent | MouseEvent} event */
  function point(event) {
    if (drawn === null || drawn.targets.length === 0) return;
    const frame = drawn.svg.getBoundingClientRect();
    const scale = drawn.svg.viewBox.baseVal.width / frame.width;
    pointer = [(event.clientX - frame.left) * scale, (event.clientY - frame.top) * scale];
    current = nearest(drawn.targets, pointer[0], pointer[1]);
    show();
  }

  function activate() {
    const found = target();
    if (found?.act) stage.dispatchEvent(new CustomEvent("act", { bubbles: true, detail: found.act }));
    if (found?.set) follow.set(found.set);
    return Boolean(found?.act ?? found?.set);
  }

  stage.addEventListener("pointermove", point);
  stage.addEventListener("pointerdown", point);
  stage.addEventListener("pointerleave", hide);
  stage.addEventListener("click", (event) => {
    point(event);
    const found = target();
    if (pointer && found && distanceTo(found, pointer[0], pointer[1]) <= REACH) activate();
  });
  stage.addEventListener("focus", () => stage.matches(":focus-visible") && show());
  stage.addEventListener("blur", hide);
  stage.addEventListener("keydown", (event) => {
    if (event.key === "Escape") return hide();
    if (drawn === null || drawn.targets.length === 0) return;
    if (event.key === "Enter" || event.key === " ") {
      if (shown === "words" && activate()) event.preventDefault();
      return;
    }
    const next = nextTarget(drawn, current, event.key);
    if (next === null) return;
    event.preventDefault();
    pointer = null;
    current = next;
    show();
    ring.scrollIntoView({ block: "nearest", inline: "nearest" });
  });
  return {
    setDrawing(next) {
      const key = drawn?.targets[current]?.key;
      const same = key === undefined ? -1 : next.targets.findIndex((one) => one.key === key);
      drawn = next;
      current = same >= 0 ? same : Math.max(0, Math.min(current, next.targets.length - 1));
      if (shown === "no") return;
      if (next.targets.length > 0) show(shown);
      else hide();
    },
    point(key) {
      if (shown === "words") return; // the user hovers this drawing
      const found = key === null ? -1 : (drawn?.targets.findIndex((one) => one.key === key) ?? -1);
      if (found < 0) return hide();
      current = found;
      show("ring");
    },
  };
}

/**
 * Return the target that a key leads to, or null for other keys.
 * @param {Drawn} drawn @param {number} from @param {string} key
 */
export function nextTarget({ targets, columns }, from, key) {
  const last = targets.length - 1;
  if (key === "Home") return 0;
  if (key === "End") return last;
  const directions = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] };
  const direction = directions[/** @type {keyof typeof directions} */ (key)];
  if (direction === undefined) return null;
  if (columns > 0) return Math.max(0, Math.min(last, from + direction[0] + columns * direction[1]));
  const centre = (/** @type {Target} */ { box: [x, y, width, height] }) => [x + width / 2, y + height / 2];
  const [x, y] = centre(targets[from]);
  let [best, least] = [from, Infinity];
  targets.forEach((target, i) => {
    const [dx, dy] = [centre(target)[0] - x, centre(target)[1] - y];
    const along = dx * direction[0] + dy * direction[1];
    const across = Math.abs(dx * direction[1]) + Math.abs(dy * direction[0]);
    if (along <= 0.5 || i === from) return;
    const far = along + 3 * across;
    if (far < least) [best, least] = [i, far];
  });
  if (best === from) return Math.max(0, Math.min(last, from + direction[0])); // at the end of a line, go to the next one
  return best;
}

/**
 * Return the distance between a point and a target's box.
 * @param {Target} target @param {number} x @param {number} y
 */
function distanceTo({ box: [left, top, width, height] }, x, y) {
  return Math.hypot(Math.max(left - x, 0, x - left - width), Math.max(top - y, 0, y - top - height));
}

/**
 * Return the index of the target nearest to a point.
 * @param {Target[]} targets @param {number} x @param {number} y
 */
export function nearest(targets, x, y) {
  let best = 0;
  let least = Infinity;
  targets.forEach((target, i) => {
    const distance = distanceTo(target, x, y);
    if (distance < least) [best, least] = [i, distance];
  });
  return best;
}

/**
 * Show the tooltip above a target, or below if there is no room, inside the window.
 * @param {string[]} words @param {DOMRect} place
 */
function showTooltip([title, ...rest], place) {
  if (tip === null) {
    tip = html("div", { class: "tip", role: "status" });
    document.body.append(tip);
  }
  const text = [title, ...rest].join("\n");
  if (tip.dataset.text !== text) {
    tip.dataset.text = text;
    tip.replaceChildren(html("strong", {}, title), ...rest.map((line) => html("span", {}, line)));
  }
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  const centred = place.left + place.width / 2 - width / 2;
  const left = Math.max(8, Math.min(centred, document.documentElement.clientWidth - width - 8));
  const above = place.top - height - 8;
  tip.style.setProperty("left", `${left + scrollX}px`);
  tip.style.setProperty("top", `${(above < 0 ? place.bottom + 8 : above) + scrollY}px`);
}
