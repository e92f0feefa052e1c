// The third column: what can be set while it trains, the metrics, and the loss as it falls.

import { html } from "../draw/dom.js";
import { count } from "../draw/format.js";
import { drawView, updateView } from "../draw/view.js";
import { control } from "./controls.js";
import { folded } from "./model.js";
import { put } from "./player.js";
import { ofTraining } from "./settings.js";
import { figure, named } from "./words.js";

/**
 * @param {HTMLElement} root @param {import("./settings.js").Choices} choices
 * @param {(key: string, value: string) => void} changed
 * @param {HTMLElement} byHand the editor of single weights
 */
export function trainingPanel(root, choices, changed, byHand) {
  const [shown, more] = ofTraining(choices).map((settings) => settings.map((one) => control(one, changed)));
  const curve = html("div", { class: "curve-of-loss", "data-control": "curve" });
  const metrics = html("dl", { class: "measures", "data-control": "metrics" });
  const when = html("p", { class: "hint when" });
  const notes = html("ul", { class: "notes" });
  const own = html("div", { class: "settings" }, ...shown.map((one) => one.root), ...folded("More of training", more));
  const settings = html("details", { class: "more", open: "" }, html("summary", {}, "Settings"), own);
  root.append(metrics, when, curve, settings, byHand, notes);
  /** @type {HTMLElement | null} */
  let section = null;
  let drawn = "";

  return {
    controls: [...shown, ...more],
    /** @param {Record<string, string>} state */
    set(state) {
      for (const one of [...shown, ...more]) one.set(state[one.key] ?? "");
    },
    /** @param {import("./words.js").Frame} a @param {import("./words.js").Frame | null} b */
    show(a, b) {
      measures(metrics, a, b);
      const stale = [a, b].find((each) => each && each.measured != null && each.measured !== each.at);
      put(when, stale ? `Validation metrics of step ${count(stale.measured ?? 0)}` : "");
      const said = [...new Set([...(a.notes ?? []), ...(b?.notes ?? [])])];
      if (notes.childElementCount !== said.length || [...notes.children].some((li, i) => li.textContent !== said[i])) {
        notes.replaceChildren(...said.map((note) => html("li", {}, note)));
      }
      const view = lossView(a, b);
      const now = JSON.stringify([view.table.rows.length, view.table.rows.at(-1), view.drawings[0].mark, b !== null]);
      if (now === drawn) return; // nothing new to see
      drawn = now;
      if (section) updateView(section, view);
      else curve.replaceChildren((section = drawView(view, "h3")));
    },
  };
}

/**
 * The metrics of one or two models, under each other.
 * @param {HTMLElement} list @param {import("./words.js").Frame} a @param {import("./words.js").Frame | null} b
 */
function measures(list, a, b) {
  const sides = b ? [a, b] : [a];
  const names = Object.keys({ ...a.metrics, ...b?.metrics });
  const rows = [
    ...(b ? [["", "A", "B"]] : []),
    ...names.map((name) => [named(name), ...sides.map((each) => figure(name, each.metrics?.[name]))]),
    ["Training loss", ...sides.map((each) => figure("loss", each.loss?.train))],
    ["Validation loss", ...sides.map((each) => figure("loss", each.loss?.val))],
  ];
  if (list.childElementCount !== rows.length || list.firstElementChild?.childElementCount !== sides.length + 1) {
    list.replaceChildren(...rows.map(() => html("div", {}, html("dt"), ...sides.map(() => html("dd")))));
  }
  rows.forEach((row, i) => row.forEach((words, k) => put(list.children[i].children[k], words)));
}

/**
 * The loss of one model, or of two in one drawing, as a view like any other.
 * @param {import("./words.js").Frame} a @param {import("./words.js").Frame | null} b
 * @returns {import("../draw/view.js").View}
 */
export function lossView(a, b) {
  const series = [a, b].flatMap((frame, i) => {
    if (!frame) return [];
    const { step = [], train = [], val = [] } = frame.history ?? {};
    const mark = b ? `${"AB"[i]} ` : "";
    // Without a split each curve has a colour and a dash of its own: that tells four of them apart.
    return [["train", train], ["val", val]].map(([split, values]) => ({
      name: `${mark}${split}`,
      ...(b ? {} : { split }),
      points: step.map((at, k) => [at, values[k] ?? null]).filter(([, value]) => value !== null),
    })).filter((one) => one.points.length > 0);
  });
  const rows = [a, b].flatMap((frame, i) =>
    (frame?.history?.step ?? []).map((at, k) => [
      ...(b ? ["AB"[i]] : []), at, frame?.history.train[k] ?? null, frame?.history.val[k] ?? null,
    ]),
  ); // prettier-ignore
  const columns = [
    ...(b ? [{ name: "model", format: "text" }] : []),
    { name: "step", format: "count" },
    { name: "train", format: "number" },
    { name: "val", format: "number" },
  ];
  const mark = a.at < a.step && series.length > 0 ? { x: a.at, label: "seen here" } : null;
  const drawing = { kind: "lines", title: "Loss", x: "step", format: "number", log: false, zero: true, series, mark };
  return {
    id: "loss",
    title: "Loss",
    says: "How wrong the model is, on the examples it learns from and on those it does not: lower is better.",
    summary: `Training loss ${figure("loss", a.loss?.train)}, validation loss ${figure("loss", a.loss?.val)}.`,
    drawings: [series.length > 0 ? drawing : { kind: "prose", title: "", sentences: ["No step has been taken yet."] }],
    table: { columns, rows },
  };
}
