// A drawing as a file of its own, with the colours that it has on the page.

import { html, svg } from "./dom.js";

const KEPT = [
  "fill", "fill-opacity", "stroke", "stroke-width", "stroke-opacity", "stroke-dasharray", "stroke-linecap",
  "stroke-linejoin", "font-family", "font-size", "font-weight", "font-style", "image-rendering", "opacity",
]; // prettier-ignore

const EDGE = 16; // pixels of ground around a saved drawing

/**
 * Buttons that save what `current` gives as SVG and as PNG.
 * @param {() => SVGSVGElement} current @param {string} title
 */
export function exportButtons(current, title) {
  const name = title.toLowerCase().replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-|-$/g, "") || "drawing";
  const svgButton = html("button", { type: "button", "aria-label": `Save ${title} as SVG` }, "SVG");
  const pngButton = html("button", { type: "button", "aria-label": `Save ${title} as PNG` }, "PNG");
  svgButton.addEventListener("click", () => {
    save(new Blob([standalone(current())], { type: "image/svg+xml" }), `${name}.svg`);
  });
  pngButton.addEventListener("click", async () => save(await rasterised(current()), `${name}.png`));
  return html("div", { class: "exports" }, svgButton, pngButton);
}

/**
 * The drawing as text that needs no style sheet: computed colours and fonts are written on its elements.
 * @param {SVGSVGElement} drawing
 */
export function standalone(drawing) {
  const copy = /** @type {SVGSVGElement} */ (drawing.cloneNode(true));
  const [from, to] = [drawing, copy].map((root) => [root, ...root.querySelectorAll("*")]);
  from.forEach((element, i) => {
    const style = getComputedStyle(element);
    const inherited = i > 0 && element.parentElement ? getComputedStyle(element.parentElement) : null;
    for (const name of KEPT) {
      const value = style.getPropertyValue(name);
      if (value !== inherited?.getPropertyValue(name)) to[i].setAttribute(name, value);
    }
    for (const name of ["class", "style", "aria-hidden"]) to[i].removeAttribute(name);
  });
  const [width, height] = ["width", "height"].map((side) => Number(drawing.getAttribute(side)) + 2 * EDGE);
  const ground = { x: -EDGE, y: -EDGE, width, height, fill: getComputedStyle(document.body).backgroundColor };
  copy.prepend(svg("rect", ground));
  for (const [name, value] of Object.entries({ width, height, viewBox: `${-EDGE} ${-EDGE} ${width} ${height}` })) {
    copy.setAttribute(name, String(value));
  }
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  return new XMLSerializer().serializeToString(copy);
}

/**
 * The drawing as a PNG of twice its size in pixels.
 * @param {SVGSVGElement} drawing @returns {Promise<Blob>}
 */
async function rasterised(drawing) {
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(standalone(drawing))}`;
  await image.decode();
  const surface = html("canvas", { width: 2 * image.naturalWidth, height: 2 * image.naturalHeight });
  surface.getContext("2d")?.drawImage(image, 0, 0, surface.width, surface.height);
  return new Promise((resolve, reject) => {
    surface.toBlob((blob) => (blob ? resolve(blob) : reject(new Error("the drawing is too large"))));
  });
}

/** @param {Blob} blob @param {string} name */
function save(blob, name) {
  const link = html("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  URL.revokeObjectURL(link.href);
}
