// Dialog with a link and a command that restore the state of the page, optionally with hidden controls.

import { html } from "../draw/dom.js";
import { formatState } from "./state.js";
import { settingLabel } from "./labels.js";

const PART_LABELS = {
  play: "Play, step, reset", back: "History", toys: "Toys", sets: "Data sets", upload: "File upload",
  weights: "Weight editor", views: "View selection", compare: "Compare", curve: "Loss curve",
  metrics: "Metrics", save: "Save", tour: "Tour", try: "Try it yourself",
}; // prettier-ignore

/** Return the keys of the parts and settings that can be hidden. */
function hideableControls() {
  const found = [...document.querySelectorAll("[data-control]")];
  const names = new Set(found.map((element) => String(element.getAttribute("data-control"))));
  return [...names].filter((key) => key !== "share" && key !== "example");
}

/**
 * @param {HTMLElement} root @param {() => import("./state.js").State} state
 * @param {string | null} run folder of the opened run, if any
 */
export function shareDialog(root, state, run) {
  const openButton = html("button", { type: "button", "aria-haspopup": "dialog", "data-control": "share" }, "Share");
  const address = html("input", { type: "text", readonly: "", "aria-label": "Link" });
  const copyButton = html("button", { type: "button", class: "plain" }, "Copy link");
  const command = html("input", { type: "text", readonly: "", "aria-label": "Command that opens it" });
  const copyCommandButton = html("button", { type: "button", class: "plain" }, "Copy command");
  const checkboxes = html("div", { class: "chips" });
  const closeButton = html("button", { type: "button" }, "Done");
  const dialog = html(
    "dialog",
    { class: "share", "aria-labelledby": "share-title" },
    html("h2", { id: "share-title" }, "Share this state"),
    html("p", {}, "The link contains the data, the models, all settings and the seed. Opening it repeats the training up to the same step."),
    html("p", { class: "of" }, "On this machine, while the studio is running"),
    html("div", { class: "address" }, address, copyButton),
    html("p", { class: "of" }, "Elsewhere or later: a command that opens the same state"),
    html("div", { class: "address" }, command, copyCommandButton),
    html("fieldset", {}, html("legend", {}, "Hide from the page"), checkboxes),
    closeButton,
  );
  document.body.append(dialog);
  root.append(openButton);

  const link = () => {
    const hidden = [...checkboxes.querySelectorAll("input")].filter((box) => box.checked).map((box) => box.value);
    const now = state();
    const page = { ...now.page, hide: hidden.join(",") };
    return `${location.href.split("#")[0]}#${formatState({ ...now, page })}`;
  };
  const show = () => {
    address.value = link();
    command.value = studioCommand(address.value.slice(address.value.indexOf("#") + 1), run);
  };
  checkboxes.addEventListener("change", show);
  openButton.addEventListener("click", () => {
    const hidden = (state().page.hide ?? "").split(",");
    checkboxes.replaceChildren(
      ...hideableControls().map((key) => {
        const box = html("input", { type: "checkbox", value: key, checked: hidden.includes(key) ? "" : null });
        return html("label", {}, box, html("span", {}, PART_LABELS[/** @type {keyof typeof PART_LABELS} */ (key)] ?? settingLabel(key)));
      }),
    );
    copyButton.textContent = "Copy link";
    copyCommandButton.textContent = "Copy command";
    show();
    dialog.showModal();
  });
  copyOnClick(copyButton, address);
  copyOnClick(copyCommandButton, command);
  closeButton.addEventListener("click", () => dialog.close());
}

/**
 * Copy the text of a field when a button is pressed.
 * @param {HTMLButtonElement} button @param {HTMLInputElement | HTMLTextAreaElement} field
 */
export function copyOnClick(button, field) {
  button.addEventListener("click", async () => {
    field.select();
    try {
      await navigator.clipboard.writeText(field.value);
    } catch {
      document.execCommand("copy"); // fallback where the clipboard API is not allowed
    }
    button.textContent = "Copied";
  });
}

/**
 * Return the command that opens a state in a new studio. It does not contain the token.
 * @param {string} hash without its # @param {string | null} run
 */
export function studioCommand(hash, run) {
  const quote = (/** @type {string} */ text) => `'${text.replaceAll("'", `'"'"'`)}'`;
  return ["cutaway studio", ...(run ? [quote(run)] : []), quote(`#${hash}`)].join(" ");
}
