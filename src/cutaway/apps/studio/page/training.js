// Panel of training: metrics, loss curve and settings.

import { html } from "../draw/dom.js";
import { count } from "../draw/format.js";
import { drawView, updateView } from "../draw/view.js";
import { control } from "./controls.js";
import { collapsible } from "./model.js";
import { setText } from "./player.js";
import { trainingSettings } from "./settings.js";
import { formatMetric, settingLabel } from "./labels.js";

/**
 * @param {HTMLElement} root @param {import("./settings.js").Choices} choices
 * @param {(key: string, value: string) => void} onChange
 * @param {HTMLElement} weightList editor of single weights
 */
export function trainingPanel(root, choices, onChange, weightList) {
  const [mainFields, otherFields] = trainingSettings(choices).map((settings) => settings.map((one) => control(one, onChange)));
  const curve = html("div", { class: "curve-of-loss", "data-control": "curve" });
  const metrics = html("dl", { class: "measures", "data-control": "metrics" });
  const metricsStep = html("p", { class: "hint when" });
  const notes = html("ul", { class: "notes" });
  const fields = html("div", { class: "settings" }, ...mainFields.map((one) => one.root), ...collapsible("More settings", otherFields));
  const settings = html("details", { class: "more", open: "" }, html("summary", {}, "Settings"), fields);
  root.append(metrics, metricsStep, curve, settings, weightList, notes);
  /** @type {HTMLElement | null} */
  let section = null;
  let drawnKey = "";

  return {
    controls: [...mainFields, ...otherFields],
    /** @param {Record<string, string>} state */
    set(state) {
      for (const one of [...mainFields, ...otherFields]) one.set(state[one.key] ?? "");
    },
    /** @param {import("./labels.js").Frame} a @param {import("./labels.js").Frame | null} b */
    show(a, b) {
      showMetrics(metrics, a, b);
      const stale = [a, b].find((each) => each && each.measured != null && each.measured !== each.at);
      setText(metricsStep, stale ? `Validation metrics of step ${count(stale.measured ?? 0)}` : "");
      const texts = [...new Set([...(a.notes ?? []), ...(b?.notes ?? [])])];
      if (notes.childElementCount !== texts.length || [...notes.children].some((li, i) => li.textContent !== texts[i])) {
        notes.replaceChildren(...texts.map((note) => html("li", {}, note)));
      }
      const view = lossView(a, b);
      const key = JSON.stringify([view.table.rows.length, view.table.rows.at(-1), view.drawings[0].mark, b !== null]);
      if (key === drawnKey) return; // unchanged
      drawnKey = key;
      if (section) updateView(section, view);
      else curve.replaceChildren((section = drawView(view, "h3")));
    },
  };
}

/**
 * Update the list of metrics of one or two models.
 * @param {HTMLElement} list @param {import("./labels.js").Frame} a @param {import("./labels.js").Frame | null} b
 */
function showMetrics(list, a, b) {
  const sides = b ? [a, b] : [a];
  const names = Object.keys({ ...a.metrics, ...b?.metrics });
  const rows = [
    ...(b ? [["", "A", "B"]] : []),
    ...names.map((name) => [settingLabel(name), ...sides.map((each) => formatMetric(name, each.metrics?.[name]))]),
    ["Training loss", ...sides.map((each) => formatMetric("loss", each.loss?.train))],
    ["Validation loss", ...sides.map((each) => formatMetric("loss", each.loss?.val))],
  ];
  if (list.childElementCount !== rows.length || list.firstElementChild?.childElementCount !== sides.length + 1) {
    list.replaceChildren(...rows.map(() => html("div", {}, html("dt"), ...sides.map(() => html("dd")))));
  }
  rows.forEach((row, i) => row.forEach((text, k) => setText(list.children[i].children[k], text)));
}

/**
 * Return a view with the loss curves of one or two models.
 * @param {import("./labels.js").Frame} a @param {import("./labels.js").Frame | null} b
 * @returns {import("../draw/view.js").View}
 */
export function lossView(a, b) {
  const series = [a, b].flatMap((frame, i) => {
    if (!frame) return [];
    const { step = [], train = [], val = [] } = frame.history ?? {};
    const mark = b ? `${"AB"[i]} ` : "";
    // With two models, curves have no split: each of the four gets its own colour and dash pattern.
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
  const mark = a.at < a.step && series.length > 0 ? { x: a.at, label: "shown step" } : null;
  const drawing = { kind: "lines", title: "Loss", x: "step", format: "number", log: false, zero: true, series, mark };
  return {
    id: "loss",
    title: "Loss",
    says: "Loss on the training split and on the validation split; lower is better.",
    summary: `Training loss ${formatMetric("loss", a.loss?.train)}, validation loss ${formatMetric("loss", a.loss?.val)}.`,
    drawings: [series.length > 0 ? drawing : { kind: "prose", title: "", sentences: ["Training has not started."] }],
    table: { columns, rows },
  };
}
