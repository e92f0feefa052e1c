// Available settings, and the state after a change of data or architecture.

/**
 * @typedef {{ name: string, kind: string, title: string, here: boolean, toy: boolean, learns?: string[],
 *   begins?: Record<string, string> }} DataChoice `learns`: possible targets; any if empty
 * @typedef {{ key: string, type: string, default: any, says: string, choices: string[] | null,
 *   label?: string, low?: number | null, high?: number | null, live?: boolean }} Setting
 * @typedef {{ name: string, family: string, takes: string[], learns?: string[], small?: Record<string, string>,
 *   settings: Setting[] }} ModelChoice `small`: settings of a small model that trains quickly
 * @typedef {{ name: string, says: string, options?: Record<string, string> }} ViewChoice
 * @typedef {{ data: DataChoice[], models: ModelChoice[], settings: Setting[], views: ViewChoice[] }} Choices
 */

// Settings determined by the data.
const SET_BY_DATA = /^model\.(in_features|in_channels|num_classes|image_size|vocab_size|target_vocab_size|classes|channels)$/;
// Settings that are always shown; the others are under "More settings".
const MAIN_MODEL = /^model\.(hidden_dims?|ffn_dim|activation|layers|heads|dim|dropout|norm|width|pooling)$/;
const MAIN_TRAINING = ["lr", "batch_size", "optimizer", "weight_decay", "speed"];
const DATA_KEYS = ["noise", "count", "seed", "target"];
const TRAINING_KEYS = ["lr", "batch_size", "optimizer", "weight_decay", "momentum", "grad_clip"];
const ALWAYS_KEPT = ["seed", "speed"]; // kept when the data changes
// Settings for reading data, with the kinds of data they apply to.
const READING_KEYS = {
  text: ["table", "text"], forecast: ["table", "series"], horizon: ["series"], scale: ["table"], missing: ["table"],
  length: ["text", "seq2seq"], tokenizer: ["text", "seq2seq"], limit: [], val: [], test: [],
}; // prettier-ignore

/**
 * Return the models that support this data and one of its targets.
 * @param {ModelChoice[]} models @param {{ kind: string, learns?: string[] }} data
 * @returns {ModelChoice[]}
 */
export function compatibleModels(models, { kind, learns = [] }) {
  const learnsTarget = (/** @type {ModelChoice} */ model) => (model.learns ?? learns).some((target) => learns.includes(target));
  return models.filter((model) => model.takes.includes(kind) && (learns.length === 0 || learnsTarget(model)));
}

/**
 * Return a side's state with another architecture. Settings that the new architecture lacks are removed, and a large
 * model starts with small settings. Unchanged defaults of the data were meant for the old architecture and are dropped.
 * @param {Record<string, string>} state @param {ModelChoice} model @param {Record<string, string>} [defaults]
 */
export function changeModel(state, model, defaults = {}) {
  const known = new Set(model.settings.map(({ key }) => key));
  const kept = Object.entries(state).filter(([key, value]) => {
    if (key.startsWith("model.")) return known.has(key);
    return !TRAINING_KEYS.includes(key) || defaults[key] !== value;
  });
  const modelDefaults = defaults.model === model.name ? defaults : {};
  return { ...model.small, ...modelDefaults, ...Object.fromEntries(kept), model: model.name };
}

/**
 * Return a side's state with other data. Between toy data sets all but the settings of the data are kept, so that they
 * can be compared; otherwise the defaults of the data apply, with the current architecture if it is compatible.
 * @param {Record<string, string>} state @param {DataChoice} data @param {DataChoice | undefined} before
 * @param {ModelChoice[]} models @param {string} [target]
 */
export function changeData(state, data, before, models, target = "") {
  const current = compatibleModels(models, data).find(({ name }) => name === state.model);
  const alike = before?.kind === data.kind && (data.learns ?? []).some((one) => before.learns?.includes(one));
  const own = Object.entries(state).filter(([key]) => !(DATA_KEYS.includes(key) || key in READING_KEYS) || key === "seed");
  const named = { data: data.name, ...(target ? { target } : {}) };
  if (data.toy && before?.toy && current) return { ...Object.fromEntries(own), ...named };
  const kept = own.filter(([key]) => ALWAYS_KEPT.includes(key) || (alike && current && key.startsWith("model")));
  const defaults = data.begins ?? {};
  const others = alike && current && defaults.model !== current.name; // the defaults are for another architecture
  const applied = others ? Object.entries(defaults).filter(([key]) => key in READING_KEYS) : Object.entries(defaults);
  const first = compatibleModels(models, data)[0]?.name ?? state.model ?? "";
  return { model: current?.name ?? first, ...Object.fromEntries(applied), ...Object.fromEntries(kept), ...named };
}

/** @param {ModelChoice} model @returns {[Setting[], Setting[]]} main settings and other settings */
export function modelSettings({ settings }) {
  return partition(settings.filter(({ key }) => !SET_BY_DATA.test(key)), (setting) => MAIN_MODEL.test(setting.key));
}

/** @param {Choices} choices @returns {[Setting[], Setting[]]} main and other settings of training */
export function trainingSettings({ settings }) {
  const own = settings.filter(({ key }) => !DATA_KEYS.includes(key) && !(key in READING_KEYS) && !key.startsWith("model."));
  const [shown, more] = partition(own, (setting) => MAIN_TRAINING.includes(setting.key));
  const position = (/** @type {Setting} */ setting) => MAIN_TRAINING.indexOf(setting.key);
  return [shown.sort((one, other) => position(one) - position(other)), more];
}

/** @param {Choices} choices @returns {Setting[]} settings for reading data */
export function readingSettings({ settings }) {
  return settings.filter(({ key }) => key in READING_KEYS);
}

/**
 * Return true if a setting applies to this kind of data.
 * @param {string} key @param {string} kind
 */
export function appliesTo(key, kind) {
  const kinds = READING_KEYS[/** @type {keyof typeof READING_KEYS} */ (key)] ?? [];
  return kinds.length === 0 || kind === "" || kinds.includes(kind);
}

/**
 * Return a setting by its key, with `otherwise` for missing fields.
 * @param {Choices} choices @param {string} key @param {Partial<Setting>} otherwise
 * @returns {Setting}
 */
export function setting(choices, key, otherwise) {
  const found = choices.settings.find((one) => one.key === key);
  return { key, type: "float", default: "", says: "", choices: null, ...otherwise, ...found };
}

/**
 * Return true if a setting can change during training, without a reset of the weights.
 * @param {Choices} choices @param {string} key
 */
export function isLive({ settings, models }, key) {
  const all = [...settings, ...models.flatMap((model) => model.settings)];
  return all.some((one) => one.key === key && one.live);
}

/** @param {unknown} value @returns {string} its text: "8,8" for [8, 8], "" for null */
export function toText(value) {
  if (value === null || value === undefined) return "";
  return Array.isArray(value) ? value.join(",") : String(value);
}

/** @param {string} text layer widths: "8,4" is [8, 4], "none" is [] */
export function parseWidths(text) {
  return text.split(",").map(Number).filter((width) => Number.isInteger(width) && width > 0);
}

/** @param {number[]} list @returns {string} the text of layer widths */
export function formatWidths(list) {
  return list.length > 0 ? list.join(",") : "none";
}

/**
 * Return the next width up or down: in steps of 1 for small widths, larger steps above.
 * @param {number} width @param {1 | -1} direction
 */
export function stepWidth(width, direction) {
  const size = width + (direction < 0 ? -1 : 0); // so that up and down are inverse
  const step = size < 16 ? 1 : size < 64 ? 8 : size < 256 ? 32 : 128;
  return Math.max(1, width + direction * step);
}

/**
 * Return the logarithmic mapping between values and slider positions from 0 to 1.
 * @param {number} low above 0 @param {number} high
 */
export function logScale(low, high) {
  const span = Math.log10(high / low);
  return {
    place: (/** @type {number} */ value) => Math.max(0, Math.min(1, Math.log10(Math.max(value, low) / low) / span)),
    value: (/** @type {number} */ place) => Number((low * 10 ** (place * span)).toPrecision(2)),
  };
}

/** @param {string[]} names of weights, as "hidden.0.linear.weight" @returns {string[]} names of their modules */
export function moduleNames(names) {
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
function partition(list, chosen) {
  return [list.filter(chosen), list.filter((item) => !chosen(item))];
}
