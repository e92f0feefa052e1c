// Texts of the page: labels of settings, metrics, progress and speed.

import { count, number, percent } from "../draw/format.js";

/**
 * @typedef {{ side: string, epoch: number, step: number, at: number, playing: boolean, replaying?: boolean, to_end?: boolean,
 *   rate: number, measured?: number | null, loss: { train: number | null, val: number | null }, metrics: Record<string, number>,
 *   history: { step: number[], train: (number | null)[], val: (number | null)[] }, snapshots: number[],
 *   views: import("../draw/view.js").View[], names: { weights?: { name: string, shape: number[] }[],
 *   views?: string[], layers?: string[], examples?: number }, notes: string[], state: Record<string, string>,
 *   data?: { name: string, kind: string, target: string | null, splits: Record<string, number>, notes: string[] },
 *   models?: string[], try?: Record<string, any> | null,
 *   tried?: Record<string, any> | null, settings?: Record<string, string>, live?: string[], heard?: number, log: string,
 *   error: string | null }} Frame
 */

// Metrics between 0 and 1 that are shown as a percentage.
const PERCENTAGES = /accuracy|precision|recall|^f1|error_rate|auc|exact|overlap|iou/;
const SETTING_LABELS = {
  data: "Data", target: "Column to predict", noise: "Noise (standard deviation)", count: "Examples", seed: "Seed", model: "Architecture",
  lr: "Learning rate", batch_size: "Batch size", weight_decay: "Weight decay", optimizer: "Optimizer",
  momentum: "Momentum", grad_clip: "Gradient clipping (norm)", val: "Validation fraction", test: "Test fraction", schedule: "Schedule", speed: "Speed",
  "model.hidden_dims": "Hidden layers", "model.hidden_dim": "Hidden dimension", "model.dim": "Model dimension",
  "model.ffn_dim": "Feed-forward dimension", "model.embedding_dim": "Embedding dimension",
  "model.heads": "Heads", "model.layers": "Layers", "model.norm": "Normalization", "model.bias": "Biases",
}; // prettier-ignore

/** @param {string} key a setting @returns its label */
export function settingLabel(key) {
  const label = SETTING_LABELS[/** @type {keyof typeof SETTING_LABELS} */ (key)];
  if (label) return label;
  const text = key.replace(/^(model|view)\.(.*\.)?/, "").replaceAll("_", " ");
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/** @param {string} name of a metric @param {number | null | undefined} value */
export function formatMetric(name, value) {
  if (value === null || value === undefined) return "–";
  return PERCENTAGES.test(name) && value >= 0 && value <= 1 ? percent(value) : number(value);
}

/**
 * Return the number of examples in each split: "Splits: training 700, validation 150, test 150".
 * @param {Record<string, number>} splits
 */
export function splitSizes(splits) {
  const uses = { train: "training", val: "validation", test: "test" };
  return Object.entries(splits)
    .filter(([, size]) => size > 0)
    .map(([name, size]) => `${uses[/** @type {keyof typeof uses} */ (name)] ?? name} ${count(size)}`)
    .join(", ")
    .replace(/^./, (first) => `Splits: ${first}`);
}

/** @param {Frame} frame @returns the progress, as "Epoch 3, step 1 200" */
export function progressText({ epoch, step }) {
  return step === 0 ? "Not trained yet" : `Epoch ${count(Math.floor(epoch))}, step ${count(step)}`;
}

/** @param {Frame} frame @returns the training speed, or "Paused" */
export function speedText({ playing, replaying, rate, step }) {
  if (replaying) return "Replaying training";
  if (!playing) return step === 0 ? "Press play" : "Paused";
  if (!(rate > 0)) return "Starting";
  if (rate >= 10) return `${count(rate)} steps per second`;
  if (rate >= 1) return `${number(Number(rate.toPrecision(2)))} ${rate < 1.05 ? "step" : "steps"} per second`;
  return `a step every ${number(Number((1 / rate).toPrecision(2)))} seconds`;
}

/** @param {Frame} frame @returns a summary for screen readers */
export function announcement(frame) {
  const metrics = Object.entries(frame.metrics ?? {}).map(([name, value]) => `${settingLabel(name)} ${formatMetric(name, value)}.`);
  const losses = [["Training loss", frame.loss?.train], ["Validation loss", frame.loss?.val]]
    .filter(([, value]) => typeof value === "number")
    .map(([name, value]) => `${name} ${number(Number(value))}.`);
  return [`${progressText(frame)}, ${speedText(frame).toLowerCase()}.`, ...losses, ...metrics].join(" ");
}

/**
 * Return a text for the step that is shown.
 * @param {number} at @param {number} step
 */
export function stepText(at, step) {
  return at === step ? "now" : `at step ${count(at)}`;
}

/**
 * Return the differences between two models' settings: "mlp, lr 0.1".
 * @param {Record<string, string>} own @param {Record<string, string>} other
 */
export function describeDifference(own, other) {
  const keys = Object.keys({ ...own, ...other }).filter((key) => !["steps", "log", "model"].includes(key));
  const differs = keys.filter((key) => (own[key] ?? "") !== (other[key] ?? ""));
  const parts = differs.map((key) => `${settingLabel(key).toLowerCase()} ${own[key] ?? "default"}`);
  return [own.model ?? "", ...parts.slice(0, 3), ...(parts.length > 3 ? ["…"] : [])].join(", ");
}
