// The first column: which data, how much of it, and one's own file.

import { html } from "../draw/dom.js";
import { chooser, control, failing } from "./controls.js";
import { folded } from "./model.js";
import { put } from "./player.js";
import { Rejected, upload } from "./server.js";
import { isAbout, ofReading, setting } from "./settings.js";
import { stamp } from "./toys.js";
import { parted } from "./words.js";

const KINDS = {
  table: "Tables", image: "Images", text: "Text", series: "Series", audio: "Audio", video: "Video", graph: "Graphs",
  seq2seq: "Pairs of sequences",
}; // prettier-ignore

/**
 * @typedef {import("./settings.js").DataChoice & { data: string, columns?: (string | { name: string })[],
 *   notes?: string[] }} Uploaded
 */

/**
 * @param {HTMLElement} root @param {import("./settings.js").Choices} choices
 * @param {(key: string, value: string) => void} changed
 */
export function dataPanel(root, choices, changed) {
  /** @type {Map<string, Uploaded>} */
  const own = new Map();
  const toys = choices.data.filter((data) => data.toy);
  const rest = choices.data.filter((data) => !data.toy);
  const cards = toys.map((toy) => card(toy, () => changed("data", toy.name)));
  const failed = failing();
  const problem = failing(); // of a file of one's own
  const fieldset = html(
    "fieldset",
    { class: "field toys", "data-control": "toys" },
    html("legend", {}, "Toys"),
    html("div", { class: "cards" }, ...cards.map(({ root: label }) => label)),
  );
  const known = rest.map(({ name, title, kind, here }) => ({
    value: name,
    name: here ? title : `${title} (not on this machine)`,
    group: KINDS[/** @type {keyof typeof KINDS} */ (kind)] ?? kind,
    here,
  }));
  const pick = { value: "", name: "Choose …" };
  const sets = chooser({ key: "sets", default: "", says: "", label: "Data sets" }, [pick, ...known], (_, name) => {
    if (name) changed("data", name);
  });
  const target = chooser({ key: "target", default: "", says: "" }, [], changed);
  const notes = html("ul", { class: "notes" });
  const amounts = [
    control(setting(choices, "count", { type: "int", default: 200, low: 10, high: 100000 }), changed),
    control(setting(choices, "noise", { type: "float", default: "", low: 0, high: 0.5 }), changed),
    control(setting(choices, "seed", { type: "int", default: 0, low: 0 }), changed),
  ];
  const reading = ofReading(choices).map((one) => control(one, changed));
  const splits = html("p", { class: "hint" });
  root.append(fieldset, sets.root, failed, ownFile(), target.root, notes, splits);
  root.append(...amounts.map((one) => one.root), ...folded("How it is read", reading));
  const handed = { ...sets, key: "upload", set() {}, fail: problem.say };
  const controls = [{ ...sets, fail: failed.say, key: "data" }, handed, target, ...amounts, ...reading];

  /** A picker that is also a place to drop a file on. */
  function ownFile() {
    const input = html("input", { type: "file", id: "own-file", accept: ".csv,.tsv,.txt,.parquet" });
    const words = html("label", { for: "own-file" }, "Your own file");
    const kinds = "A table or a text: .csv, .tsv, .txt, .parquet. Drop it here, or choose it. It stays on this machine.";
    const help = html("p", { class: "hint" }, kinds);
    const place = html("div", { class: "field drop", "data-control": "upload" }, words, input, help, problem);
    /** @param {File | null | undefined} file */
    async function take(file) {
      if (!file) return;
      problem.say("");
      help.textContent = `Reading ${file.name} …`;
      try {
        const found = /** @type {Uploaded} */ (await upload(file));
        help.textContent = `${file.name} is read.`;
        own.set(found.data, found);
        offer(found);
        const columns = namesOf(found);
        if (found.kind !== "table" || columns.length === 0) changed("data", found.data);
        else target.root.querySelector("select")?.focus(); // a table begins when it is known what to predict
      } catch (error) {
        if (!(error instanceof Rejected)) throw error;
        help.textContent = "Choose another file, or fix this one.";
        problem.say(error.message);
      }
    }
    input.addEventListener("change", () => take(input.files?.[0]));
    for (const name of ["dragenter", "dragover"]) {
      root.addEventListener(name, (event) => {
        event.preventDefault();
        place.classList.add("over");
      });
    }
    root.addEventListener("dragleave", () => place.classList.remove("over"));
    root.addEventListener("drop", (event) => {
      event.preventDefault();
      place.classList.remove("over");
      take(event.dataTransfer?.files[0]);
    });
    return place;
  }

  /** @type {Uploaded | null} */
  let asked = null; // an upload that waits for its target

  /** @param {Uploaded} found */
  function offer(found) {
    const columns = namesOf(found);
    tell(found.notes ?? []);
    if (columns.length === 0) return;
    asked = found;
    const options = columns.map((name) => ({ value: name, name }));
    target.limit([{ value: "", name: "Choose …" }, ...options]);
    target.root.hidden = false;
  }

  /** @param {string[]} said */
  function tell(said) {
    if (notes.dataset.said === said.join("\n")) return;
    notes.dataset.said = said.join("\n");
    notes.replaceChildren(...said.map((note) => html("li", {}, note)));
  }

  return {
    controls,
    /** @param {string} name of data @returns {import("./settings.js").DataChoice | undefined} what is known of it */
    choice: (name) => own.get(name) ?? choices.data.find((data) => data.name === name),
    /** @returns {Uploaded | null} the uploaded table that waits to be told what to predict */
    waiting: () => asked,
    begun: () => (asked = null),
    /** @param {Record<string, string>} state @param {import("./words.js").Frame["data"]} [found] as it was read */
    show(state, found) {
      const name = state.data ?? "";
      cards.forEach(({ input }, i) => {
        if (input.checked !== (toys[i].name === name)) input.checked = toys[i].name === name;
      });
      const listed = choices.data.some((data) => data.name === name);
      sets.limit([pick, ...known, ...(listed || !name ? [] : [{ value: name, name, group: "Opened" }])]);
      sets.set(rest.some((data) => data.name === name) || !listed ? name : "");
      const columns = namesOf(own.get(name));
      if (!asked) {
        if (columns.length > 0) target.limit(columns.map((column) => ({ value: column, name: column })));
        else if (state.target) target.limit([{ value: state.target, name: state.target }]);
        target.root.hidden = columns.length === 0 && !state.target;
        target.set(state.target ?? "");
      }
      const toy = toys.some((data) => data.name === name);
      amounts[1].root.hidden = !toy;
      amounts[0].root.hidden = !toy;
      for (const one of [...amounts, ...reading]) one.set(state[one.key] ?? "");
      for (const one of reading) one.root.hidden = !isAbout(one.key, found?.kind ?? "");
      put(splits, found ? parted(found.splits) : "");
      if (!asked) tell(found?.notes ?? []);
      return choices.data.find((data) => data.name === name)?.title ?? name;
    },
  };
}

/** @param {Uploaded | undefined} found @returns {string[]} the names of its columns */
function namesOf(found) {
  return (found?.columns ?? []).map((column) => (typeof column === "string" ? column : column.name));
}

/**
 * A toy with its drawing, as one of several to choose from.
 * @param {import("./settings.js").DataChoice} toy @param {() => void} chosen
 */
function card(toy, chosen) {
  const input = html("input", { type: "radio", name: "toy", value: toy.name });
  input.addEventListener("change", chosen);
  const name = html("span", {}, toy.name.replaceAll("_", " "));
  return { input, root: html("label", { class: "card", title: toy.title }, input, stamp(toy.name), name) };
}
