// Export of a drawing as an SVG or PNG file, with its colours on the page.

import { html, svg } from "./dom.js";

const STYLE_PROPERTIES = [
  "fill", "fill-opacity", "stroke", "stroke-width", "stroke-opacity", "stroke-dasharray", "stroke-linecap",
  "stroke-linejoin", "font-family", "font-size", "font-weight", "font-style", "image-rendering", "opacity",
]; // prettier-ignore

const MARGIN = 16; // pixels around a saved drawing

/**
 * Return buttons that save the drawing returned by `current` as SVG and as PNG.
 * @param {() => SVGSVGElement} current @param {string} title
 */
export function exportButtons(current, title) {
  const name = title.toLowerCase().replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-|-$/g, "") || "drawing";
  const svgButton = html("button", { type: "button", "aria-label": `Save ${title} as SVG` }, "SVG");
  const pngButton = html("button", { type: "button", "aria-label": `Save ${title} as PNG` }, "PNG");
  svgButton.addEventListener("click", () => {
    save(new Blob([standaloneSvg(current())], { type: "image/svg+xml" }), `${name}.svg`);
  });
  pngButton.addEventListener("click", async () => save(await renderPng(current()), `${name}.png`));
  return html("div", { class: "exports" }, svgButton, pngButton);
}

/**
 * Return the drawing as SVG text without a style sheet: computed styles become attributes.
 * @param {SVGSVGElement} drawing
 */
export function standaloneSvg(drawing) {
  const copy = /** @type {SVGSVGElement} */ (drawing.cloneNode(true));
  const [from, to] = [drawing, copy].map((root) => [root, ...root.querySelectorAll("*")]);
  from.forEach((element, i) => {
    const style = getComputedStyle(element);
    const inherited = i > 0 && element.parentElement ? getComputedStyle(element.parentElement) : null;
    for (const name of STYLE_PROPERTIES) {
      const value = style.getPropertyValue(name);
      if (value !== inherited?.getPropertyValue(name)) to[i].setAttribute(name, value);
    }
    for (const name of ["class", "style", "aria-hidden"]) to[i].removeAttribute(name);
  });
  const [width, height] = ["width", "height"].map((side) => Number(drawing.getAttribute(side)) + 2 * MARGIN);
  const background = { x: -MARGIN, y: -MARGIN, width, height, fill: getComputedStyle(document.body).backgroundColor };
  copy.prepend(svg("rect", background));
  for (const [name, value] of Object.entries({ width, height, viewBox: `${-MARGIN} ${-MARGIN} ${width} ${height}` })) {
    copy.setAttribute(name, String(value));
  }
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  return new XMLSerializer().serializeToString(copy);
}

/**
 * Render the drawing as a PNG of twice its size in pixels.
 * @param {SVGSVGElement} drawing @returns {Promise<Blob>}
 */
async function renderPng(drawing) {
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(standaloneSvg(drawing))}`;
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
