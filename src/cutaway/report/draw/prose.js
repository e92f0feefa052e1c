// What is said in words: sentences, terms with their values, a command to copy, a table to show.

import { html } from "./dom.js";
import { drawTable } from "./table.js";

/**
 * @typedef {string | { words: string, link: string }} Value
 * @typedef {{ title?: string, sentences?: string[], facts?: [string, Value][], command?: string,
 *   table?: import("./table.js").Table }} Prose
 */

/** @param {Prose} spec */
export function prose({ title, sentences, facts, command, table }) {
  const terms = (facts ?? []).flatMap(([term, value]) => [html("dt", {}, term), html("dd", {}, said(value))]);
  const scroll = { class: "scroll", tabindex: 0, role: "group", "aria-label": title ?? "Table" };
  return html(
    "div",
    { class: "prose" },
    title ? html("h3", {}, title) : null,
    ...(sentences ?? []).map((sentence) => html("p", {}, sentence)),
    facts ? html("dl", {}, ...terms) : null,
    command ? commandLine(command) : null,
    table ? html("div", scroll, drawTable(table, title ?? "")) : null,
  );
}

/**
 * A value in words; a link only where it leads to a web page.
 * @param {Value} value
 */
function said(value) {
  if (typeof value === "string") return value;
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
