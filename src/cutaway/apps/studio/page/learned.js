// The last column: what the models have learned, in the views that a person watches; two models side by side.

import { html } from "../draw/dom.js";
import { drawView, updateView } from "../draw/view.js";
import { control, failing } from "./controls.js";
import { put } from "./player.js";
import { modulesOf } from "./settings.js";
import { difference, named } from "./words.js";

/** @typedef {import("../draw/view.js").View} View */
/** @typedef {import("./words.js").Frame} Frame */
/** @typedef {{ root: HTMLElement, section: HTMLElement | null, waiting: View | null, seen: boolean }} Cell */

/**
 * @param {HTMLElement} root @param {import("./settings.js").Choices} choices
 * @param {{ watched: (names: string[]) => void, option: (key: string, value: string) => void,
 *   act: (side: "a" | "b", act: Record<string, any>, at: HTMLElement) => void }} told what a person does here
 * @param {HTMLElement} trying where something of one's own is tried
 */
export function learnedPanel(root, choices, told, trying) {
  /** @type {Map<string, ReturnType<typeof row>>} */
  const rows = new Map();
  /** @type {WeakMap<Element, Cell>} */
  const cells = new WeakMap();
  const looked = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) {
      const cell = cells.get(target);
      if (!cell) continue;
      cell.seen = isIntersecting;
      if (isIntersecting) draw(cell);
    }
  }, { rootMargin: "20%" });

  const boxes = choices.views.map(({ name, says }) => {
    const input = html("input", { type: "checkbox", value: name });
    input.addEventListener("change", () => told.watched(checked()));
    return { name, input, root: html("label", { title: says }, input, html("span", {}, named(name))) };
  });
  const checked = () => boxes.filter((box) => box.input.checked).map((box) => box.name);
  const failed = failing();
  const watch = html(
    "fieldset",
    { class: "watch", "data-control": "views" },
    html("legend", {}, "Watch"),
    html("div", { class: "chips" }, ...boxes.map((box) => box.root)),
    failed,
  );
  const which = "which example the views look at, counted from 0";
  const example = control({ key: "example", type: "int", default: 0, low: 0, says: which, choices: null }, told.option);
  const place = html("div", { class: "watched" });
  const known = html("datalist", { id: "modules" });
  root.append(trying, watch, html("div", { class: "example" }, example.root), place, known);
  /** @type {import("./controls.js").Control[]} */
  let options = [];

  // Linked hover: what is pointed at in one drawing is shown in the others that have it too.
  place.addEventListener("hovering", (event) => {
    const from = /** @type {Element} */ (event.target);
    const { key } = /** @type {CustomEvent} */ (event).detail;
    for (const stage of place.querySelectorAll(".stage")) {
      if (stage !== from) /** @type {any} */ (stage).point?.(key);
    }
  });
  place.addEventListener("act", (event) => {
    const from = /** @type {HTMLElement} */ (event.target);
    const side = /** @type {"a" | "b"} */ (from.closest("[data-side]")?.getAttribute("data-side") ?? "a");
    told.act(side, /** @type {CustomEvent} */ (event).detail, from);
  });

  /** @param {string} id */
  function row(id) {
    const title = html("h3");
    const says = html("p", { class: "says" });
    const offered = choices.views.find((view) => view.name === id)?.options ?? {};
    const wanted = Object.entries(offered).filter(([key]) => key !== "example"); // of these there is one for all views
    const own = wanted.map(([key, words]) => {
      const setting = { key: `view.${id}.${key}`, type: "str", default: "", says: words, choices: null };
      const one = control(setting, told.option);
      if (/layer|module/.test(key)) one.root.querySelector("input")?.setAttribute("list", "modules");
      return one;
    });
    for (const { key, root } of own) {
      root.append(html("p", { class: "hint" }, sentence(offered[key.slice(`view.${id}.`.length)])));
    }
    const fields = html("details", { class: "options" }, html("summary", {}, "Options"), ...own.map(({ root }) => root));
    const pair = html("div", { class: "pair" });
    const head = html("header", {}, title, says);
    const asked = own.length > 0 ? fields : null;
    const made = html("article", { "data-view": id, "aria-label": named(id) }, head, asked, pair);
    /** @type {Map<string, Cell>} */
    const sides = new Map();
    return { root: made, title, says, pair, own, sides };
  }

  /** @param {Cell} cell */
  function draw(cell) {
    const view = cell.waiting;
    if (view === null) return;
    cell.waiting = null;
    if (cell.section) updateView(cell.section, view);
    else cell.root.append((cell.section = /** @type {HTMLElement} */ (drawView(view, "h3"))));
  }

  return {
    controls: () => [{ key: "views", root: watch, set() {}, limit() {}, fail: failed.say }, example, ...options],
    /**
     * @param {Frame} a @param {Frame | null} b @param {string[]} wanted names of views
     * @param {Record<string, string>} page
     */
    show(a, b, wanted, page) {
      const suit = a.names?.views ?? choices.views.map(({ name }) => name);
      for (const box of boxes) {
        box.root.hidden = !suit.includes(box.name);
        const checked = wanted.includes(box.name);
        if (box.input.checked !== checked) box.input.checked = checked;
      }
      const layers = a.names?.layers ?? modulesOf((a.names?.weights ?? []).map(({ name }) => name));
      if (known.childElementCount !== layers.length) {
        known.replaceChildren(...layers.map((value) => html("option", { value })));
      }
      const sides = /** @type {["a" | "b", Frame][]} */ ([["a", a], ["b", b]].filter(([, frame]) => frame !== null));
      const ids = sides.flatMap(([, frame]) => frame.views.map((view) => view.id));
      const shown = [...new Set(wanted)].filter((name) => ids.includes(name));
      for (const [id, { root: gone, sides: cellsOf }] of rows) {
        if (shown.includes(id)) continue;
        for (const cell of cellsOf.values()) looked.unobserve(cell.root);
        gone.remove();
        rows.delete(id);
      }
      shown.forEach((id, i) => {
        const one = rows.get(id) ?? row(id);
        rows.set(id, one);
        if (place.children[i] !== one.root) place.insertBefore(one.root, place.children[i] ?? null);
        for (const side of ["a", "b"]) {
          const frame = sides.find(([name]) => name === side)?.[1];
          const view = frame?.views.find((each) => each.id === id);
          let cell = one.sides.get(side);
          if (!view) {
            if (cell) looked.unobserve(cell.root);
            cell?.root.remove();
            one.sides.delete(side);
            continue;
          }
          if (side === "a" || one.sides.size === 0) {
            put(one.title, view.title);
            put(one.says, view.says);
          }
          if (!cell) {
            const made = html("div", { class: "cell", "data-side": side }, html("p", { class: "of" }));
            cell = { root: made, section: null, waiting: null, seen: true };
            one.sides.set(side, cell);
            cells.set(cell.root, cell);
            if (side === "a") one.pair.prepend(cell.root);
            else one.pair.append(cell.root);
            looked.observe(cell.root);
          }
          put(/** @type {Element} */ (cell.root.firstElementChild), b ? title(side, a, b) : "");
          cell.waiting = { ...view, id: `${side}-${view.id}` };
          if (cell.seen) draw(cell);
        }
        one.pair.classList.toggle("two", one.sides.size === 2);
        for (const each of one.own) each.set(page[each.key] ?? "");
      });
      options = [...rows.values()].flatMap((one) => one.own);
      const examples = a.names?.examples ?? 0;
      example.root.hidden = examples < 2;
      example.root.querySelector("input")?.setAttribute("max", String(examples - 1));
      example.set(page.example ?? "");
      return sides.map(([side, frame]) => (b ? title(side, a, b) : frame.state?.model ?? "")).join(" beside ");
    },
  };
}

/** @param {string} words without a full stop */
function sentence(words) {
  return `${words.charAt(0).toUpperCase()}${words.slice(1)}.`;
}

/**
 * Which model it is, and what is different about it.
 * @param {"a" | "b"} side @param {Frame} a @param {Frame} b
 */
export function title(side, a, b) {
  const [own, other] = side === "a" ? [a, b] : [b, a];
  const [mine, theirs] = [own, other].map((frame) => ({ ...frame.state, ...frame.settings })); // as they are by now
  return `${side.toUpperCase()}: ${difference(mine, theirs)}`;
}
