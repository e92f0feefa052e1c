// Prediction for the user's own input: a text, a drawing, an image, or a prompt to continue.

import { html } from "../draw/dom.js";
import { percent } from "../draw/format.js";
import { drawingList } from "../draw/view.js";
import { errorMessage, throttle } from "./controls.js";
import { setText } from "./player.js";

/**
 * @typedef {{ kind: "image" | "text" | "masked" | "next" | "pairs" | "problem", like?: string, dark?: boolean }} Mode
 * @typedef {{ answers?: { name: string, probability?: number, score?: number }[], said?: string, column?: string,
 *   samples?: string[], prompt?: string, seen?: string, notes?: string[], error?: string,
 *   drawing?: import("../draw/view.js").Drawing }} Tried
 * @typedef {{ text?: string, temperature?: number, count?: number, image?: number }} Input
 */

const CANVAS_SIZE = 280; // pixels of the canvas
const PEN_WIDTH = 22;
const PROMPTS = {
  text: "Type a text to predict for", pairs: "Type a source sequence to translate",
  masked: "Type a text with [MASK] in place of a word", next: "Type a prompt to continue",
  image: "Draw, or drop an image here", problem: "Type a problem to solve",
}; // prettier-ignore

/**
 * @param {{ onInput: (input: Input) => void, uploadImage: (blob: Blob) => Promise<Input>,
 *   onChange: (page: Record<string, string>) => void }} callbacks
 */
export function tryPanel(callbacks) {
  const errorField = errorMessage();
  const textarea = html("textarea", { id: "try-text", rows: 3, maxlength: 5000, spellcheck: "false" });
  const label = html("label", { for: "try-text" });
  const temperature = html("input", { type: "range", id: "try-heat", min: 0, max: 2, step: 0.05, value: 0.8 });
  const temperatureOutput = html("output", { for: "try-heat" }, "0.8");
  const numTokens = html("input", { type: "number", id: "try-count", min: 1, max: 200, step: 1, value: 60 });
  const samplingFields = html(
    "div",
    { class: "sampling" },
    html("label", { for: "try-heat", title: "Below 1, likely tokens become more likely; 0 always picks the most likely token" }, "Temperature"),
    temperature,
    temperatureOutput,
    html("label", { for: "try-count" }, "Tokens"),
    numTokens,
  );
  const textField = html("div", { class: "field" }, label, textarea, samplingFields);
  const canvas = html("canvas", { width: CANVAS_SIZE, height: CANVAS_SIZE, role: "img", "aria-label": "Canvas to draw on with a pointer" });
  const file = html("input", { type: "file", id: "try-file", accept: "image/*" });
  const clear = html("button", { type: "button", class: "plain" }, "Clear");
  const imageLabel = html("label", { for: "try-file" }, PROMPTS.image);
  const drawingField = html("div", { class: "field drawing" }, imageLabel, canvas, html("div", { class: "buttons" }, clear, file));
  const results = html("div", { class: "tried" });
  const root = html(
    "details",
    { class: "try", "data-control": "try", open: "" },
    html("summary", {}, html("h3", {}, "Try it yourself")),
    html("div", { class: "trying" }, html("div", {}, textField, drawingField, errorField), results),
  );
  root.hidden = true;
  /** @type {Mode | null} */
  let mode = null;

  // --- a text ---

  const textInput = () => ({
    text: textarea.value,
    ...(mode?.kind === "next" ? { temperature: Number(temperature.value), count: Math.round(Number(numTokens.value)) || 60 } : {}),
  });
  const sendText = throttle(() => {
    callbacks.onChange({
      try: textarea.value,
      ...(mode?.kind === "next" ? { temperature: temperature.value, tokens: numTokens.value } : {}),
    });
    callbacks.onInput(textInput());
  }, 250);
  for (const input of [textarea, temperature, numTokens]) input.addEventListener("input", () => sendText(undefined));
  temperature.addEventListener("input", () => setText(temperatureOutput, temperature.value));

  // --- an image ---

  const pen = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  /** @param {boolean} dark */
  function clearCanvas(dark) {
    pen.fillStyle = dark ? "#000" : "#fff";
    pen.fillRect(0, 0, CANVAS_SIZE, CANVAS_SIZE);
    pen.strokeStyle = dark ? "#fff" : "#000";
    pen.lineWidth = PEN_WIDTH;
    pen.lineCap = pen.lineJoin = "round";
  }
  const sendDrawing = throttle(() => canvas.toBlob((blob) => blob && send(blob)), 150);
  /** @param {Blob} blob */
  async function send(blob) {
    errorField.show("");
    try {
      callbacks.onInput(await callbacks.uploadImage(blob));
    } catch (error) {
      errorField.show(error instanceof Error ? error.message : String(error));
    }
  }
  /** @param {File | null | undefined} image */
  async function openImage(image) {
    if (!image) return;
    await send(image);
    const bitmap = await createImageBitmap(image).catch(() => null);
    if (!bitmap) return;
    clearCanvas(mode?.dark ?? false);
    const scale = Math.min(CANVAS_SIZE / bitmap.width, CANVAS_SIZE / bitmap.height);
    const [width, height] = [bitmap.width * scale, bitmap.height * scale];
    pen.drawImage(bitmap, (CANVAS_SIZE - width) / 2, (CANVAS_SIZE - height) / 2, width, height);
  }
  /** @param {PointerEvent} event @returns {[number, number]} */
  const pointerPosition = (event) => {
    const box = canvas.getBoundingClientRect();
    return [((event.clientX - box.left) / box.width) * CANVAS_SIZE, ((event.clientY - box.top) / box.height) * CANVAS_SIZE];
  };
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    pen.beginPath();
    pen.moveTo(...pointerPosition(event));
    pen.lineTo(...pointerPosition(event));
    pen.stroke();
    sendDrawing(undefined);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!canvas.hasPointerCapture(event.pointerId)) return;
    pen.lineTo(...pointerPosition(event));
    pen.stroke();
    sendDrawing(undefined);
  });
  clear.addEventListener("click", () => {
    clearCanvas(mode?.dark ?? false);
    file.value = "";
    callbacks.onInput({});
  });
  file.addEventListener("change", () => openImage(file.files?.[0]));
  for (const name of ["dragenter", "dragover"]) root.addEventListener(name, (event) => event.preventDefault());
  root.addEventListener("drop", (event) => {
    event.preventDefault();
    if (mode?.kind === "image") openImage(event.dataTransfer?.files[0]);
  });

  return {
    root,
    control: { key: "try", root, set() {}, limit() {}, showError: errorField.show },
    /** @param {Record<string, string>} page @returns {Input | null} the input to send to a side that was just opened */
    currentInput(page) {
      if (mode === null || mode.kind === "image") return null;
      if (page.try !== undefined && page.try !== textarea.value) textarea.value = page.try;
      return mode.kind === "next" || textarea.value.trim() ? textInput() : null;
    },
    /**
     * @param {[string, any][]} frames of the sides: what each is called, and its frame
     * @param {Record<string, string>} page
     * @returns {boolean} whether it is another kind of thing to try than before
     */
    show(frames, page) {
      const next = /** @type {Mode | null} */ (frames[0][1].try ?? null);
      const isNew = JSON.stringify(next) !== JSON.stringify(mode);
      mode = next;
      root.hidden = mode === null;
      if (mode === null) return isNew;
      if (isNew) {
        const uploadImage = mode.kind === "image";
        textField.hidden = uploadImage;
        drawingField.hidden = !uploadImage;
        samplingFields.hidden = mode.kind !== "next";
        root.classList.toggle("tall", mode.kind === "problem");
        textarea.rows = mode.kind === "problem" ? 1 : 3;
        setText(label, PROMPTS[mode.kind]);
        textarea.placeholder = mode.like ?? "";
        textarea.value = page.try ?? "";
        if (page.temperature && Number.isFinite(Number(page.temperature))) temperature.value = page.temperature;
        if (page.tokens && Number.isFinite(Number(page.tokens))) numTokens.value = page.tokens;
        setText(temperatureOutput, temperature.value);
        if (uploadImage) clearCanvas(mode.dark ?? false);
        results.replaceChildren();
        errorField.show("");
      }
      if (results.childElementCount !== frames.length) {
        results.replaceChildren(...frames.map(() => html("div", { class: "answer" })));
      }
      frames.forEach(([name, frame], i) => showAnswer(/** @type {HTMLElement} */ (results.children[i]), name, frame.tried));
      return isNew;
    },
  };
}

/** @typedef {import("../draw/view.js").Drawing} Drawing */
/** @type {WeakMap<HTMLElement, { figure: HTMLElement, show: (drawings: Drawing[]) => void }>} */
const figures = new WeakMap();

/**
 * Return the element of a drawing; it is reused, so that its state survives updates.
 * @param {HTMLElement} parent @param {Drawing} drawing
 */
function drawingElement(parent, drawing) {
  let cached = figures.get(parent);
  if (!cached) {
    const figure = html("div", { class: "figures" });
    figures.set(parent, (cached = { figure, show: drawingList(figure, "try-text") }));
  }
  cached.show([drawing]);
  return cached.figure;
}

/**
 * Show a model's prediction; the element is only updated when the prediction has changed.
 * @param {HTMLElement} parent @param {string} name of the model, if there are two @param {Tried | null} tried
 */
function showAnswer(parent, name, tried) {
  const key = JSON.stringify([name, tried]);
  if (parent.dataset.now === key) return;
  parent.dataset.now = key;
  const { answers = [], samples = [], notes = [] } = tried ?? {};
  const isEmpty = !tried || Object.keys(tried).length === 0;
  const prediction = tried?.said !== undefined && answers.length === 0 ? [html("p", { class: "said" }, tried.said || "–")] : [];
  const inputFigure = tried?.seen
    ? [html("figure", {}, html("img", { src: tried.seen, alt: "" }), html("figcaption", {}, "What the model sees"))]
    : [];
  parent.replaceChildren(
    ...(name ? [html("p", { class: "of" }, name)] : []),
    ...(isEmpty ? [html("p", { class: "hint" }, "The prediction appears here and is updated during training.")] : []),
    ...(tried?.error ? [html("p", { class: "failed" }, tried.error)] : []),
    ...inputFigure,
    ...prediction,
    ...(answers.length > 0 ? [html("p", { class: "hint" }, heading(tried)), bars(answers)] : []),
    ...(samples.length > 0 ? [html("p", { class: "hint" }, samples.length > 1 ? "Samples" : "Most likely continuation")] : []),
    ...samples.map((text) => html("blockquote", {}, html("span", { class: "prompt" }, tried?.prompt ?? ""), text)),
    ...notes.map((note) => html("p", { class: "hint" }, note)),
    ...(tried?.drawing ? [drawingElement(parent, tried.drawing)] : []),
  );
}

/** @param {Tried | null} tried */
function heading(tried) {
  if (tried?.samples) return "Next token";
  return tried?.column ? `Prediction: ${tried.column}` : "For the first [MASK]";
}

/** @param {{ name: string, probability?: number, score?: number }[]} answers sorted by probability, highest first */
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

/** @param {string} token @returns the token with symbols for whitespace */
export function visible(token) {
  return token.replaceAll(" ", "␣").replaceAll("\n", "⏎").replaceAll("\t", "⇥") || "∅";
}
