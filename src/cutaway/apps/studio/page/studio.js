// Entry point of the studio: draws the server's frames, sends user actions to the server, keeps the state in the URL.

import { html } from "../draw/dom.js";
import { messageCount, throttle } from "./controls.js";
import { dataPanel } from "./data.js";
import { saveDialog } from "./save.js";
import { learnedPanel, title } from "./learned.js";
import { modelPanel } from "./model.js";
import { player, setText } from "./player.js";
import { request, listen, uploadImage } from "./server.js";
import { isLive, changeData, changeModel } from "./settings.js";
import { studioCommand, shareDialog } from "./share.js";
import { sameSettings, parseLog, isPageKey, parseState, splitState, withoutSteps, formatState } from "./state.js";
import { createTour } from "./tour.js";
import { trainingPanel } from "./training.js";
import { tryPanel } from "./try.js";
import { weightEditor } from "./weights.js";
import { progressText, announcement } from "./labels.js";

/** @typedef {import("./labels.js").Frame} Frame */
/** @typedef {"a" | "b"} Side */
/** @typedef {{ heard: number, until: number, early: Frame | null }} PendingFrame */

const SHARED_KEYS = ["data", "target", "noise", "count"]; // the same for both models
const ANNOUNCE_EVERY = 6000; // milliseconds between announcements for screen readers during training
const MAX_CATCH_UP = 3000; // steps up to which a second model is trained to catch up with the first
const FRAME_TIMEOUT = 60000; // milliseconds to wait for the first frame after opening
const URL_EVERY = 1000; // milliseconds between updates of the URL: browsers limit their rate

const first = JSON.parse(element("first").textContent ?? "");
/** @type {import("./settings.js").Choices} */
const choices = first.choices;
/** @type {{ a: Frame | null, b: Frame | null }} */
const frames = { a: first.frames?.a ?? null, b: first.frames?.b ?? null };
let state = splitState(first.state ?? {}); // of the page, and of each side
if (frames.b && !state.b) state = { ...state, b: sideOf(frames.b.state) };
/** @type {Side} */
let editing = "a";
let writtenHash = ""; // the hash as last written by this page
/** @type {Partial<Record<Side, PendingFrame>>} */
const pendingFrames = {}; // sides that wait for their first frame; frames with a lower `heard` are older
let isPlaying = frames.a?.playing ?? false; // including requests not answered yet
let pendingControls = 0; // number of play and pause requests without an answer
/** @type {Promise<unknown>} */
let opening = Promise.resolve(); // resolved when all open requests are; play then applies to the new model
/** @type {Map<string, { value: string, heard: number, until: number }>} */
const pendingSettings = new Map(); // settings sent to the server, which older frames must not revert

/** @param {string} id */
function element(id) {
  return /** @type {HTMLElement} */ (document.getElementById(id));
}

/** @param {string} id ID of a panel */
const panelBody = (id) => /** @type {HTMLElement} */ (element(id).querySelector(".inside"));

const weights = weightEditor((name, index, value) => setWeight(editing, name, index, value));
const playerBar = player(element("player"), controlTraining);
const data = dataPanel(panelBody("data"), choices, changeSetting);
const model = modelPanel(panelBody("model"), choices, changeSetting, (side) => {
  editing = side;
  showControls();
});
const training = trainingPanel(panelBody("training"), choices, changeSetting, weights.list.root);
const tryField = tryPanel({
  onInput: (input) => sides().forEach((side) => tryOn(side, input)),
  uploadImage: (blob) => /** @type {Promise<{ image: number }>} */ (uploadImage(blob)),
  onChange(page) {
    state = { ...state, page: { ...state.page, ...page } };
    updateUrlSoon(undefined);
  },
});
const learned = learnedPanel(panelBody("learned"), choices, {
  onWatch: (names) => watch({ views: names.join(",") || "none" }),
  onOption: (key, value) => watch({ [key]: value }),
  act(side, act, at) {
    if (act.do !== "weight") return;
    weights.open((value) => setWeight(side, act.name, act.index, value), act.name, act.index, Number(act.value), at);
  },
}, tryField.root);
const compare = html("button", { type: "button", "data-control": "compare", "aria-pressed": "false" }, "Compare");
compare.addEventListener("click", () => (state.b ? stopComparison() : startComparison()));
element("tools").append(compare);
saveDialog(element("tools"), (write) => request("save", { side: state.b ? editing : "a", write }));
shareDialog(element("tools"), () => state, first.run ?? null);

const tour = createTour(element("tools"), (step) => {
  state = { ...state, page: { ...state.page, tour: step } };
  updateUrl(false);
});

// --- user actions -----------------------------------------------------------------------------------------------

/**
 * Send a request; show an error at the control that sent it.
 * @param {string} key key of the control @param {() => Promise<unknown>} action
 * @returns {Promise<boolean>} true on success
 */
async function attempt(key, action) {
  const places = [tryField.control, ...data.controls, ...model.controls(), ...training.controls, ...learned.controls()];
  const place = places.find((one) => one.key === key);
  const fail = (/** @type {string} */ message) => (place ? place.showError(message) : showError(message));
  const begun = messageCount();
  try {
    await action();
    for (const one of places) one.showError("", begun); // clear errors from before this request
    showError("");
    return true;
  } catch (error) {
    fail(error instanceof Error ? error.message : String(error));
    return false;
  }
}

/**
 * Send a changed setting of the selected side to the server.
 * @param {string} key @param {string} value
 */
async function changeSetting(key, value) {
  const targets = SHARED_KEYS.includes(key) ? sides() : [editing];
  const begun = isPlaying || (frames[targets[0]]?.step ?? 0) > 0;
  const waiting = { value, heard: Infinity, until: Date.now() + FRAME_TIMEOUT };
  pendingSettings.set(key, waiting);
  await opening;
  if (isLive(choices, key) && begun) {
    await attempt(key, async () => {
      const answers = await Promise.all(targets.map((side) => request("change", { side, key, value })));
      waiting.heard = answers[0].heard ?? 0;
    });
  } else {
    await attempt(key, () => Promise.all(targets.map((side) => open(side, changedState(side, key, value)))));
    waiting.heard = 0;
  }
  if (waiting.heard === Infinity) waiting.until = 0; // rejected: show the current value again
  showControls();
}

/**
 * Return a side's state with a changed setting; new data selects a compatible architecture.
 * @param {Side} side @param {string} key @param {string} value
 */
function changedState(side, key, value) {
  const now = untrainedState(state[side] ?? state.a);
  const waiting = data.pending();
  const before = data.choice(now.data);
  if (key === "target" && waiting !== null) return changeData(now, waiting, before, choices.models, value);
  const choice = key === "data" ? data.choice(value) : undefined;
  if (choice) return changeData(now, choice, before, choices.models);
  const next = choices.models.find(({ name }) => key === "model" && name === value);
  return next ? changeModel(now, next, before?.toy ? {} : before?.begins) : { ...now, [key]: value };
}

/**
 * Open a side with another state; training continues if it was running.
 * @param {Side} side @param {Record<string, string>} wanted
 * @param {{ fromHistory?: boolean, fromStart?: boolean }} [options] fromHistory: the state comes from the browser's
 *   history; fromStart: begin at the first step, wherever the other model is
 */
async function open(side, wanted, { fromHistory = false, fromStart = false } = {}) {
  const wasPlaying = !fromStart && isPlaying;
  const own = sideOf({ ...wanted, steps: wanted.steps || (fromStart || fromHistory ? "" : stepsToMatch(side)) });
  const before = state;
  state = { ...state, [side]: own };
  /** @type {PendingFrame} */
  const waiting = (pendingFrames[side] = { heard: Infinity, until: Date.now() + FRAME_TIMEOUT, early: null });
  const answer = request("open", { side, state: own });
  opening = Promise.allSettled([opening, answer]);
  show();
  updateUrl(!fromHistory); // before the answer, because a frame may arrive first and must find the new history entry
  try {
    waiting.heard = (await answer).heard ?? 0;
    if (waiting.early && pendingFrames[side] === waiting) receiveFrame(waiting.early);
  } catch (error) {
    state = before;
    if (pendingFrames[side] === waiting) delete pendingFrames[side];
    show();
    updateUrl(false);
    throw error;
  }
  data.clearPending();
  watchNow(side);
  if (wasPlaying && !fromHistory) await request("control", { side, do: "play" });
}

/** @param {Side} side @returns {string} the step of the other model, to train this one up to */
function stepsToMatch(side) {
  const other = state.b === null && side === "a" ? null : frames[side === "a" ? "b" : "a"];
  return other && other.step > 0 && other.step <= MAX_CATCH_UP ? String(other.step) : "";
}

/** Open a copy of the model as the second side: its steps and the changes of settings are replayed. */
async function startComparison() {
  const own = (frames.a?.step ?? 0) <= MAX_CATCH_UP ? state.a : untrainedState(state.a);
  if (await attempt("compare", () => open("b", own))) {
    editing = "b"; // the copy is the one to edit
    showControls();
  }
}

/** Close the second side. @param {boolean} [fromHistory] as in `open` */
async function stopComparison(fromHistory = false) {
  await attempt("compare", () => request("close", { side: "b" }));
  frames.b = null;
  editing = "a";
  state = { ...state, b: null };
  delete pendingFrames.b;
  updateUrl(!fromHistory);
  show();
}

/**
 * @param {string} action play, pause, step, epoch, reset or seek @param {number} [to]
 */
function controlTraining(action, to) {
  const both = state.b ? "both" : "a";
  const resetLog = action === "reset" && sides().some((side) => state[side]?.log);
  isPlaying = action === "play";
  pendingControls++;
  show();
  const done = attempt("play", async () => {
    await opening;
    await request("control", { side: both, do: action, ...(to === undefined ? {} : { to }) });
    // Settings changed during training are kept and apply from the first step.
    if (resetLog) await Promise.all(sides().map((side) => open(side, untrainedState(state[side] ?? state.a), { fromStart: true })));
  });
  done.then(() => pendingControls--);
}

/** @returns {Side[]} the open sides */
function sides() {
  return state.b ? ["a", "b"] : ["a"];
}

/** @param {Record<string, string>} own a side's state @returns the state before the first step, with current settings */
function untrainedState(own) {
  return withoutSteps({ ...own, ...parseLog(own.log ?? "") });
}

/** @param {Side} side @param {string} name @param {number[]} index @param {number} [value] without it, only read the weight */
function setWeight(side, name, index, value) {
  return request("weight", { side, name, index, ...(value === undefined ? {} : { value }) });
}

/** @param {Record<string, string>} options page settings: views, example, view.layer */
async function watch(options) {
  state = { ...state, page: { ...state.page, ...options } };
  updateUrl(false);
  const key = Object.keys(options)[0];
  await attempt(key, () => Promise.all([watchNow("a"), state.b ? watchNow("b") : null]));
  show();
}

/** Send the selected views and options, if there are any. @param {Side} side */
function watchNow(side) {
  const { page } = state;
  const options = Object.entries(page).filter(([key, value]) => key.startsWith("view.") && value !== "");
  if (page.views === undefined && page.example === undefined && options.length === 0) return Promise.resolve({});
  return request("watch", {
    side,
    ...(page.views === undefined ? {} : { views: views() }),
    options: Object.fromEntries(options.map(([key, value]) => [key.slice("view.".length), value])),
    ...(page.example ? { example: Number(page.example) } : {}),
  });
}

/** @param {Side} side @param {import("./try.js").Input | null} input predicted for in every frame from now on */
async function tryOn(side, input) {
  const begun = messageCount();
  try {
    await request("try", { side, try: input && Object.keys(input).length > 0 ? input : null });
    tryField.control.showError("", begun);
  } catch (error) {
    tryField.control.showError(error instanceof Error ? error.message : String(error));
  }
}

/** Return the names of the selected views, in display order. */
function views() {
  const { page } = state;
  const shown = [frames.a, frames.b].flatMap((frame) => frame?.views.map(({ id }) => id) ?? []);
  if (page.views === undefined) return [...new Set(shown)]; // no selection: the server's default
  const known = page.views.split(",").filter((name) => choices.views.some((view) => view.name === name));
  return known.length > 0 || page.views === "none" ? known : [...new Set(shown)]; // ignore unknown names in a link
}

// --- the URL ------------------------------------------------------------------------------------------------------

/** Write the state into the URL. @param {boolean} push true: add an entry to the browser's history */
function updateUrl(push) {
  const hash = formatState(state);
  if (hash === writtenHash) return;
  const address = `${location.pathname}${location.search}#${hash}`;
  if (push && writtenHash !== "") history.pushState(null, "", address);
  else history.replaceState(null, "", address);
  writtenHash = hash;
}
const updateUrlSoon = throttle(() => updateUrl(false), URL_EVERY);

/** Restore the state in the URL, unless it is current. */
async function restore() {
  const wanted = parseState(location.hash);
  writtenHash = location.hash.slice(1);
  const isEmpty = Object.keys(wanted.a).length === 0;
  const closing = wanted.b === null && state.b !== null && !isEmpty;
  state = isEmpty ? { ...state, page: wanted.page } : wanted;
  hideParts();
  await Promise.all([
    ...(isEmpty ? [] : sides().map((side) => restoreSide(side, wanted[side] ?? wanted.a))),
    ...(closing ? [stopComparison(true)] : []),
  ]);
  show();
}

/** @param {Side} side @param {Record<string, string>} own its state in the URL, opened unless it is current */
async function restoreSide(side, own) {
  const frame = frames[side];
  const arrived = frame && !pendingFrames[side] && (frame.playing || String(frame.step || "") === (own.steps ?? ""));
  if (arrived && sameSettings(own, sideOf({ ...frame.state, log: frame.log ?? "" }))) return watchNow(side);
  const done = await attempt("data", () => open(side, own, { fromHistory: true }));
  if (!done && side === "b") state = { ...state, b: null };
}

for (const name of ["popstate", "hashchange"]) {
  addEventListener(name, () => location.hash.slice(1) !== writtenHash && restore());
}

/** Hide the parts listed under `hide` in the URL. */
function hideParts() {
  const names = new Set((state.page.hide ?? "").split(","));
  for (const each of document.querySelectorAll("[data-control]")) {
    each.classList.toggle("left-out", names.has(String(each.getAttribute("data-control"))));
  }
  for (const panel of document.querySelectorAll(".panel")) panel.classList.toggle("left-out", names.has(panel.id));
}

// --- frames from the server --------------------------------------------------------------------------------------

/** @param {Record<string, string>} own a side's state @returns the state without keys of the page */
function sideOf(own) {
  const kept = Object.entries(own).filter(([key, value]) => !isPageKey(key) && value !== "");
  return Object.fromEntries(kept.filter(([key, value]) => key !== "steps" || value !== "0"));
}

/** @param {Frame} frame */
function receiveFrame(frame) {
  const side = frame.side === "b" ? "b" : "a";
  if (side === "b" && state.b === null) return; // an older frame of the closed side
  const own = sideOf(frame.state ?? {});
  const waiting = pendingFrames[side];
  if (waiting && frames[side] && !frame.error && (frame.heard ?? -1) < waiting.heard && Date.now() < waiting.until) {
    waiting.early = frame; // older than the open request, or ahead of its answer
    return;
  }
  if (waiting && frame.settings) delete pendingFrames[side];
  frames[side] = frame;
  // A model that runs to the end of its epoch stops there and does not count as playing.
  if (pendingControls === 0) isPlaying = [frames.a, frames.b].some((each) => each?.playing && !each.replaying && !each.to_end);
  const isCurrent = frame.settings !== undefined && !frame.replaying; // otherwise the URL already holds the target state
  if (isCurrent) state = { ...state, [side]: sideOf({ ...own, steps: String(frame.step), log: frame.log ?? "" }) };
  show();
  if (!isCurrent) return;
  if (frame.playing) updateUrlSoon(undefined);
  else updateUrl(false);
}

let askedBoth = false; // true after the second model got the input of the first

/** Update the whole page. */
function show() {
  const { a } = frames;
  const b = state.b ? frames.b : null;
  compare.setAttribute("aria-pressed", String(state.b !== null));
  setText(compare, state.b ? "One model" : "Compare");
  document.body.classList.toggle("two", b !== null);
  showControls();
  if (!a) return;
  playerBar.show(a, b, isPlaying, pendingFrames.a !== undefined || pendingFrames.b !== undefined);
  training.show(a, b);
  const named = /** @type {[string, Frame][]} */ (b ? [[title("a", a, b), a], [title("b", a, b), b]] : [["", a]]);
  const isNew = tryField.show(named, state.page);
  if (isNew || (b && !askedBoth)) {
    const input = tryField.currentInput(state.page);
    sides().forEach((side) => tryOn(side, input));
  }
  askedBoth = b !== null;
  setSummary("training", progressText(a));
  setSummary("learned", learned.show(a, b, views(), state.page));
  showError([a, b].map((frame) => frame?.error).filter(Boolean).join(" "), "error");
  if (!isPlaying) announce();
  else announceSoon(undefined);
}

/** Update the controls with the settings of the selected side. */
function showControls() {
  const side = state.b ? editing : "a";
  const own = state[side] ?? state.a;
  const frame = frames[side];
  const current = { ...frame?.settings, ...own, ...parseLog(own.log ?? "") };
  for (const [key, { value, heard, until }] of pendingSettings) {
    if (until < Date.now() || (frame?.heard ?? 0) >= heard) pendingSettings.delete(key);
    else current[key] = value;
  }
  const arrived = frame?.state?.data === own.data; // otherwise the frame is of the previous data
  setSummary("data", data.show(current, arrived ? frame?.data : undefined));
  const learners = arrived ? frame?.models : undefined;
  setSummary("model", model.show(current, data.choice(own.data ?? ""), learners, side, state.b !== null));
  training.set(current);
  weights.list.show(frame?.names?.weights ?? []);
  if (state.page.hide) hideParts();
}

/** Set the summary shown in a folded panel. @param {string} id @param {string} text */
function setSummary(id, text) {
  setText(/** @type {Element} */ (element(id).querySelector(".now")), text);
}

const announceSoon = throttle(() => announce(), ANNOUNCE_EVERY);
function announce() {
  if (frames.a) setText(element("heard"), announcement(frames.a));
}

/** @type {Record<string, string>} */
const errors = {};

/**
 * Show an error at the top of the page; an empty text clears it.
 * @param {string} message @param {"connection" | "error" | "request"} [source]
 */
function showError(message, source = "request") {
  errors[source] = message;
  const place = element("lost");
  const text = Object.values(errors).filter(Boolean).join(" ");
  if (place.dataset.text === text) return;
  place.dataset.text = text;
  const retry = html("button", { type: "button", class: "plain" }, "Try again");
  retry.addEventListener("click", () => reconnect());
  const command = html("code", {}, studioCommand(formatState(state), first.run ?? null));
  const hint = html("span", {}, "If the studio was closed, this command opens the same state in a new one: ", command, " ");
  place.replaceChildren(text, " ", ...(errors.connection ? [hint, retry] : []));
  place.hidden = text === "";
}

// On a phone the settings are collapsed at first, so that the model is visible.
if (matchMedia("(max-width: 62rem)").matches) {
  for (const fold of document.querySelectorAll("#data, #model, #training .more[open]")) fold.removeAttribute("open");
}
show();
hideParts();
const reconnect = listen(receiveFrame, (message) => showError(message, "connection"));
tour.start(parseState(location.hash).page.tour, location.hash.length <= 1);
if (location.hash.length > 1) restore();
