// What is said in words: sentences, terms with their values, a command to copy, a table to show, which can be folded.

import { html } from "./dom.js";
import { drawTable } from "./table.js";

/**
 * @typedef {string | { words: string, link: string }} Value
 * @typedef {{ title?: string, sentences?: string[], facts?: [string, Value][], command?: string, verbatim?: boolean,
 *   table?: import("./table.js").Table, folded?: string }} Prose
 *   `verbatim`: line ends of values are kept; `folded`: what stands in the table's place until it is asked for
 */

/** @param {Prose} spec */
export function prose({ title, sentences, facts, command, verbatim, table, folded }) {
  const terms = (facts ?? []).flatMap(([term, value]) => [html("dt", {}, term), html("dd", {}, said(value))]);
  const scroll = { class: "scroll", tabindex: 0, role: "group", "aria-label": title ?? folded ?? "Table" };
  const shown = table ? html("div", scroll, drawTable(table, title ?? folded ?? "")) : null;
  return html(
    "div",
    { class: "prose" },
    title ? html("h3", {}, title) : null,
    ...(sentences ?? []).map((sentence) => html("p", {}, sentence)),
    facts ? html("dl", verbatim ? { class: "verbatim" } : {}, ...terms) : null,
    command ? commandLine(command) : null,
    shown && folded ? html("details", { class: "numbers" }, html("summary", {}, folded), shown) : shown,
  );
}

const BESIDE = /^[\w-]+\.html$/; // a page in the same folder

/**
 * A value in words; a link only where it leads to a web page, or to a page beside this one.
 * @param {Value} value
 */
function said(value) {
  if (typeof value === "string") return value;
  if (BESIDE.test(value.link)) return html("a", { href: value.link }, value.words);
  if (!value.link.startsWith("https://")) return `${value.words} ${value.link}`;
  return html("a", { href: value.link, rel: "noreferrer" }, value.words);
}

/**
 * A command with a button that copies it, or selects it where the browser does not let a page copy.
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
