// What happens, in plain words.

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

// Figures between 0 and 1 that are said as a percentage.
const SHARES = /accuracy|precision|recall|^f1|error_rate|auc|exact|overlap|iou/;
const NAMES = {
  data: "Data", target: "Column to predict", noise: "Noise (standard deviation)", count: "Examples", seed: "Seed", model: "Architecture",
  lr: "Learning rate", batch_size: "Batch size", weight_decay: "Weight decay", optimizer: "Optimizer",
  momentum: "Momentum", grad_clip: "Gradient clipping (norm)", val: "Validation fraction", test: "Test fraction", schedule: "Schedule", speed: "Speed",
  "model.hidden_dims": "Hidden layers", "model.hidden_dim": "Hidden dimension", "model.dim": "Model dimension",
  "model.ffn_dim": "Feed-forward dimension", "model.embedding_dim": "Embedding dimension",
  "model.heads": "Heads", "model.layers": "Layers", "model.norm": "Normalization", "model.bias": "Biases",
}; // prettier-ignore

/** @param {string} key a setting, as a person says it */
export function named(key) {
  const known = NAMES[/** @type {keyof typeof NAMES} */ (key)];
  if (known) return known;
  const words = key.replace(/^(model|view)\.(.*\.)?/, "").replaceAll("_", " ");
  return words.charAt(0).toUpperCase() + words.slice(1);
}

/** @param {string} name @param {number | null | undefined} value a figure, as people write it */
export function figure(name, value) {
  if (value === null || value === undefined) return "–";
  return SHARES.test(name) && value >= 0 && value <= 1 ? percent(value) : number(value);
}

/**
 * How many examples are in each split: "Splits: training 700, validation 150, test 150".
 * @param {Record<string, number>} splits
 */
export function parted(splits) {
  const uses = { train: "training", val: "validation", test: "test" };
  return Object.entries(splits)
    .filter(([, size]) => size > 0)
    .map(([name, size]) => `${uses[/** @type {keyof typeof uses} */ (name)] ?? name} ${count(size)}`)
    .join(", ")
    .replace(/^./, (first) => `Splits: ${first}`);
}

/** @param {Frame} frame how far it is: "Epoch 3, step 1 200" */
export function progress({ epoch, step }) {
  return step === 0 ? "Not trained yet" : `Epoch ${count(Math.floor(epoch))}, step ${count(step)}`;
}

/** @param {Frame} frame how fast it goes, or that it rests */
export function pace({ playing, replaying, rate, step }) {
  if (replaying) return "Training again to where it was";
  if (!playing) return step === 0 ? "Press play" : "Paused";
  if (!(rate > 0)) return "Starting";
  if (rate >= 10) return `${count(rate)} steps a second`;
  if (rate >= 1) return `${number(Number(rate.toPrecision(2)))} ${rate < 1.05 ? "step" : "steps"} a second`;
  return `a step every ${number(Number((1 / rate).toPrecision(2)))} seconds`;
}

/** @param {Frame} frame all of it in a sentence or two, to be heard */
export function spoken(frame) {
  const metrics = Object.entries(frame.metrics ?? {}).map(([name, value]) => `${named(name)} ${figure(name, value)}.`);
  const losses = [["Training loss", frame.loss?.train], ["Validation loss", frame.loss?.val]]
    .filter(([, value]) => typeof value === "number")
    .map(([name, value]) => `${name} ${number(Number(value))}.`);
  return [`${progress(frame)}, ${pace(frame).toLowerCase()}.`, ...losses, ...metrics].join(" ");
}

/**
 * Which step is looked at.
 * @param {number} at @param {number} step
 */
export function looking(at, step) {
  return at === step ? "now" : `at step ${count(at)}`;
}

/**
 * What the two models differ in: "mlp, lr 0.1".
 * @param {Record<string, string>} own @param {Record<string, string>} other
 */
export function difference(own, other) {
  const keys = Object.keys({ ...own, ...other }).filter((key) => !["steps", "log", "model"].includes(key));
  const differs = keys.filter((key) => (own[key] ?? "") !== (other[key] ?? ""));
  const said = differs.map((key) => `${named(key).toLowerCase()} ${own[key] ?? "as usual"}`);
  return [own.model ?? "", ...said.slice(0, 3), ...(said.length > 3 ? ["…"] : [])].join(", ");
}
