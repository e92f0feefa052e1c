// Something of one's own for the model as it stands: a text, a drawing, an image, the beginning of a text.

import { html } from "../draw/dom.js";
import { percent } from "../draw/format.js";
import { filled } from "../draw/view.js";
import { failing, throttled } from "./controls.js";
import { put } from "./player.js";

/**
 * @typedef {{ kind: "image" | "text" | "masked" | "next" | "pairs" | "problem", like?: string, dark?: boolean }} Way
 * @typedef {{ answers?: { name: string, probability?: number, score?: number }[], said?: string, column?: string,
 *   samples?: string[], prompt?: string, seen?: string, notes?: string[], error?: string,
 *   drawing?: import("../draw/view.js").Drawing }} Tried
 * @typedef {{ text?: string, temperature?: number, count?: number, image?: number }} Asked
 */

const SIDE = 280; // pixels of the canvas
const PEN = 22;
const ASKS = {
  text: "Type a text: what does the model say of it?", pairs: "Type a source: what does it become?",
  masked: "Type a text with [MASK] where a word is hidden", next: "The beginning of a text, to be gone on with",
  image: "Draw, or drop an image here", problem: "Type a problem: watch how the model solves it",
}; // prettier-ignore

/**
 * @param {{ asked: (given: Asked) => void, image: (blob: Blob) => Promise<Asked>,
 *   remembered: (page: Record<string, string>) => void }} told
 */
export function tryPanel(told) {
  const problem = failing();
  const area = html("textarea", { id: "try-text", rows: 3, maxlength: 5000, spellcheck: "false" });
  const label = html("label", { for: "try-text" });
  const heat = html("input", { type: "range", id: "try-heat", min: 0, max: 2, step: 0.05, value: 0.8 });
  const warm = html("output", { for: "try-heat" }, "0.8");
  const count = html("input", { type: "number", id: "try-count", min: 1, max: 200, step: 1, value: 60 });
  const sampling = html(
    "div",
    { class: "sampling" },
    html("label", { for: "try-heat", title: "Below 1 likely tokens become likelier; 0 takes the likeliest" }, "Temperature"),
    heat,
    warm,
    html("label", { for: "try-count" }, "Tokens"),
    count,
  );
  const written = html("div", { class: "field" }, label, area, sampling);
  const canvas = html("canvas", { width: SIDE, height: SIDE, role: "img", "aria-label": "A place to draw with a pointer" });
  const file = html("input", { type: "file", id: "try-file", accept: "image/*" });
  const clear = html("button", { type: "button", class: "plain" }, "Clear");
  const words = html("label", { for: "try-file" }, ASKS.image);
  const drawn = html("div", { class: "field drawing" }, words, canvas, html("div", { class: "buttons" }, clear, file));
  const results = html("div", { class: "tried" });
  const root = html(
    "details",
    { class: "try", "data-control": "try", open: "" },
    html("summary", {}, html("h3", {}, "Try it yourself")),
    html("div", { class: "trying" }, html("div", {}, written, drawn, problem), results),
  );
  root.hidden = true;
  /** @type {Way | null} */
  let way = null;
  let ground = "";

  // --- a text ---

  const given = () => ({
    text: area.value,
    ...(way?.kind === "next" ? { temperature: Number(heat.value), count: Math.round(Number(count.value)) || 60 } : {}),
  });
  const tell = throttled(() => {
    told.remembered({
      try: area.value,
      ...(way?.kind === "next" ? { temperature: heat.value, tokens: count.value } : {}),
    });
    told.asked(given());
  }, 250);
  for (const input of [area, heat, count]) input.addEventListener("input", () => tell(undefined));
  heat.addEventListener("input", () => put(warm, heat.value));

  // --- an image ---

  const pen = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  /** @param {boolean} dark */
  function wipe(dark) {
    ground = dark ? "#000" : "#fff";
    pen.fillStyle = ground;
    pen.fillRect(0, 0, SIDE, SIDE);
    pen.strokeStyle = dark ? "#fff" : "#000";
    pen.lineWidth = PEN;
    pen.lineCap = pen.lineJoin = "round";
  }
  const look = throttled(() => canvas.toBlob((blob) => blob && send(blob)), 150);
  /** @param {Blob} blob */
  async function send(blob) {
    problem.say("");
    try {
      told.asked(await told.image(blob));
    } catch (error) {
      problem.say(error instanceof Error ? error.message : String(error));
    }
  }
  /** @param {File | null | undefined} image */
  async function take(image) {
    if (!image) return;
    await send(image);
    const shown = await createImageBitmap(image).catch(() => null);
    if (!shown) return;
    wipe(way?.dark ?? false);
    const scale = Math.min(SIDE / shown.width, SIDE / shown.height);
    const [width, height] = [shown.width * scale, shown.height * scale];
    pen.drawImage(shown, (SIDE - width) / 2, (SIDE - height) / 2, width, height);
  }
  /** @param {PointerEvent} event @returns {[number, number]} */
  const place = (event) => {
    const box = canvas.getBoundingClientRect();
    return [((event.clientX - box.left) / box.width) * SIDE, ((event.clientY - box.top) / box.height) * SIDE];
  };
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    pen.beginPath();
    pen.moveTo(...place(event));
    pen.lineTo(...place(event));
    pen.stroke();
    look(undefined);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!canvas.hasPointerCapture(event.pointerId)) return;
    pen.lineTo(...place(event));
    pen.stroke();
    look(undefined);
  });
  clear.addEventListener("click", () => {
    wipe(way?.dark ?? false);
    file.value = "";
    told.asked({});
  });
  file.addEventListener("change", () => take(file.files?.[0]));
  for (const name of ["dragenter", "dragover"]) root.addEventListener(name, (event) => event.preventDefault());
  root.addEventListener("drop", (event) => {
    event.preventDefault();
    if (way?.kind === "image") take(event.dataTransfer?.files[0]);
  });

  return {
    root,
    control: { key: "try", root, set() {}, limit() {}, fail: problem.say },
    /** @param {Record<string, string>} page @returns {Asked | null} what is asked of a side that was just opened */
    wish(page) {
      if (way === null || way.kind === "image") return null;
      if (page.try !== undefined && page.try !== area.value) area.value = page.try;
      return way.kind === "next" || area.value.trim() ? given() : null;
    },
    /**
     * @param {[string, any][]} frames of the sides: what each is called, and its frame
     * @param {Record<string, string>} page
     * @returns {boolean} whether it is another kind of thing to try than before
     */
    show(frames, page) {
      const next = /** @type {Way | null} */ (frames[0][1].try ?? null);
      const anew = JSON.stringify(next) !== JSON.stringify(way);
      way = next;
      root.hidden = way === null;
      if (way === null) return anew;
      if (anew) {
        const image = way.kind === "image";
        written.hidden = image;
        drawn.hidden = !image;
        sampling.hidden = way.kind !== "next";
        root.classList.toggle("tall", way.kind === "problem");
        area.rows = way.kind === "problem" ? 1 : 3;
        put(label, ASKS[way.kind]);
        area.placeholder = way.like ?? "";
        area.value = page.try ?? "";
        if (page.temperature && Number.isFinite(Number(page.temperature))) heat.value = page.temperature;
        if (page.tokens && Number.isFinite(Number(page.tokens))) count.value = page.tokens;
        put(warm, heat.value);
        if (image) wipe(way.dark ?? false);
        results.replaceChildren();
        problem.say("");
      }
      if (results.childElementCount !== frames.length) {
        results.replaceChildren(...frames.map(() => html("div", { class: "answer" })));
      }
      frames.forEach(([name, frame], i) => answer(/** @type {HTMLElement} */ (results.children[i]), name, frame.tried));
      return anew;
    },
  };
}

/** @typedef {import("../draw/view.js").Drawing} Drawing */
/** @type {WeakMap<HTMLElement, { figure: HTMLElement, show: (drawings: Drawing[]) => void }>} */
const figures = new WeakMap();

/**
 * The place of a drawing beside what is said, which stays as it was left while the model learns on.
 * @param {HTMLElement} place @param {Drawing} drawing
 */
function figureOf(place, drawing) {
  let made = figures.get(place);
  if (!made) {
    const figure = html("div", { class: "figures" });
    figures.set(place, (made = { figure, show: filled(figure, "try-text") }));
  }
  made.show([drawing]);
  return made.figure;
}

/**
 * What a model says, drawn anew only where it says something else.
 * @param {HTMLElement} place @param {string} name of the model, where there are two @param {Tried | null} tried
 */
function answer(place, name, tried) {
  const now = JSON.stringify([name, tried]);
  if (place.dataset.now === now) return;
  place.dataset.now = now;
  const { answers = [], samples = [], notes = [] } = tried ?? {};
  const nothing = !tried || Object.keys(tried).length === 0;
  const said = tried?.said !== undefined && answers.length === 0 ? [html("p", { class: "said" }, tried.said || "–")] : [];
  const seen = tried?.seen
    ? [html("figure", {}, html("img", { src: tried.seen, alt: "" }), html("figcaption", {}, "What the model sees"))]
    : [];
  place.replaceChildren(
    ...(name ? [html("p", { class: "of" }, name)] : []),
    ...(nothing ? [html("p", { class: "hint" }, "The answer stands here, and changes as the model learns.")] : []),
    ...(tried?.error ? [html("p", { class: "failed" }, tried.error)] : []),
    ...seen,
    ...said,
    ...(answers.length > 0 ? [html("p", { class: "hint" }, heading(tried)), bars(answers)] : []),
    ...(samples.length > 0 ? [html("p", { class: "hint" }, samples.length > 1 ? "Samples" : "The likeliest text")] : []),
    ...samples.map((text) => html("blockquote", {}, html("span", { class: "prompt" }, tried?.prompt ?? ""), text)),
    ...notes.map((note) => html("p", { class: "hint" }, note)),
    ...(tried?.drawing ? [figureOf(place, tried.drawing)] : []),
  );
}

/** @param {Tried | null} tried */
function heading(tried) {
  if (tried?.samples) return "Next token";
  return tried?.column ? `Prediction: ${tried.column}` : "In the first gap";
}

/** @param {{ name: string, probability?: number, score?: number }[]} answers the likeliest first */
function bars(answers) {
  const largest = Math.max(...answers.map(({ probability, score }) => probability ?? Math.abs(score ?? 0)), 1e-9);
  const rows = answers.map(({ name, probability, score }) => {
    const bar = html("span", { class: "bar" }, html("i", {}));
    const size = probability ?? Math.max(0, (score ?? 0) / largest);
    /** @type {HTMLElement} */ (bar.firstElementChild).style.setProperty("width", `${100 * size}%`);
    const value = probability === undefined ? String(score) : percent(probability);
    return html("li", {}, html("span", { class: "name" }, visible(name)), bar, html("span", { class: "value" }, value));
  });
  return html("ol", { class: "bars" }, ...rows);
}

/** @param {string} token what cannot be seen of it, as signs */
export function visible(token) {
  return token.replaceAll(" ", "␣").replaceAll("\n", "⏎").replaceAll("\t", "⇥") || "∅";
}
