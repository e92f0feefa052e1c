// Dialog that saves the trained model as a run and shows the equivalent command and Python code.

import { html } from "../draw/dom.js";
import { errorMessage } from "./controls.js";
import { copyOnClick } from "./share.js";

/**
 * @param {HTMLElement} root @param {(write: boolean) => Promise<Record<string, any>>} requestRun request for the selected side
 */
export function saveDialog(root, requestRun) {
  const openButton = html("button", { type: "button", "aria-haspopup": "dialog", "data-control": "save" }, "Save");
  const saveButton = html("button", { type: "button", class: "plain" }, "Save as a run");
  const savedMessage = html("div", { class: "saved", "aria-live": "polite" });
  const errorField = errorMessage();
  const hint = html("p", { class: "hint" });
  const command = html("textarea", { readonly: "", rows: 3, spellcheck: "false", "aria-label": "Command" });
  const python = html("textarea", { readonly: "", rows: 8, spellcheck: "false", "aria-label": "Python code" });
  const [copyCommand, copyPython] = ["Copy command", "Copy Python"].map((name) =>
    html("button", { type: "button", class: "plain" }, name),
  );
  const pythonSection = html("div", {}, html("p", { class: "of" }, "Python"), python, copyPython);
  const closeButton = html("button", { type: "button" }, "Done");
  const dialog = html(
    "dialog",
    { class: "share keep", "aria-labelledby": "keep-title" },
    html("h2", { id: "keep-title" }, "Save the trained model"),
    html("p", {}, "A run is a folder with the weights, the preprocessing, the metrics and a report. It remains after the studio is closed."),
    saveButton,
    savedMessage,
    errorField,
    html("p", { class: "of" }, "Command line"),
    command,
    copyCommand,
    pythonSection,
    hint,
    closeButton,
  );
  document.body.append(dialog);
  root.append(openButton);
  copyOnClick(copyCommand, command);
  copyOnClick(copyPython, python);

  /** @param {boolean} write */
  async function update(write) {
    saveButton.disabled = true;
    errorField.show("");
    if (write) savedMessage.replaceChildren("Saving …");
    try {
      const run = await requestRun(write);
      command.value = run.command;
      python.value = run.python;
      python.rows = Math.min(16, run.python.split("\n").length);
      pythonSection.hidden = run.python === "";
      hint.textContent = run.says;
      savedMessage.replaceChildren(...(run.folder ? nextCommands(run.folder) : []));
    } catch (error) {
      savedMessage.replaceChildren();
      errorField.show(error instanceof Error ? error.message : String(error));
    }
    saveButton.disabled = false;
  }
  saveButton.addEventListener("click", () => update(true));
  openButton.addEventListener("click", () => {
    copyCommand.textContent = "Copy command";
    copyPython.textContent = "Copy Python";
    savedMessage.replaceChildren();
    dialog.showModal();
    update(false);
  });
  closeButton.addEventListener("click", () => dialog.close());
}

/** @param {string} folder */
function nextCommands(folder) {
  const lines = ["evaluate", "predict", "inspect"].map((name) => `cutaway ${name} ${folder}${name === "predict" ? " INPUT" : ""}`);
  return [html("p", {}, "Saved: ", html("strong", {}, folder)), html("pre", {}, lines.join("\n"))];
}
