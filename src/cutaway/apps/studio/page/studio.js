// The studio: what the server says is drawn, what a person does is asked of the server, and the URL holds all of it.

import { html } from "../draw/dom.js";
import { moment, throttled } from "./controls.js";
import { dataPanel } from "./data.js";
import { keeping } from "./keep.js";
import { learnedPanel, title } from "./learned.js";
import { modelPanel } from "./model.js";
import { player, put } from "./player.js";
import { ask, listen, showImage } from "./server.js";
import { isLive, onData, rebuilt } from "./settings.js";
import { commandFor, sharing } from "./share.js";
import { alike, changes, ofPage, read, sorted, untrained, write } from "./state.js";
import { touring } from "./tour.js";
import { trainingPanel } from "./training.js";
import { tryPanel } from "./try.js";
import { weightEditor } from "./weights.js";
import { progress, spoken } from "./words.js";

/** @typedef {import("./words.js").Frame} Frame */
/** @typedef {"a" | "b"} Side */
/** @typedef {{ heard: number, until: number, early: Frame | null }} Expected */

const OF_DATA = ["data", "target", "noise", "count"]; // two models learn from the same
const SPEAK_EVERY = 6000; // milliseconds between announcements while it trains
const CATCH_UP = 3000; // steps that a new model is trained at once, to stand beside the other
const WAIT = 60000; // for the first frame of what was opened
const WRITE_EVERY = 1000; // between writings of the URL: browsers allow no more than a few a second

const first = JSON.parse(element("first").textContent ?? "");
/** @type {import("./settings.js").Choices} */
const choices = first.choices;
/** @type {{ a: Frame | null, b: Frame | null }} */
const frames = { a: first.frames?.a ?? null, b: first.frames?.b ?? null };
let state = sorted(first.state ?? {}); // of the page, and of each side
if (frames.b && !state.b) state = { ...state, b: sideOf(frames.b.state) };
/** @type {Side} */
let editing = "a";
let written = ""; // the hash as this page last wrote it
/** @type {Partial<Record<Side, Expected>>} */
const expected = {}; // what was opened and is not on the screen yet; frames with a lower `heard` were made before it
let plays = frames.a?.playing ?? false; // as far as is known, with what was just asked for
let asked = 0; // to play or to stop, and not answered yet
/** @type {Promise<unknown>} */
let opening = Promise.resolve(); // until nothing is being made anew: whoever presses play means what comes then
/** @type {Map<string, { value: string, heard: number, until: number }>} */
const held = new Map(); // settings on their way to the server, which frames made before must not put back

/** @param {string} id */
function element(id) {
  return /** @type {HTMLElement} */ (document.getElementById(id));
}

/** @param {string} id of a panel */
const inside = (id) => /** @type {HTMLElement} */ (element(id).querySelector(".inside"));

const weights = weightEditor((name, index, value) => weight(editing, name, index, value));
const bar = player(element("player"), control);
const data = dataPanel(inside("data"), choices, changed);
const model = modelPanel(inside("model"), choices, changed, (side) => {
  editing = side;
  showControls();
});
const training = trainingPanel(inside("training"), choices, changed, weights.list.root);
const trying = tryPanel({
  asked: (given) => sides().forEach((side) => tryOn(side, given)),
  image: (blob) => /** @type {Promise<{ image: number }>} */ (showImage(blob)),
  remembered(page) {
    state = { ...state, page: { ...state.page, ...page } };
    rememberSoon(undefined);
  },
});
const learned = learnedPanel(inside("learned"), choices, {
  watched: (names) => watch({ views: names.join(",") || "none" }),
  option: (key, value) => watch({ [key]: value }),
  act(side, act, at) {
    if (act.do !== "weight") return;
    weights.open((value) => weight(side, act.name, act.index, value), act.name, act.index, Number(act.value), at);
  },
}, trying.root);
const compare = html("button", { type: "button", "data-control": "compare", "aria-pressed": "false" }, "Compare");
compare.addEventListener("click", () => (state.b ? alone() : beside()));
element("tools").append(compare);
keeping(element("tools"), (write) => ask("save", { side: state.b ? editing : "a", write }));
sharing(element("tools"), () => state, first.run ?? null);

const tour = touring(element("tools"), (step) => {
  state = { ...state, page: { ...state.page, tour: step } };
  remember(false);
});

// --- what a person does -------------------------------------------------------------------------------------------

/**
 * Ask the server; what it rejects is said beside the control that asked.
 * @param {string} key of the control @param {() => Promise<unknown>} asking
 * @returns {Promise<boolean>} whether it was done
 */
async function attempt(key, asking) {
  const places = [trying.control, ...data.controls, ...model.controls(), ...training.controls, ...learned.controls()];
  const place = places.find((one) => one.key === key);
  const fail = (/** @type {string} */ words) => (place ? place.fail(words) : lost(words));
  const begun = moment();
  try {
    await asking();
    for (const one of places) one.fail("", begun); // errors from before this request no longer matter
    lost("");
    return true;
  } catch (error) {
    fail(error instanceof Error ? error.message : String(error));
    return false;
  }
}

/**
 * A setting of the side that is being set was changed.
 * @param {string} key @param {string} value
 */
async function changed(key, value) {
  const meant = OF_DATA.includes(key) ? sides() : [editing];
  const begun = plays || (frames[meant[0]]?.step ?? 0) > 0;
  const waiting = { value, heard: Infinity, until: Date.now() + WAIT };
  held.set(key, waiting);
  await opening;
  if (isLive(choices, key) && begun) {
    await attempt(key, async () => {
      const answers = await Promise.all(meant.map((side) => ask("change", { side, key, value })));
      waiting.heard = answers[0].heard ?? 0;
    });
  } else {
    await attempt(key, () => Promise.all(meant.map((side) => open(side, changedState(side, key, value)))));
    waiting.heard = 0;
  }
  if (waiting.heard === Infinity) waiting.until = 0; // rejected: what holds is shown again
  showControls();
}

/**
 * A side's state with another value; data brings an architecture that suits it.
 * @param {Side} side @param {string} key @param {string} value
 */
function changedState(side, key, value) {
  const now = fresh(state[side] ?? state.a);
  const waiting = data.waiting();
  const before = data.choice(now.data);
  if (key === "target" && waiting !== null) return onData(now, waiting, before, choices.models, value);
  const chosen = key === "data" ? data.choice(value) : undefined;
  if (chosen) return onData(now, chosen, before, choices.models);
  const next = choices.models.find(({ name }) => key === "model" && name === value);
  return next ? rebuilt(now, next, before?.toy ? {} : before?.begins) : { ...now, [key]: value };
}

/**
 * Make a side anew, and go on playing if it played.
 * @param {Side} side @param {Record<string, string>} wanted
 * @param {{ travelling?: boolean, fresh?: boolean }} [how] travelling: to a place in the browser's history, which is
 *   there already; fresh: from the first step, wherever the other model is
 */
async function open(side, wanted, { travelling = false, fresh = false } = {}) {
  const played = !fresh && plays;
  const own = sideOf({ ...wanted, steps: wanted.steps || (fresh || travelling ? "" : level(side)) });
  const before = state;
  state = { ...state, [side]: own };
  /** @type {Expected} */
  const waiting = (expected[side] = { heard: Infinity, until: Date.now() + WAIT, early: null });
  const made = ask("open", { side, state: own });
  opening = Promise.allSettled([opening, made]);
  show();
  remember(!travelling); // now: a frame may come before the answer, and must find the new place in the history
  try {
    waiting.heard = (await made).heard ?? 0;
    if (waiting.early && expected[side] === waiting) take(waiting.early);
  } catch (error) {
    state = before;
    if (expected[side] === waiting) delete expected[side];
    show();
    remember(false);
    throw error;
  }
  data.begun();
  watchNow(side);
  if (played && !travelling) await ask("control", { side, do: "play" });
}

/** @param {Side} side @returns {string} how far to train it, so that two models stand at the same step */
function level(side) {
  const other = state.b === null && side === "a" ? null : frames[side === "a" ? "b" : "a"];
  return other && other.step > 0 && other.step <= CATCH_UP ? String(other.step) : "";
}

/** A second model beside the first, as it is now: every step is taken again, with what was changed on the way. */
async function beside() {
  const own = (frames.a?.step ?? 0) <= CATCH_UP ? state.a : fresh(state.a);
  if (await attempt("compare", () => open("b", own))) {
    editing = "b"; // it is there to be changed
    showControls();
  }
}

/** Back to one model. @param {boolean} [travelling] as when opening */
async function alone(travelling = false) {
  await attempt("compare", () => ask("close", { side: "b" }));
  frames.b = null;
  editing = "a";
  state = { ...state, b: null };
  delete expected.b;
  remember(!travelling);
  show();
}

/**
 * @param {string} what play, pause, step, epoch, reset or seek @param {number} [to]
 */
function control(what, to) {
  const both = state.b ? "both" : "a";
  const again = what === "reset" && sides().some((side) => state[side]?.log);
  plays = what === "play";
  asked++;
  show();
  const done = attempt("play", async () => {
    await opening;
    await ask("control", { side: both, do: what, ...(to === undefined ? {} : { to }) });
    // What was changed on the way stays changed: the settings of now, from the first step on.
    if (again) await Promise.all(sides().map((side) => open(side, fresh(state[side] ?? state.a), { fresh: true })));
  });
  done.then(() => asked--);
}

/** @returns {Side[]} that are open */
function sides() {
  return state.b ? ["a", "b"] : ["a"];
}

/** @param {Record<string, string>} own a side as it would be before the first step, with the settings of now */
function fresh(own) {
  return untrained({ ...own, ...changes(own.log ?? "") });
}

/** @param {Side} side @param {string} name @param {number[]} index @param {number} [value] nothing asks for it */
function weight(side, name, index, value) {
  return ask("weight", { side, name, index, ...(value === undefined ? {} : { value }) });
}

/** @param {Record<string, string>} wanted of what is watched: views, example, view.layer */
async function watch(wanted) {
  state = { ...state, page: { ...state.page, ...wanted } };
  remember(false);
  const key = Object.keys(wanted)[0];
  await attempt(key, () => Promise.all([watchNow("a"), state.b ? watchNow("b") : null]));
  show();
}

/** @param {Side} side Tell the server what is watched. Nothing is said where the page has no wish. */
function watchNow(side) {
  const { page } = state;
  const options = Object.entries(page).filter(([key, value]) => key.startsWith("view.") && value !== "");
  if (page.views === undefined && page.example === undefined && options.length === 0) return Promise.resolve({});
  return ask("watch", {
    side,
    ...(page.views === undefined ? {} : { views: views() }),
    options: Object.fromEntries(options.map(([key, value]) => [key.slice("view.".length), value])),
    ...(page.example ? { example: Number(page.example) } : {}),
  });
}

/** @param {Side} side @param {import("./try.js").Asked | null} given tried in every frame from now on */
async function tryOn(side, given) {
  const begun = moment();
  try {
    await ask("try", { side, try: given && Object.keys(given).length > 0 ? given : null });
    trying.control.fail("", begun);
  } catch (error) {
    trying.control.fail(error instanceof Error ? error.message : String(error));
  }
}

/** The names of the views that are watched, in the order in which they are read. */
function views() {
  const { page } = state;
  const shown = [frames.a, frames.b].flatMap((frame) => frame?.views.map(({ id }) => id) ?? []);
  if (page.views === undefined) return [...new Set(shown)]; // nobody has chosen: what the server shows
  const known = page.views.split(",").filter((name) => choices.views.some((view) => view.name === name));
  return known.length > 0 || page.views === "none" ? known : [...new Set(shown)]; // a link may name what is no view
}

// --- the URL ------------------------------------------------------------------------------------------------------

/** @param {boolean} anew whether the browser's back button should lead back to what was before */
function remember(anew) {
  const hash = write(state);
  if (hash === written) return;
  const address = `${location.pathname}${location.search}#${hash}`;
  if (anew && written !== "") history.pushState(null, "", address);
  else history.replaceState(null, "", address);
  written = hash;
}
const rememberSoon = throttled(() => remember(false), WRITE_EVERY);

/** Bring back what the URL says, unless it is there already. */
async function restore() {
  const wanted = read(location.hash);
  written = location.hash.slice(1);
  const nothing = Object.keys(wanted.a).length === 0;
  const closing = wanted.b === null && state.b !== null && !nothing;
  state = nothing ? { ...state, page: wanted.page } : wanted;
  hide();
  await Promise.all([
    ...(nothing ? [] : sides().map((side) => bring(side, wanted[side] ?? wanted.a))),
    ...(closing ? [alone(true)] : []),
  ]);
  show();
}

/** @param {Side} side @param {Record<string, string>} own what the URL says of it, to be opened unless it is there */
async function bring(side, own) {
  const frame = frames[side];
  const arrived = frame && !expected[side] && (frame.playing || String(frame.step || "") === (own.steps ?? ""));
  if (arrived && alike(own, sideOf({ ...frame.state, log: frame.log ?? "" }))) return watchNow(side);
  const done = await attempt("data", () => open(side, own, { travelling: true }));
  if (!done && side === "b") state = { ...state, b: null };
}

for (const name of ["popstate", "hashchange"]) {
  addEventListener(name, () => location.hash.slice(1) !== written && restore());
}

/** What the teacher's link says to leave out. */
function hide() {
  const names = new Set((state.page.hide ?? "").split(","));
  for (const each of document.querySelectorAll("[data-control]")) {
    each.classList.toggle("left-out", names.has(String(each.getAttribute("data-control"))));
  }
  for (const panel of document.querySelectorAll(".panel")) panel.classList.toggle("left-out", names.has(panel.id));
}

// --- what the server says -----------------------------------------------------------------------------------------

/** @param {Record<string, string>} own as the server has it, without what belongs to the page */
function sideOf(own) {
  const kept = Object.entries(own).filter(([key, value]) => !ofPage(key) && value !== "");
  return Object.fromEntries(kept.filter(([key, value]) => key !== "steps" || value !== "0"));
}

/** @param {Frame} frame */
function take(frame) {
  const side = frame.side === "b" ? "b" : "a";
  if (side === "b" && state.b === null) return; // made before it was closed
  const own = sideOf(frame.state ?? {});
  const waiting = expected[side];
  if (waiting && frames[side] && !frame.error && (frame.heard ?? -1) < waiting.heard && Date.now() < waiting.until) {
    waiting.early = frame; // or on its way before the answer was
    return;
  }
  if (waiting && frame.settings) delete expected[side];
  frames[side] = frame;
  // What runs to the end of its epoch stops there: a model that is made anew meanwhile does not go on for ever.
  if (asked === 0) plays = [frames.a, frames.b].some((each) => each?.playing && !each.replaying && !each.to_end);
  const there = frame.settings !== undefined && !frame.replaying; // else the URL says already where this leads
  if (there) state = { ...state, [side]: sideOf({ ...own, steps: String(frame.step), log: frame.log ?? "" }) };
  show();
  if (!there) return;
  if (frame.playing) rememberSoon(undefined);
  else remember(false);
}

let triedOn = false; // whether the second model was asked what the first one was

/** Draw what is known. */
function show() {
  const { a } = frames;
  const b = state.b ? frames.b : null;
  compare.setAttribute("aria-pressed", String(state.b !== null));
  put(compare, state.b ? "One model" : "Compare");
  document.body.classList.toggle("two", b !== null);
  showControls();
  if (!a) return;
  bar.show(a, b, plays, expected.a !== undefined || expected.b !== undefined);
  training.show(a, b);
  const named = /** @type {[string, Frame][]} */ (b ? [[title("a", a, b), a], [title("b", a, b), b]] : [["", a]]);
  const anew = trying.show(named, state.page);
  if (anew || (b && !triedOn)) {
    const wish = trying.wish(state.page);
    sides().forEach((side) => tryOn(side, wish));
  }
  triedOn = b !== null;
  now("training", progress(a));
  now("learned", learned.show(a, b, views(), state.page));
  lost([a, b].map((frame) => frame?.error).filter(Boolean).join(" "), "error");
  if (!plays) speak();
  else speakSoon(undefined);
}

/** The controls as the side that is being set has them. */
function showControls() {
  const side = state.b ? editing : "a";
  const own = state[side] ?? state.a;
  const frame = frames[side];
  const current = { ...frame?.settings, ...own, ...changes(own.log ?? "") };
  for (const [key, { value, heard, until }] of held) {
    if (until < Date.now() || (frame?.heard ?? 0) >= heard) held.delete(key);
    else current[key] = value;
  }
  const arrived = frame?.state?.data === own.data; // else the frame is still of other data
  now("data", data.show(current, arrived ? frame?.data : undefined));
  const learners = arrived ? frame?.models : undefined;
  now("model", model.show(current, data.choice(own.data ?? ""), learners, side, state.b !== null));
  training.set(current);
  weights.list.show(frame?.names?.weights ?? []);
  if (state.page.hide) hide();
}

/** @param {string} id of a panel @param {string} words what it holds, for when it is folded */
function now(id, words) {
  put(/** @type {Element} */ (element(id).querySelector(".now")), words);
}

const speakSoon = throttled(() => speak(), SPEAK_EVERY);
function speak() {
  if (frames.a) put(element("heard"), spoken(frames.a));
}

/** @type {Record<string, string>} */
const troubles = {};

/**
 * Say what is wrong, above everything; nothing where all is well.
 * @param {string} words @param {"connection" | "error" | "asked"} [about]
 */
function lost(words, about = "asked") {
  troubles[about] = words;
  const place = element("lost");
  const said = Object.values(troubles).filter(Boolean).join(" ");
  if (place.dataset.said === said) return;
  place.dataset.said = said;
  const again = html("button", { type: "button", class: "plain" }, "Try again");
  again.addEventListener("click", () => reconnect());
  const command = html("code", {}, commandFor(write(state), first.run ?? null));
  const anew = html("span", {}, "If the studio was closed, this opens the same in a new one: ", command, " ");
  place.replaceChildren(said, " ", ...(troubles.connection ? [anew, again] : []));
  place.hidden = said === "";
}

// On a phone the settings are folded at first, so that the model itself is in sight.
if (matchMedia("(max-width: 62rem)").matches) {
  for (const fold of document.querySelectorAll("#data, #model, #training .more[open]")) fold.removeAttribute("open");
}
show();
hide();
const reconnect = listen(take, (words) => lost(words, "connection"));
tour.begin(read(location.hash).page.tour, location.hash.length <= 1);
if (location.hash.length > 1) restore();
