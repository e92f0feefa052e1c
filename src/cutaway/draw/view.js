// A view: title, introduction, summary, drawings, and its numbers as a table.

import { choice } from "./choice.js";
import { html } from "./dom.js";
import * as kinds from "./kinds.js";
import { prose } from "./prose.js";
import { createStage } from "./stage.js";
import { drawTable } from "./table.js";

/**
 * @typedef {{ kind: string, title: string } & Record<string, any>} Drawing
 * @typedef {{ id: string, title: string, says: string, summary: string, drawings: Drawing[],
 *   table: import("./table.js").Table, read?: string, misleads?: string }} View
 */

/** @type {Record<string, import("./stage.js").Draw>} */
const KINDS = kinds;

/** @typedef {{ element: HTMLElement, update: (spec: any) => void }} Item a drawing with its element */

const CACHED = 64; // hidden drawings that a container keeps

/** @type {WeakMap<Element, (view: View) => void>} */
const updates = new WeakMap();

/**
 * Draw a view as a section of a page.
 * @param {View} view @param {"h1" | "h2" | "h3"} [level]
 */
export function drawView(view, level = "h2") {
  const { id, title, says, summary, drawings, table } = view;
  const heading = html(level, { id: `${id}-title` }, title);
  const sentence = html("p", { class: "says" }, says);
  const summaryElement = html("p", { class: "summary", id: `${id}-summary` }, summary);
  const header = html("header", {}, heading, sentence, summaryElement, guidance(view));
  const figures = html("div", { class: "figures" });
  const words = html("div", { class: "words" });
  const [showFigures, showWords] = [figures, words].map((place) => drawingList(place, `${id}-summary`));
  const details = numbers(table, title);
  const show = (/** @type {Drawing[]} */ all) => {
    showFigures(all.filter((spec) => spec.kind !== "prose"));
    showWords(all.filter((spec) => spec.kind === "prose"));
    for (const place of [figures, words]) place.hidden = place.childElementCount === 0;
  };
  show(drawings);
  const body = html("div", { class: "body" }, figures, words, details.element);
  const section = html("section", { id, class: "view", "aria-labelledby": `${id}-title` }, header, body);
  link(section);
  updates.set(section, (next) => {
    for (const [element, text] of /** @type {[HTMLElement, string][]} */ ([
      [heading, next.title],
      [sentence, next.says],
      [summaryElement, next.summary],
    ])) {
      if (element.textContent !== text) element.replaceChildren(text);
    }
    show(next.drawings);
    details.update(next.table, next.title);
  });
  return section;
}

/**
 * Update a view in place: the states of drawings, the focus and the scroll position are kept.
 * @param {Element} section made by drawView @param {View} view of the same id
 */
export function updateView(section, view) {
  updates.get(section)?.(view);
}

/**
 * Let drawings select an option of a choice, by its label and name, and tell them which option is selected.
 * @param {Element} section
 */
function link(section) {
  section.addEventListener("act", (event) => {
    const { choose: detail } = /** @type {CustomEvent} */ (event).detail;
    if (!detail) return;
    event.stopPropagation();
    section.querySelectorAll(".choice").forEach((one) => one.dispatchEvent(new CustomEvent("choose", { detail })));
  });
  section.addEventListener("chosen", (event) => {
    const { label, name } = /** @type {CustomEvent} */ (event).detail;
    section.querySelectorAll(".thoughts .stage").forEach((element) => {
      const stage = /** @type {import("./stage.js").Stage} */ (element);
      stage.state[label] = name;
      stage.redraw();
    });
  });
}

/**
 * Return a function that shows drawings in a container; earlier drawings are reused by kind and title.
 * @param {HTMLElement} place @param {string} summary ID of the element that describes them
 */
export function drawingList(place, summary) {
  /** @type {Map<string, Item>} */
  const cached = new Map();
  return (/** @type {Drawing[]} */ drawings) => {
    /** @type {Map<string, number>} */
    const count = new Map();
    /** @type {Set<Item>} */
    const shown = new Set();
    for (const spec of drawings) {
      const name = `${spec.kind} ${spec.title}`;
      count.set(name, (count.get(name) ?? 0) + 1);
      const key = `${name} ${count.get(name)}`;
      let item = cached.get(key);
      if (item) item.update(spec);
      else cached.set(key, (item = drawDrawing(spec, summary)));
      shown.add(item);
    }
    const elements = [...shown].map((item) => item.element);
    elements.forEach((element, i) => {
      if (place.children[i] !== element) place.insertBefore(element, place.children[i] ?? null);
    });
    while (place.children.length > elements.length) place.lastElementChild?.remove();
    for (const [key, item] of cached) if (cached.size > CACHED + shown.size && !shown.has(item)) cached.delete(key);
  };
}

/**
 * Create a drawing of any kind.
 * @param {Drawing} spec @param {string} summary ID of the element that describes it
 * @returns {Item}
 */
function drawDrawing(spec, summary) {
  if (spec.kind === "prose") return drawProse(spec);
  if (spec.kind === "choice") return choice(/** @type {any} */ (spec), (place) => drawingList(place, summary));
  return createStage(KINDS[spec.kind], spec, summary);
}

/** @param {Drawing} spec @returns {Item} */
function drawProse(spec) {
  let shown = JSON.stringify(spec);
  const item = { element: prose(/** @type {any} */ (spec)), update };
  /** @param {Drawing} next */
  function update(next) {
    if (JSON.stringify(next) === shown) return;
    shown = JSON.stringify(next);
    const old = item.element;
    item.element = prose(/** @type {any} */ (next));
    old.replaceWith(item.element);
  }
  return item;
}

/**
 * Return the collapsed guidance of a view: how to read it and where it misleads. Null if it has none.
 * @param {View} view
 */
function guidance({ read, misleads }) {
  if (!read && !misleads) return null;
  return html(
    "details",
    { class: "guidance" },
    html("summary", {}, [read && "How to read it", misleads && "where it misleads"].filter(Boolean).join(", ")),
    read ? html("p", {}, read) : null,
    misleads ? html("p", {}, html("strong", {}, "Where it misleads. "), misleads) : null,
  );
}

/**
 * Return the collapsed table of numbers, which is only updated while it is open.
 * @param {import("./table.js").Table} table @param {string} title
 */
function numbers(table, title) {
  const attributes = { class: "scroll", tabindex: 0, role: "group", "aria-label": `Table: ${title}` };
  const scroll = html("div", attributes, drawTable(table, title));
  const head = html("summary", {}, "Numbers");
  const element = html("details", { class: "numbers" }, head, scroll);
  element.hidden = table.columns.length === 0;
  let shown = table;
  function draw() {
    if (shown === table) return;
    shown = table;
    const { scrollLeft, scrollTop } = scroll;
    scroll.replaceChildren(drawTable(table, title));
    scroll.scrollTo(scrollLeft, scrollTop);
  }
  head.addEventListener("click", draw);
  element.addEventListener("toggle", draw);
  return {
    element,
    /** @param {import("./table.js").Table} next @param {string} name */
    update(next, name) {
      [table, title] = [next, name];
      if (element.open) draw();
    },
  };
}
