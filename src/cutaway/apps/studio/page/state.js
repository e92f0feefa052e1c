// State of the studio in the fragment of its URL: #data=moons&model=mlp&lr=0.01&b.model=linear.
// A key that begins with `b.` belongs to the second model; other settings are those of the first model.

/**
 * @typedef {Record<string, string>} Flat
 * @typedef {{ page: Flat, a: Flat, b: Flat | null }} State `page`: selected views and hidden parts
 */

const SECOND_PREFIX = "b.";
// Keys of the page. All others belong to a model and its data.
const PAGE_KEYS = ["views", "example", "hide", "sides", "try", "temperature", "tokens", "tour"];
// In this order, then the model's own settings, then the rest by name.
const ORDER = ["data", "target", "noise", "count", "model", "seed"];
// They grow during training, so they come last.
const LAST = ["steps", "log"];

/** Return true for keys of the page, false for those of a model. @param {string} key */
export function isPageKey(key) {
  return PAGE_KEYS.includes(key) || key.startsWith("view.");
}

/**
 * Parse a URL fragment. Parts that cannot be decoded are kept unchanged.
 * @param {string} hash with or without its #
 * @returns {State}
 */
export function parseState(hash) {
  const pairs = hash.replace(/^#/, "").split("&").filter((pair) => pair.indexOf("=") > 0);
  return splitState(
    Object.fromEntries(
      pairs.map((pair) => {
        const at = pair.indexOf("=");
        return [decode(pair.slice(0, at)), decode(pair.slice(at + 1))];
      }),
    ),
  );
}

/**
 * Split keys and values into those of the page and of each model.
 * @param {Flat} flat @returns {State}
 */
export function splitState(flat) {
  /** @type {Flat} */
  const page = {};
  /** @type {Flat} */
  const a = {};
  /** @type {Flat} */
  const overrides = {};
  for (const [key, value] of Object.entries(flat)) {
    if (isPageKey(key)) page[key] = value;
    else if (key.startsWith(SECOND_PREFIX)) overrides[key.slice(SECOND_PREFIX.length)] = value;
    else a[key] = value;
  }
  const two = page.sides === "2" || Object.keys(overrides).length > 0;
  return { page, a, b: two ? withoutEmpty({ ...a, ...overrides }) : null };
}

/**
 * Return the URL fragment of a state, without its #.
 * @param {State} state
 */
export function formatState({ page, a, b }) {
  const pairs = sortedEntries(withoutEmpty(a));
  if (b !== null) {
    const keys = sortedEntries(withoutEmpty({ ...a, ...b })).map(([key]) => key);
    const differs = keys.filter((key) => (a[key] ?? "") !== (b[key] ?? ""));
    pairs.push(...differs.map((key) => /** @type {[string, string]} */ ([SECOND_PREFIX + key, b[key] ?? ""])));
  }
  const shown = { ...page, sides: b !== null ? "2" : "" };
  pairs.push(...Object.entries(withoutEmpty(shown)));
  return pairs.map(([key, value]) => `${encode(key).replaceAll("=", "%3D")}=${encode(value)}`).join("&");
}

/**
 * Return true if two sides have the same settings, ignoring the number of steps.
 * @param {Flat} one @param {Flat} other
 */
export function sameSettings(one, other) {
  const [left, right] = [one, other].map((side) => withoutEmpty({ ...side, steps: "" }));
  const keys = Object.keys({ ...left, ...right });
  return keys.every((key) => left[key] === right[key]);
}

/**
 * Return a side's state before the first step.
 * @param {Flat} side
 */
export function withoutSteps(side) {
  return withoutEmpty({ ...side, steps: "", log: "" });
}

/**
 * Return the settings changed during training, with their last values: "120:lr=0.1;130:lr=0.2" is { lr: "0.2" }.
 * @param {string} log @returns {Flat}
 */
export function parseLog(log) {
  const found = [...log.matchAll(/(?:^|;)\d+:([\w.]+)=([^;]*)/g)];
  return Object.fromEntries(found.map(([, key, value]) => [key, value]));
}

/** @param {Flat} flat @returns a copy without empty values */
function withoutEmpty(flat) {
  return Object.fromEntries(Object.entries(flat).filter(([, value]) => value !== ""));
}

/** @param {Flat} flat @returns {[string, string][]} */
function sortedEntries(flat) {
  const place = (/** @type {string} */ key) => {
    if (ORDER.includes(key)) return ORDER.indexOf(key);
    return ORDER.length + (LAST.includes(key) ? 2 + LAST.indexOf(key) : key.startsWith("model.") ? 0 : 1);
  };
  return Object.entries(flat).sort(([one], [other]) => place(one) - place(other) || (one < other ? -1 : 1));
}

/** Escape only what would end a value, to keep the URL readable. @param {string} text */
function encode(text) {
  return encodeURIComponent(text).replace(/%(2C|3A|2F|5B|5D|3B|3D|40|24)/g, decodeURIComponent);
}

/** @param {string} text */
function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
