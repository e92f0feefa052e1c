// Looking closer: the same words on hovering, on touch and by the keyboard.
// A drawing is one stop of the tab key; arrows move within it, Enter does what a click does, Escape closes the words.

import { html, svg } from "./dom.js";

/**
 * @typedef {Record<string, any>} State what a drawing remembers between one look and the next
 * @typedef {{ box: number[], tip: string[], hover?: State, set?: State, key?: string, act?: object,
 *   at?: (x: number, y: number) => Partial<Target> | null }} Target
 *   `box`: x, y, width, height; `tip`: what to say; `hover`: state while it is pointed at; `set`: state after a click;
 *   `key`: its name for drawings that point at the same thing; `act`: what a click asks of the page around;
 *   `at`: what stands at a place within it, for the pointer
 * @typedef {{ svg: SVGSVGElement, targets: Target[], columns: number,
 *   controls?: import("./controls.js").Control[] }} Drawn
 *   `columns`: targets in a row of a grid; 0 where they form none and arrows go to the nearest in their direction
 * @typedef {{ hover: (state: State | null) => void, set: (state: State) => void }} Follow
 */

const REACH = 12; // pixels from a target within which a click is meant for it

/** @type {HTMLElement | null} */
let tip = null; // one for the page
/** @type {HTMLElement | null} */
let owner = null; // the stage whose words it shows

/**
 * Makes the targets of whatever is drawn in `stage` findable.
 * @param {HTMLElement} stage @param {Follow} follow is told what the drawing should know
 * @returns {{ drawn: (drawn: Drawn) => void, point: (key: string | null) => void }} `drawn`: to be told of each new
 *   drawing; `point`: shows the target with a key, as if it were pointed at, without words
 */
export function explore(stage, follow) {
  /** @type {Drawn | null} */
  let drawn = null;
  let current = 0;
  /** @type {number[] | null} */
  let pointer = null; // where the pointer is, in the drawing's own pixels
  /** @type {"no" | "words" | "ring"} */
  let shown = "no";
  /** @type {string | null} */
  let told = null; // the key last told to the page
  const ring = svg("rect", { class: "ring", rx: 2 });

  /** @returns {Target | null} what is pointed at */
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
      say(words, ring.getBoundingClientRect());
      tell(key ?? null);
    }
    stage.classList.toggle("clickable", Boolean(found.set ?? found.act));
    follow.hover(hover ?? null);
  }

  function hide() {
    if (shown === "no") return;
    if (shown === "words") tell(null);
    shown = "no";
    pointer = null;
    ring.remove();
    if (tip && owner === stage) tip.hidden = true;
    follow.hover(null);
  }

  /** @param {string | null} key */
  function tell(key) {
    if (key === told) return;
    told = key;
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

  function use() {
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
    if (pointer && found && away(found, pointer[0], pointer[1]) <= REACH) use();
  });
  stage.addEventListener("focus", () => stage.matches(":focus-visible") && show());
  stage.addEventListener("blur", hide);
  stage.addEventListener("keydown", (event) => {
    if (event.key === "Escape") return hide();
    if (drawn === null || drawn.targets.length === 0) return;
    if (event.key === "Enter" || event.key === " ") {
      if (shown === "words" && use()) event.preventDefault();
      return;
    }
    const next = step(drawn, current, event.key);
    if (next === null) return;
    event.preventDefault();
    pointer = null;
    current = next;
    show();
    ring.scrollIntoView({ block: "nearest", inline: "nearest" });
  });
  return {
    drawn(next) {
      const key = drawn?.targets[current]?.key;
      const same = key === undefined ? -1 : next.targets.findIndex((one) => one.key === key);
      drawn = next;
      current = same >= 0 ? same : Math.max(0, Math.min(current, next.targets.length - 1));
      if (shown === "no") return;
      if (next.targets.length > 0) show(shown);
      else hide();
    },
    point(key) {
      if (shown === "words") return; // it is being looked at by itself
      const found = key === null ? -1 : (drawn?.targets.findIndex((one) => one.key === key) ?? -1);
      if (found < 0) return hide();
      current = found;
      show("ring");
    },
  };
}

/**
 * The target that a key leads to; null where the key is not one that moves.
 * @param {Drawn} drawn @param {number} from @param {string} key
 */
export function step({ targets, columns }, from, key) {
  const last = targets.length - 1;
  if (key === "Home") return 0;
  if (key === "End") return last;
  const ways = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] };
  const way = ways[/** @type {keyof typeof ways} */ (key)];
  if (way === undefined) return null;
  if (columns > 0) return Math.max(0, Math.min(last, from + way[0] + columns * way[1]));
  const centre = (/** @type {Target} */ { box: [x, y, width, height] }) => [x + width / 2, y + height / 2];
  const [x, y] = centre(targets[from]);
  let [best, least] = [from, Infinity];
  targets.forEach((target, i) => {
    const [dx, dy] = [centre(target)[0] - x, centre(target)[1] - y];
    const along = dx * way[0] + dy * way[1];
    const aside = Math.abs(dx * way[1]) + Math.abs(dy * way[0]);
    if (along <= 0.5 || i === from) return;
    const far = along + 3 * aside;
    if (far < least) [best, least] = [i, far];
  });
  if (best === from) return Math.max(0, Math.min(last, from + way[0])); // the end of a line goes on in the next
  return best;
}

/**
 * How far a place is from a target's box.
 * @param {Target} target @param {number} x @param {number} y
 */
function away({ box: [left, top, width, height] }, x, y) {
  return Math.hypot(Math.max(left - x, 0, x - left - width), Math.max(top - y, 0, y - top - height));
}

/**
 * The number of the target whose box is nearest to a place.
 * @param {Target[]} targets @param {number} x @param {number} y
 */
export function nearest(targets, x, y) {
  let best = 0;
  let least = Infinity;
  targets.forEach((target, i) => {
    const distance = away(target, x, y);
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
  const text = [title, ...rest].join("\n");
  if (tip.dataset.said !== text) {
    tip.dataset.said = text;
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
