// Panel of the learned model: the selected views, side by side for two models.

import { html } from "../draw/dom.js";
import { drawView, updateView } from "../draw/view.js";
import { control, errorMessage } from "./controls.js";
import { setText } from "./player.js";
import { moduleNames } from "./settings.js";
import { describeDifference, settingLabel } from "./labels.js";

/** @typedef {import("../draw/view.js").View} View */
/** @typedef {import("./labels.js").Frame} Frame */
/** @typedef {{ root: HTMLElement, section: HTMLElement | null, waiting: View | null, seen: boolean }} Cell */

/**
 * @param {HTMLElement} root @param {import("./settings.js").Choices} choices
 * @param {{ onWatch: (names: string[]) => void, onOption: (key: string, value: string) => void,
 *   act: (side: "a" | "b", act: Record<string, any>, at: HTMLElement) => void }} callbacks user actions
 * @param {HTMLElement} tryRoot element of the input field
 */
export function learnedPanel(root, choices, callbacks, tryRoot) {
  /** @type {Map<string, ReturnType<typeof row>>} */
  const rows = new Map();
  /** @type {WeakMap<Element, Cell>} */
  const cells = new WeakMap();
  const observer = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) {
      const cell = cells.get(target);
      if (!cell) continue;
      cell.seen = isIntersecting;
      if (isIntersecting) draw(cell);
    }
  }, { rootMargin: "20%" });

  const checkboxes = choices.views.map(({ name, says }) => {
    const input = html("input", { type: "checkbox", value: name });
    input.addEventListener("change", () => callbacks.onWatch(checked()));
    return { name, input, root: html("label", { title: says }, input, html("span", {}, settingLabel(name))) };
  });
  const checked = () => checkboxes.filter((box) => box.input.checked).map((box) => box.name);
  const errorField = errorMessage();
  const watch = html(
    "fieldset",
    { class: "watch", "data-control": "views" },
    html("legend", {}, "Views"),
    html("div", { class: "chips" }, ...checkboxes.map((box) => box.root)),
    errorField,
  );
  const help = "index of the example shown in the views, from 0";
  const example = control({ key: "example", type: "int", default: 0, low: 0, says: help, choices: null }, callbacks.onOption);
  const place = html("div", { class: "watched" });
  const moduleList = html("datalist", { id: "modules" });
  root.append(tryRoot, watch, html("div", { class: "example" }, example.root), place, moduleList);
  /** @type {import("./controls.js").Control[]} */
  let options = [];

  // Linked hover: a target that is hovered in one drawing is highlighted in all others.
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
    callbacks.act(side, /** @type {CustomEvent} */ (event).detail, from);
  });

  /** @param {string} id */
  function row(id) {
    const title = html("h3");
    const says = html("p", { class: "says" });
    const viewOptions = choices.views.find((view) => view.name === id)?.options ?? {};
    const visible = Object.entries(viewOptions).filter(([key]) => key !== "example"); // one control for all views
    const own = visible.map(([key, words]) => {
      const setting = { key: `view.${id}.${key}`, type: "str", default: "", says: words, choices: null };
      const one = control(setting, callbacks.onOption);
      if (/layer|module/.test(key)) one.root.querySelector("input")?.setAttribute("list", "modules");
      return one;
    });
    for (const { key, root } of own) {
      root.append(html("p", { class: "hint" }, sentence(viewOptions[key.slice(`view.${id}.`.length)])));
    }
    const fields = html("details", { class: "options" }, html("summary", {}, "Options"), ...own.map(({ root }) => root));
    const pair = html("div", { class: "pair" });
    const head = html("header", {}, title, says);
    const optionFields = own.length > 0 ? fields : null;
    const element = html("article", { "data-view": id, "aria-label": settingLabel(id) }, head, optionFields, pair);
    /** @type {Map<string, Cell>} */
    const sides = new Map();
    return { root: element, title, says, pair, own, sides };
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
    controls: () => [{ key: "views", root: watch, set() {}, limit() {}, showError: errorField.show }, example, ...options],
    /**
     * @param {Frame} a @param {Frame | null} b @param {string[]} visible names of views
     * @param {Record<string, string>} page
     */
    show(a, b, visible, page) {
      const supported = a.names?.views ?? choices.views.map(({ name }) => name);
      for (const box of checkboxes) {
        box.root.hidden = !supported.includes(box.name);
        const checked = visible.includes(box.name);
        if (box.input.checked !== checked) box.input.checked = checked;
      }
      const layers = a.names?.layers ?? moduleNames((a.names?.weights ?? []).map(({ name }) => name));
      if (moduleList.childElementCount !== layers.length) {
        moduleList.replaceChildren(...layers.map((value) => html("option", { value })));
      }
      const sides = /** @type {["a" | "b", Frame][]} */ ([["a", a], ["b", b]].filter(([, frame]) => frame !== null));
      const ids = sides.flatMap(([, frame]) => frame.views.map((view) => view.id));
      const shown = [...new Set(visible)].filter((name) => ids.includes(name));
      for (const [id, { root: element, sides: cellsOf }] of rows) {
        if (shown.includes(id)) continue;
        for (const cell of cellsOf.values()) observer.unobserve(cell.root);
        element.remove();
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
            if (cell) observer.unobserve(cell.root);
            cell?.root.remove();
            one.sides.delete(side);
            continue;
          }
          if (side === "a" || one.sides.size === 0) {
            setText(one.title, view.title);
            setText(one.says, view.says);
          }
          if (!cell) {
            const element = html("div", { class: "cell", "data-side": side }, html("p", { class: "of" }));
            cell = { root: element, section: null, waiting: null, seen: true };
            one.sides.set(side, cell);
            cells.set(cell.root, cell);
            if (side === "a") one.pair.prepend(cell.root);
            else one.pair.append(cell.root);
            observer.observe(cell.root);
          }
          setText(/** @type {Element} */ (cell.root.firstElementChild), b ? title(side, a, b) : "");
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
      return sides.map(([side, frame]) => (b ? title(side, a, b) : frame.state?.model ?? "")).join(" and ");
    },
  };
}

/** @param {string} words without a full stop */
function sentence(words) {
  return `${words.charAt(0).toUpperCase()}${words.slice(1)}.`;
}

/**
 * Return a title with the side and its differences from the other model.
 * @param {"a" | "b"} side @param {Frame} a @param {Frame} b
 */
export function title(side, a, b) {
  const [own, other] = side === "a" ? [a, b] : [b, a];
  const [mine, theirs] = [own, other].map((frame) => ({ ...frame.state, ...frame.settings })); // including changes during training
  return `${side.toUpperCase()}: ${describeDifference(mine, theirs)}`;
}
