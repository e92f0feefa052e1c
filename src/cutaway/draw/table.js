// The numbers of a view as an HTML table.

import { html } from "./dom.js";
import { formatValue } from "./format.js";

/**
 * @typedef {{ name: string, format: string }} Column
 * @typedef {{ columns: Column[], rows: unknown[][] }} Table
 */

/**
 * @param {Table} table @param {string} caption for screen readers
 */
export function drawTable({ columns, rows }, caption) {
  const align = columns.map(({ format }) => (format === "text" ? "words" : "number"));
  return html(
    "table",
    {},
    html("caption", { class: "unseen" }, caption),
    html("thead", {}, html("tr", {}, ...columns.map((c, k) => html("th", { scope: "col", class: align[k] }, c.name)))),
    html(
      "tbody",
      {},
      ...rows.map((row) =>
        html("tr", {}, ...columns.map((c, k) => html("td", { class: align[k] }, formatValue(row[k], c.format)))),
      ),
    ),
  );
}
