// Text blocks: sentences, terms with values, a command with a copy button, a table that can be collapsed.

import { html } from "./dom.js";
import { drawTable } from "./table.js";

/**
 * @typedef {string | { words: string, link: string }} Value
 * @typedef {{ title?: string, sentences?: string[], facts?: [string, Value][], command?: string, verbatim?: boolean,
 *   table?: import("./table.js").Table, folded?: string }} Prose
 *   `verbatim`: keep line breaks of values; `folded`: summary of the collapsed table
 */

/** @param {Prose} spec */
export function prose({ title, sentences, facts, command, verbatim, table, folded }) {
  const terms = (facts ?? []).flatMap(([term, value]) => [html("dt", {}, term), html("dd", {}, renderValue(value))]);
  const scroll = { class: "scroll", tabindex: 0, role: "group", "aria-label": title ?? folded ?? "Table" };
  const tableElement = table ? html("div", scroll, drawTable(table, title ?? folded ?? "")) : null;
  return html(
    "div",
    { class: "prose" },
    title ? html("h3", {}, title) : null,
    ...(sentences ?? []).map((sentence) => html("p", {}, sentence)),
    facts ? html("dl", verbatim ? { class: "verbatim" } : {}, ...terms) : null,
    command ? commandLine(command) : null,
    tableElement && folded ? html("details", { class: "numbers" }, html("summary", {}, folded), tableElement) : tableElement,
  );
}

const SAME_FOLDER_PAGE = /^[\w-]+\.html$/; // a page in the same folder

/**
 * Render a value; links are only made to https:// pages and to pages in the same folder.
 * @param {Value} value
 */
function renderValue(value) {
  if (typeof value === "string") return value;
  if (SAME_FOLDER_PAGE.test(value.link)) return html("a", { href: value.link }, value.words);
  if (!value.link.startsWith("https://")) return `${value.words} ${value.link}`;
  return html("a", { href: value.link, rel: "noreferrer" }, value.words);
}

/**
 * Return a command with a copy button; where the clipboard is not available, the button selects the command.
 * @param {string} command
 */
function commandLine(command) {
  const code = html("code", {}, command);
  const button = html("button", { type: "button" }, "Copy");
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(command);
      button.textContent = "Copied";
    } catch {
      getSelection()?.selectAllChildren(code);
    }
  });
  return html("div", { class: "command" }, code, button);
}
