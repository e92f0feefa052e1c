// One view: its title, its sentence, what there is to see in words, its drawings, its numbers.

import { html } from "./dom.js";
import { explore } from "./explore.js";
import { exportButtons } from "./export.js";
import { figure } from "./figure.js";
import { gallery } from "./gallery.js";
import { heat } from "./heat.js";
import { histogram } from "./histogram.js";
import { lines } from "./lines.js";
import { points } from "./points.js";
import { prose } from "./prose.js";
import { rows } from "./rows.js";
import { shares } from "./shares.js";
import { drawTable } from "./table.js";

// The kinds of drawing. Each is a pure function of its description and a width, and gives what to show and to explore.
/**
 * @typedef {{ kind: string, title: string } & Record<string, any>} Drawing
 * @typedef {{ id: string, title: string, says: string, summary: string, drawings: Drawing[],
 *   table: import("./table.js").Table }} View
 * @type {Record<string, (spec: any, width: number) => import("./explore.js").Drawn>}
 */
const KINDS = { figure, gallery, heat, histogram, lines, points, rows, shares };

/**
 * The view as a section of a page.
 * @param {View} view @param {"h1" | "h2"} [level]
 */
export function drawView(view, level = "h2") {
  const { id, title, says, summary, drawings, table } = view;
  const figures = drawings.filter((spec) => spec.kind !== "prose").map((spec) => drawDrawing(spec, `${id}-summary`));
  const words = drawings.filter((spec) => spec.kind === "prose").map(prose);
  return html(
    "section",
    { id, class: "view", "aria-labelledby": `${id}-title` },
    html(
      "header",
      {},
      html(level, { id: `${id}-title` }, title),
      html("p", { class: "says" }, says),
      html("p", { class: "summary", id: `${id}-summary` }, summary),
    ),
    html(
      "div",
      { class: "body" },
      figures.length > 0 ? html("div", { class: "figures" }, ...figures) : null,
      ...words,
      numbers(table, title),
    ),
  );
}

/**
 * A drawing that follows the width of its place, with its buttons.
 * @param {Drawing} spec @param {string} summary id of the words that describe it
 */
function drawDrawing(spec, summary) {
  const draw = KINDS[spec.kind];
  const stage = html("div", {
    class: "stage",
    tabindex: 0,
    role: "application",
    "aria-roledescription": "drawing",
    "aria-label": `${spec.title}. Arrow keys move through its values.`,
    "aria-describedby": summary,
  });
  const shown = explore(stage);
  /** @type {SVGSVGElement} */
  let current;
  function redraw() {
    const width = Math.floor(stage.clientWidth);
    if (width === 0 || current?.getAttribute("width") === String(width)) return;
    const drawn = draw(spec, width);
    current = drawn.svg;
    stage.replaceChildren(current);
    shown(drawn);
  }
  // In the next frame: a drawing changes the height of what is observed, which within the callback is an error.
  new ResizeObserver(() => requestAnimationFrame(redraw)).observe(stage);
  return html("figure", { class: spec.kind }, stage, exportButtons(() => current, spec.title));
}

/**
 * The numbers of the view, folded away.
 * @param {import("./table.js").Table} table @param {string} title
 */
function numbers(table, title) {
  const scroll = { class: "scroll", tabindex: 0, role: "group", "aria-label": `Table: ${title}` };
  return html("details", {}, html("summary", {}, "Numbers"), html("div", scroll, drawTable(table, title)));
}
