// The link that brings back what is on the screen, with or without some of its controls.

import { html } from "../draw/dom.js";
import { write } from "./state.js";
import { named } from "./words.js";

const PARTS = {
  play: "Play, step, reset", back: "Looking back", toys: "Toys", sets: "Data sets", upload: "Own files",
  weights: "Weights by hand", views: "Choice of views", compare: "Compare", curve: "Curve of the loss",
  figures: "Figures",
}; // prettier-ignore

/** What of the page may be hidden: its parts, then each setting that it shows. */
function hideable() {
  const found = [...document.querySelectorAll("[data-control]")];
  const names = new Set(found.map((element) => String(element.getAttribute("data-control"))));
  return [...names].filter((key) => key !== "share" && key !== "example");
}

/**
 * @param {HTMLElement} root @param {() => import("./state.js").State} state
 */
export function sharing(root, state) {
  const open = html("button", { type: "button", "aria-haspopup": "dialog", "data-control": "share" }, "Share");
  const address = html("input", { type: "text", readonly: "", "aria-label": "The link" });
  const copy = html("button", { type: "button", class: "plain" }, "Copy link");
  const boxes = html("div", { class: "chips" });
  const close = html("button", { type: "button" }, "Done");
  const dialog = html(
    "dialog",
    { class: "share", "aria-labelledby": "share-title" },
    html("h2", { id: "share-title" }, "A link to this"),
    html("p", {}, "It holds the data, the models, all settings and the seed: opened, it trains again to the same step."),
    html("div", { class: "address" }, address, copy),
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
  const show = () => (address.value = link());
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
    show();
    dialog.showModal();
  });
  copy.addEventListener("click", async () => {
    address.select();
    try {
      await navigator.clipboard.writeText(address.value);
      copy.textContent = "Copied";
    } catch {
      document.execCommand("copy"); // where a page may not write to the clipboard by itself
    }
  });
  close.addEventListener("click", () => dialog.close());
}
