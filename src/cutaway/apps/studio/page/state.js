// The whole state of the studio as words behind the # of its URL: data=moons&model=mlp&lr=0.01&b.model=linear.
// A key that begins with `b.` is the second model's; what it lacks is as the first model has it.

/**
 * @typedef {Record<string, string>} Flat
 * @typedef {{ page: Flat, a: Flat, b: Flat | null }} State `page`: what is watched and what is hidden
 */

const SECOND = "b.";
// Keys of the page itself. All others belong to a model and what it learns from.
const OF_PAGE = ["views", "example", "hide", "sides", "try", "temperature", "tokens", "tour"];
// In this order, then the model's own settings, then the rest by name.
const ORDER = ["data", "target", "noise", "count", "model", "seed"];
// They grow while a model trains, so they stand at the end of its keys.
const LAST = ["steps", "log"];

/** @param {string} key whether it says what is watched or hidden, and not what is trained */
export function ofPage(key) {
  return OF_PAGE.includes(key) || key.startsWith("view.");
}

/**
 * The state that a hash holds. What cannot be decoded is taken as it stands.
 * @param {string} hash with or without its #
 * @returns {State}
 */
export function read(hash) {
  const pairs = hash.replace(/^#/, "").split("&").filter((pair) => pair.indexOf("=") > 0);
  return sorted(
    Object.fromEntries(
      pairs.map((pair) => {
        const at = pair.indexOf("=");
        return [decoded(pair.slice(0, at)), decoded(pair.slice(at + 1))];
      }),
    ),
  );
}

/**
 * The same of keys and values that are read already.
 * @param {Flat} flat @returns {State}
 */
export function sorted(flat) {
  /** @type {Flat} */
  const page = {};
  /** @type {Flat} */
  const a = {};
  /** @type {Flat} */
  const changed = {};
  for (const [key, value] of Object.entries(flat)) {
    if (ofPage(key)) page[key] = value;
    else if (key.startsWith(SECOND)) changed[key.slice(SECOND.length)] = value;
    else a[key] = value;
  }
  const two = page.sides === "2" || Object.keys(changed).length > 0;
  return { page, a, b: two ? filled({ ...a, ...changed }) : null };
}

/**
 * The hash, without its #, of a state.
 * @param {State} state
 */
export function write({ page, a, b }) {
  const pairs = ordered(filled(a));
  if (b !== null) {
    const keys = ordered(filled({ ...a, ...b })).map(([key]) => key);
    const differs = keys.filter((key) => (a[key] ?? "") !== (b[key] ?? ""));
    pairs.push(...differs.map((key) => /** @type {[string, string]} */ ([SECOND + key, b[key] ?? ""])));
  }
  const shown = { ...page, sides: b !== null ? "2" : "" };
  pairs.push(...Object.entries(filled(shown)));
  return pairs.map(([key, value]) => `${encoded(key).replaceAll("=", "%3D")}=${encoded(value)}`).join("&");
}

/**
 * Whether two sides would be trained alike, whatever they were trained so far.
 * @param {Flat} one @param {Flat} other
 */
export function alike(one, other) {
  const [left, right] = [one, other].map((side) => filled({ ...side, steps: "" }));
  const keys = Object.keys({ ...left, ...right });
  return keys.every((key) => left[key] === right[key]);
}

/**
 * A side as it is before the first step.
 * @param {Flat} side
 */
export function untrained(side) {
  return filled({ ...side, steps: "", log: "" });
}

/**
 * What was changed while it trained, by its last value: "120:lr=0.1;130:lr=0.2" is { lr: "0.2" }.
 * @param {string} log @returns {Flat}
 */
export function changes(log) {
  const found = [...log.matchAll(/(?:^|;)\d+:([\w.]+)=([^;]*)/g)];
  return Object.fromEntries(found.map(([, key, value]) => [key, value]));
}

/** @param {Flat} flat without the keys that hold nothing */
function filled(flat) {
  return Object.fromEntries(Object.entries(flat).filter(([, value]) => value !== ""));
}

/** @param {Flat} flat @returns {[string, string][]} */
function ordered(flat) {
  const place = (/** @type {string} */ key) => {
    if (ORDER.includes(key)) return ORDER.indexOf(key);
    return ORDER.length + (LAST.includes(key) ? 2 + LAST.indexOf(key) : key.startsWith("model.") ? 0 : 1);
  };
  return Object.entries(flat).sort(([one], [other]) => place(one) - place(other) || (one < other ? -1 : 1));
}

/** @param {string} text only what would end a value is escaped, so that a person can read the rest */
function encoded(text) {
  return encodeURIComponent(text).replace(/%(2C|3A|2F|5B|5D|3B|3D|40|24)/g, decodeURIComponent);
}

/** @param {string} text */
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
