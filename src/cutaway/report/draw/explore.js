// Looking closer: the same words on hovering, on touch and by the keyboard.
// A drawing is one stop of the tab key; arrows move within it, Escape closes the words.

import { html, svg } from "./dom.js";

/**
 * @typedef {{ box: number[], tip: string[] }} Target `box`: x, y, width, height; `tip`: what to say
 * @typedef {{ svg: SVGSVGElement, targets: Target[], columns: number }} Drawn `columns`: targets in a row of a grid
 */

/** @type {HTMLElement | null} */
let tip = null; // one for the page

/**
 * Makes the targets of whatever is drawn in `stage` findable.
 * @param {HTMLElement} stage
 * @returns {(drawn: Drawn) => void} to be told of each new drawing
 */
export function explore(stage) {
  /** @type {Drawn | null} */
  let drawn = null;
  let current = 0;
  const ring = svg("rect", { class: "ring", rx: 2 });

  function show() {
    if (drawn === null || drawn.targets.length === 0) return;
    const { box: [x, y, width, height], tip: words } = drawn.targets[current];
    for (const [name, value] of Object.entries({ x, y, width, height })) ring.setAttribute(name, String(value));
    drawn.svg.append(ring);
    say(words, ring.getBoundingClientRect());
  }

  function hide() {
    ring.remove();
    if (tip) tip.hidden = true;
  }

  /** @param {PointerEvent} event */
  function point(event) {
    if (drawn === null) return;
    const frame = drawn.svg.getBoundingClientRect();
    const scale = drawn.svg.viewBox.baseVal.width / frame.width;
    current = nearest(drawn.targets, (event.clientX - frame.left) * scale, (event.clientY - frame.top) * scale);
    show();
  }

  stage.addEventListener("pointermove", point);
  stage.addEventListener("pointerdown", point);
  stage.addEventListener("pointerleave", hide);
  stage.addEventListener("focus", () => stage.matches(":focus-visible") && show());
  stage.addEventListener("blur", hide);
  stage.addEventListener("keydown", (event) => {
    if (event.key === "Escape") return hide();
    const last = (drawn?.targets.length ?? 0) - 1;
    const row = drawn?.columns ?? 1;
    const moves = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: row, ArrowUp: -row, Home: -Infinity, End: Infinity };
    const move = moves[/** @type {keyof typeof moves} */ (event.key)];
    if (move === undefined || last < 0) return;
    event.preventDefault();
    current = Math.max(0, Math.min(last, current + move));
    show();
    ring.scrollIntoView({ block: "nearest", inline: "nearest" });
  });
  return (next) => {
    hide();
    drawn = next;
    current = Math.min(current, Math.max(0, next.targets.length - 1));
  };
}

/**
 * The number of the target whose box is nearest to a place.
 * @param {Target[]} targets @param {number} x @param {number} y
 */
export function nearest(targets, x, y) {
  let best = 0;
  let least = Infinity;
  targets.forEach(({ box: [left, top, width, height] }, i) => {
    const distance = Math.hypot(Math.max(left - x, 0, x - left - width), Math.max(top - y, 0, y - top - height));
    if (distance < least) [best, least] = [i, distance];
  });
  return best;
}

/**
 * Show the words above the place, or below where there is no room, within the window.
 * @param {string[]} words @param {DOMRect} place
 */
function say([title, ...rest], place) {
  if (tip === null) {
    tip = html("div", { class: "tip", role: "status" });
    document.body.append(tip);
  }
  tip.replaceChildren(html("strong", {}, title), ...rest.map((line) => html("span", {}, line)));
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  const centred = place.left + place.width / 2 - width / 2;
  const left = Math.max(8, Math.min(centred, document.documentElement.clientWidth - width - 8));
  const above = place.top - height - 8;
  tip.style.setProperty("left", `${left + scrollX}px`);
  tip.style.setProperty("top", `${(above < 0 ? place.bottom + 8 : above) + scrollY}px`);
}
