// Panel of the data: toy data sets, named data sets, file upload and data settings.

import { html } from "../draw/dom.js";
import { selectField, control, errorMessage } from "./controls.js";
import { collapsible } from "./model.js";
import { setText } from "./player.js";
import { RequestError, upload } from "./server.js";
import { appliesTo, readingSettings, setting } from "./settings.js";
import { thumbnail } from "./toys.js";
import { splitSizes } from "./labels.js";

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
 * @param {(key: string, value: string) => void} onChange
 */
export function dataPanel(root, choices, onChange) {
  /** @type {Map<string, Uploaded>} */
  const uploads = new Map();
  const toys = choices.data.filter((data) => data.toy);
  const dataSets = choices.data.filter((data) => !data.toy);
  const cards = toys.map((toy) => card(toy, () => onChange("data", toy.name)));
  const errorField = errorMessage();
  const fileError = errorMessage(); // of an uploaded file
  const fieldset = html(
    "fieldset",
    { class: "field toys", "data-control": "toys" },
    html("legend", {}, "Toys"),
    html("div", { class: "cards" }, ...cards.map(({ root: label }) => label)),
  );
  const known = dataSets.map(({ name, title, kind, here }) => ({
    value: name,
    name: here ? title : `${title} (not on this machine)`,
    group: KINDS[/** @type {keyof typeof KINDS} */ (kind)] ?? kind,
    here,
  }));
  const pick = { value: "", name: "Choose …" };
  const sets = selectField({ key: "sets", default: "", says: "", label: "Data sets" }, [pick, ...known], (_, name) => {
    if (name) onChange("data", name);
  });
  const target = selectField({ key: "target", default: "", says: "" }, [], onChange);
  const notes = html("ul", { class: "notes" });
  const amountFields = [
    control(setting(choices, "count", { type: "int", default: 200, low: 10, high: 100000 }), onChange),
    control(setting(choices, "noise", { type: "float", default: "", low: 0, high: 0.5 }), onChange),
    control(setting(choices, "seed", { type: "int", default: 0, low: 0 }), onChange),
  ];
  const readingFields = readingSettings(choices).map((one) => control(one, onChange));
  const splits = html("p", { class: "hint" });
  root.append(fieldset, sets.root, errorField, filePicker(), target.root, notes, splits);
  root.append(...amountFields.map((one) => one.root), ...collapsible("Reading options", readingFields));
  const uploadControl = { ...sets, key: "upload", set() {}, showError: fileError.show };
  const controls = [{ ...sets, showError: errorField.show, key: "data" }, uploadControl, target, ...amountFields, ...readingFields];

  /** Return a file picker that also accepts dropped files. */
  function filePicker() {
    const input = html("input", { type: "file", id: "own-file", accept: ".csv,.tsv,.txt,.parquet" });
    const label = html("label", { for: "own-file" }, "Your own file");
    const kinds = "A table or text: .csv, .tsv, .txt or .parquet. Drop it here or choose it. It stays on this machine.";
    const help = html("p", { class: "hint" }, kinds);
    const place = html("div", { class: "field drop", "data-control": "upload" }, label, input, help, fileError);
    /** @param {File | null | undefined} file */
    async function readFile(file) {
      if (!file) return;
      fileError.show("");
      help.textContent = `Reading ${file.name} …`;
      try {
        const found = /** @type {Uploaded} */ (await upload(file));
        help.textContent = `${file.name} was read.`;
        uploads.set(found.data, found);
        showTargets(found);
        const columns = columnNames(found);
        if (found.kind !== "table" || columns.length === 0) onChange("data", found.data);
        else target.root.querySelector("select")?.focus(); // a table also needs a target
      } catch (error) {
        if (!(error instanceof RequestError)) throw error;
        help.textContent = "Choose another file, or correct this one.";
        fileError.show(error.message);
      }
    }
    input.addEventListener("change", () => readFile(input.files?.[0]));
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
      readFile(event.dataTransfer?.files[0]);
    });
    return place;
  }

  /** @type {Uploaded | null} */
  let pendingUpload = null; // an uploaded table without a target

  /** @param {Uploaded} found */
  function showTargets(found) {
    const columns = columnNames(found);
    showNotes(found.notes ?? []);
    if (columns.length === 0) return;
    pendingUpload = found;
    const options = columns.map((name) => ({ value: name, name }));
    target.limit([{ value: "", name: "Choose …" }, ...options]);
    target.root.hidden = false;
  }

  /** @param {string[]} texts */
  function showNotes(texts) {
    if (notes.dataset.text === texts.join("\n")) return;
    notes.dataset.text = texts.join("\n");
    notes.replaceChildren(...texts.map((note) => html("li", {}, note)));
  }

  return {
    controls,
    /** @param {string} name of a data set @returns {import("./settings.js").DataChoice | undefined} its description */
    choice: (name) => uploads.get(name) ?? choices.data.find((data) => data.name === name),
    /** @returns {Uploaded | null} the uploaded table that still needs a target */
    pending: () => pendingUpload,
    clearPending: () => (pendingUpload = null),
    /** @param {Record<string, string>} state @param {import("./labels.js").Frame["data"]} [found] data as read by the server */
    show(state, found) {
      const name = state.data ?? "";
      cards.forEach(({ input }, i) => {
        if (input.checked !== (toys[i].name === name)) input.checked = toys[i].name === name;
      });
      const listed = choices.data.some((data) => data.name === name);
      sets.limit([pick, ...known, ...(listed || !name ? [] : [{ value: name, name, group: "Opened" }])]);
      sets.set(dataSets.some((data) => data.name === name) || !listed ? name : "");
      const columns = columnNames(uploads.get(name));
      if (!pendingUpload) {
        if (columns.length > 0) target.limit(columns.map((column) => ({ value: column, name: column })));
        else if (state.target) target.limit([{ value: state.target, name: state.target }]);
        target.root.hidden = columns.length === 0 && !state.target;
        target.set(state.target ?? "");
      }
      const toy = toys.some((data) => data.name === name);
      amountFields[1].root.hidden = !toy;
      amountFields[0].root.hidden = !toy;
      for (const one of [...amountFields, ...readingFields]) one.set(state[one.key] ?? "");
      for (const one of readingFields) one.root.hidden = !appliesTo(one.key, found?.kind ?? "");
      setText(splits, found ? splitSizes(found.splits) : "");
      if (!pendingUpload) showNotes(found?.notes ?? []);
      return choices.data.find((data) => data.name === name)?.title ?? name;
    },
  };
}

/** @param {Uploaded | undefined} found @returns {string[]} its column names */
function columnNames(found) {
  return (found?.columns ?? []).map((column) => (typeof column === "string" ? column : column.name));
}

/**
 * Return the radio button of a toy data set, with its thumbnail.
 * @param {import("./settings.js").DataChoice} toy @param {() => void} onSelect
 */
function card(toy, onSelect) {
  const input = html("input", { type: "radio", name: "toy", value: toy.name });
  input.addEventListener("change", onSelect);
  const name = html("span", {}, toy.name.replaceAll("_", " "));
  return { input, root: html("label", { class: "card", title: toy.title }, input, thumbnail(toy.name), name) };
}
