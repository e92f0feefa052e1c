// Which settings there are to choose from, and what a person's choice makes of them.

/**
 * @typedef {{ name: string, kind: string, title: string, here: boolean, toy: boolean, learns?: string[],
 *   begins?: Record<string, string> }} DataChoice `learns`: what can be learned from it; any target where it is empty
 * @typedef {{ key: string, type: string, default: any, says: string, choices: string[] | null,
 *   label?: string, low?: number | null, high?: number | null, live?: boolean }} Setting
 * @typedef {{ name: string, family: string, takes: string[], learns?: string[], small?: Record<string, string>,
 *   settings: Setting[] }} ModelChoice `small`: settings by which it is quick enough to be watched
 * @typedef {{ name: string, says: string, options?: Record<string, string> }} ViewChoice
 * @typedef {{ data: DataChoice[], models: ModelChoice[], settings: Setting[], views: ViewChoice[] }} Choices
 */

// The data decides these.
const FITTED = /^model\.(in_features|in_channels|num_classes|image_size|vocab_size|target_vocab_size|classes|channels)$/;
// Settings that are shown at once; the rest wait behind "More".
const SHOWN = /^model\.(hidden_dims?|ffn_dim|activation|layers|heads|dim|dropout|norm|width|pooling)$/;
const SHOWN_TRAINING = ["lr", "batch_size", "optimizer", "weight_decay", "speed"];
const OF_DATA = ["noise", "count", "seed", "target"];
const OF_TRAINING = ["lr", "batch_size", "optimizer", "weight_decay", "momentum", "grad_clip"];
const KEPT = ["seed", "speed"]; // whatever the data
// How data is read, by the kinds of data that it is about.
const READING = {
  text: ["table", "text"], forecast: ["table", "series"], horizon: ["series"], scale: ["table"], missing: ["table"],
  length: ["text", "seq2seq"], tokenizer: ["text", "seq2seq"], limit: [], val: [], test: [],
}; // prettier-ignore

/**
 * The models that take this data and learn something from it.
 * @param {ModelChoice[]} models @param {{ kind: string, learns?: string[] }} data
 * @returns {ModelChoice[]}
 */
export function suiting(models, { kind, learns = [] }) {
  const some = (/** @type {ModelChoice} */ model) => (model.learns ?? learns).some((target) => learns.includes(target));
  return models.filter((model) => model.takes.includes(kind) && (learns.length === 0 || some(model)));
}

/**
 * A side's state with another architecture: settings of the old one fall away where the new one lacks them, and a large
 * one begins small. What the data was begun with, and nobody has changed since, was meant for the old one.
 * @param {Record<string, string>} state @param {ModelChoice} model @param {Record<string, string>} [begins]
 */
export function rebuilt(state, model, begins = {}) {
  const known = new Set(model.settings.map(({ key }) => key));
  const kept = Object.entries(state).filter(([key, value]) => {
    if (key.startsWith("model.")) return known.has(key);
    return !OF_TRAINING.includes(key) || begins[key] !== value;
  });
  const again = begins.model === model.name ? begins : {};
  return { ...model.small, ...again, ...Object.fromEntries(kept), model: model.name };
}

/**
 * A side's state on other data. Between toys only what is said of the old one falls away, so that they can be compared;
 * else it begins as that data does, with the architecture where that suits.
 * @param {Record<string, string>} state @param {DataChoice} data @param {DataChoice | undefined} before
 * @param {ModelChoice[]} models @param {string} [target]
 */
export function onData(state, data, before, models, target = "") {
  const now = suiting(models, data).find(({ name }) => name === state.model);
  const alike = before?.kind === data.kind && (data.learns ?? []).some((one) => before.learns?.includes(one));
  const own = Object.entries(state).filter(([key]) => !(OF_DATA.includes(key) || key in READING) || key === "seed");
  const named = { data: data.name, ...(target ? { target } : {}) };
  if (data.toy && before?.toy && now) return { ...Object.fromEntries(own), ...named };
  const kept = own.filter(([key]) => KEPT.includes(key) || (alike && now && key.startsWith("model")));
  const begins = data.begins ?? {};
  const others = alike && now && begins.model !== now.name; // whose settings would not suit this one
  const begun = others ? Object.entries(begins).filter(([key]) => key in READING) : Object.entries(begins);
  const first = suiting(models, data)[0]?.name ?? state.model ?? "";
  return { model: now?.name ?? first, ...Object.fromEntries(begun), ...Object.fromEntries(kept), ...named };
}

/** @param {ModelChoice} model @returns {[Setting[], Setting[]]} those to show at once, and the rest */
export function ofModel({ settings }) {
  return parted(settings.filter(({ key }) => !FITTED.test(key)), (setting) => SHOWN.test(setting.key));
}

/** @param {Choices} choices @returns {[Setting[], Setting[]]} those of training to show at once, and the rest */
export function ofTraining({ settings }) {
  const own = settings.filter(({ key }) => !OF_DATA.includes(key) && !(key in READING) && !key.startsWith("model."));
  const [shown, more] = parted(own, (setting) => SHOWN_TRAINING.includes(setting.key));
  const place = (/** @type {Setting} */ setting) => SHOWN_TRAINING.indexOf(setting.key);
  return [shown.sort((one, other) => place(one) - place(other)), more];
}

/** @param {Choices} choices @returns {Setting[]} how data is read */
export function ofReading({ settings }) {
  return settings.filter(({ key }) => key in READING);
}

/**
 * Whether a setting is about this kind of data.
 * @param {string} key @param {string} kind
 */
export function isAbout(key, kind) {
  const kinds = READING[/** @type {keyof typeof READING} */ (key)] ?? [];
  return kinds.length === 0 || kind === "" || kinds.includes(kind);
}

/**
 * A setting by its key, or `otherwise`.
 * @param {Choices} choices @param {string} key @param {Partial<Setting>} otherwise
 * @returns {Setting}
 */
export function setting(choices, key, otherwise) {
  const found = choices.settings.find((one) => one.key === key);
  return { key, type: "float", default: "", says: "", choices: null, ...otherwise, ...found };
}

/**
 * Whether a change goes on with the weights that were learned so far.
 * @param {Choices} choices @param {string} key
 */
export function isLive({ settings, models }, key) {
  const all = [...settings, ...models.flatMap((model) => model.settings)];
  return all.some((one) => one.key === key && one.live);
}

/** @param {unknown} value a default as typed: [8, 8] as 8,8, null as nothing */
export function typed(value) {
  if (value === null || value === undefined) return "";
  return Array.isArray(value) ? value.join(",") : String(value);
}

/** @param {string} text widths of layers: "8,4" is [8, 4], "none" is [] */
export function widths(text) {
  return text.split(",").map(Number).filter((width) => Number.isInteger(width) && width > 0);
}

/** @param {number[]} list as typed */
export function writtenWidths(list) {
  return list.length > 0 ? list.join(",") : "none";
}

/**
 * The next width up or down: one at a time for the small ones that can be watched, faster above.
 * @param {number} width @param {1 | -1} way
 */
export function stepped(width, way) {
  const size = width + (way < 0 ? -1 : 0); // so that up and down undo each other
  const step = size < 16 ? 1 : size < 64 ? 8 : size < 256 ? 32 : 128;
  return Math.max(1, width + way * step);
}

/**
 * The place of a value on a slider of 0 to 1, and back, by powers of ten.
 * @param {number} low above 0 @param {number} high
 */
export function decades(low, high) {
  const span = Math.log10(high / low);
  return {
    place: (/** @type {number} */ value) => Math.max(0, Math.min(1, Math.log10(Math.max(value, low) / low) / span)),
    value: (/** @type {number} */ place) => Number((low * 10 ** (place * span)).toPrecision(2)),
  };
}

/** @param {string[]} names of weights, as "hidden.0.linear.weight" @returns {string[]} of the modules that hold them */
export function modulesOf(names) {
  const found = names.flatMap((name) => {
    const parts = name.split(".").slice(0, -1);
    return parts.map((_, i) => parts.slice(0, i + 1).join("."));
  });
  return [...new Set(found)].sort();
}

/**
 * @template T @param {T[]} list @param {(item: T) => boolean} chosen
 * @returns {[T[], T[]]}
 */
function parted(list, chosen) {
  return [list.filter(chosen), list.filter((item) => !chosen(item))];
}
