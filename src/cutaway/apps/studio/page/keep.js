// What was trained as a run like any other, and the command and the Python that train the same.

import { html } from "../draw/dom.js";
import { failing } from "./controls.js";
import { copies } from "./share.js";

/**
 * @param {HTMLElement} root @param {(write: boolean) => Promise<Record<string, any>>} ask for the side being set
 */
export function keeping(root, ask) {
  const open = html("button", { type: "button", "aria-haspopup": "dialog", "data-control": "save" }, "Save");
  const save = html("button", { type: "button", class: "plain" }, "Save as a run");
  const saved = html("div", { class: "saved", "aria-live": "polite" });
  const failed = failing();
  const says = html("p", { class: "hint" });
  const command = html("textarea", { readonly: "", rows: 3, spellcheck: "false", "aria-label": "The command" });
  const python = html("textarea", { readonly: "", rows: 8, spellcheck: "false", "aria-label": "The Python" });
  const [copyCommand, copyPython] = ["Copy command", "Copy Python"].map((name) =>
    html("button", { type: "button", class: "plain" }, name),
  );
  const inPython = html("div", {}, html("p", { class: "of" }, "In Python"), python, copyPython);
  const close = html("button", { type: "button" }, "Done");
  const dialog = html(
    "dialog",
    { class: "share keep", "aria-labelledby": "keep-title" },
    html("h2", { id: "keep-title" }, "Keep what was trained"),
    html("p", {}, "A run is a folder with the weights, the preprocessing, the metrics and a report. It stays when the studio ends."),
    save,
    saved,
    failed,
    html("p", { class: "of" }, "The same on the command line"),
    command,
    copyCommand,
    inPython,
    says,
    close,
  );
  document.body.append(dialog);
  root.append(open);
  copies(copyCommand, command);
  copies(copyPython, python);

  /** @param {boolean} write */
  async function show(write) {
    save.disabled = true;
    failed.say("");
    if (write) saved.replaceChildren("Saving …");
    try {
      const found = await ask(write);
      command.value = found.command;
      python.value = found.python;
      python.rows = Math.min(16, found.python.split("\n").length);
      inPython.hidden = found.python === "";
      says.textContent = found.says;
      saved.replaceChildren(...(found.folder ? whatNext(found.folder) : []));
    } catch (error) {
      saved.replaceChildren();
      failed.say(error instanceof Error ? error.message : String(error));
    }
    save.disabled = false;
  }
  save.addEventListener("click", () => show(true));
  open.addEventListener("click", () => {
    copyCommand.textContent = "Copy command";
    copyPython.textContent = "Copy Python";
    saved.replaceChildren();
    dialog.showModal();
    show(false);
  });
  close.addEventListener("click", () => dialog.close());
}

/** @param {string} folder */
function whatNext(folder) {
  const lines = ["evaluate", "predict", "inspect"].map((name) => `cutaway ${name} ${folder}${name === "predict" ? " INPUT" : ""}`);
  return [html("p", {}, "Saved: ", html("strong", {}, folder)), html("pre", {}, lines.join("\n"))];
}
