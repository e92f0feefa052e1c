// A page of views, rendered from its description.

import { html } from "./dom.js";
import { drawView } from "./view.js";

/** @typedef {{ title: string, views: import("./view.js").View[], colophon: string }} Page */

/**
 * Draw a page into `root`; the first view is its header.
 * @param {HTMLElement} root @param {Page} page
 */
export function drawPage(root, { views: [head, ...views], colophon }) {
  const links = views.map((view) => html("a", { href: `#${view.id}` }, view.title));
  root.append(
    drawView(head, "h1"),
    html("nav", { "aria-label": "Views" }, ...links),
    ...views.map((view) => drawView(view)),
    html("footer", {}, colophon),
  );
}
