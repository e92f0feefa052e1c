// The link that brings back what is on the screen, with or without some of its controls.

import { html } from "../draw/dom.js";
import { write } from "./state.js";
import { named } from "./words.js";

const PARTS = {
  play: "Play, step, reset", back: "Looking back", toys: "Toys", sets: "Data sets", upload: "Own files",
  weights: "Weights by hand", views: "Choice of views", compare: "Compare", curve: "Curve of the loss",
  metrics: "Metrics", save: "Save", tour: "Tour", try: "Try it yourself",
}; // prettier-ignore

/** What of the page may be hidden: its parts, then each setting that it shows. */
function hideable() {
  const found = [...document.querySelectorAll("[data-control]")];
  const names = new Set(found.map((element) => String(element.getAttribute("data-control"))));
  return [...names].filter((key) => key !== "share" && key !== "example");
}

/**
 * @param {HTMLElement} root @param {() => import("./state.js").State} state
 * @param {string | null} run the folder of the run that was opened, if one was
 */
export function sharing(root, state, run) {
  const open = html("button", { type: "button", "aria-haspopup": "dialog", "data-control": "share" }, "Share");
  const address = html("input", { type: "text", readonly: "", "aria-label": "The link" });
  const copy = html("button", { type: "button", class: "plain" }, "Copy link");
  const command = html("input", { type: "text", readonly: "", "aria-label": "The command that opens it" });
  const copyCommand = html("button", { type: "button", class: "plain" }, "Copy command");
  const boxes = html("div", { class: "chips" });
  const close = html("button", { type: "button" }, "Done");
  const dialog = html(
    "dialog",
    { class: "share", "aria-labelledby": "share-title" },
    html("h2", { id: "share-title" }, "A link to this"),
    html("p", {}, "It holds the data, the models, all settings and the seed: opened, it trains again to the same step."),
    html("p", { class: "of" }, "On this machine, while this studio runs"),
    html("div", { class: "address" }, address, copy),
    html("p", { class: "of" }, "Anywhere else, and later: a command that opens the same"),
    html("div", { class: "address" }, command, copyCommand),
    html("fieldset", {}, html("legend", {}, "Leave out of what it shows"), boxes),
    close,
  );
  document.body.append(dialog);
  root.append(open);

  const link = () => {
    const hidden = [...boxes.querySelectorAll("input")].filter((box) => box.checked).map((box) => box.value);
    const now = state();
    const page = { ...now.page, hide: hidden.join(",") };
    return `${location.href.split("#")[0]}#${write({ ...now, page })}`;
  };
  const show = () => {
    address.value = link();
    command.value = commandFor(address.value.slice(address.value.indexOf("#") + 1), run);
  };
  boxes.addEventListener("change", show);
  open.addEventListener("click", () => {
    const hidden = (state().page.hide ?? "").split(",");
    boxes.replaceChildren(
      ...hideable().map((key) => {
        const box = html("input", { type: "checkbox", value: key, checked: hidden.includes(key) ? "" : null });
        return html("label", {}, box, html("span", {}, PARTS[/** @type {keyof typeof PARTS} */ (key)] ?? named(key)));
      }),
    );
    copy.textContent = "Copy link";
    copyCommand.textContent = "Copy command";
    show();
    dialog.showModal();
  });
  copies(copy, address);
  copies(copyCommand, command);
  close.addEventListener("click", () => dialog.close());
}

/**
 * A button that copies what stands in a field.
 * @param {HTMLButtonElement} button @param {HTMLInputElement | HTMLTextAreaElement} field
 */
export function copies(button, field) {
  button.addEventListener("click", async () => {
    field.select();
    try {
      await navigator.clipboard.writeText(field.value);
    } catch {
      document.execCommand("copy"); // where a page may not write to the clipboard by itself
    }
    button.textContent = "Copied";
  });
}

/**
 * The command that opens a state in a studio of its own. Its token is no part of it.
 * @param {string} hash without its # @param {string | null} run
 */
export function commandFor(hash, run) {
  const quoted = (/** @type {string} */ text) => `'${text.replaceAll("'", `'"'"'`)}'`;
  return ["cutaway studio", ...(run ? [quoted(run)] : []), quoted(`#${hash}`)].join(" ");
}
