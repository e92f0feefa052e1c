// The way to the server: questions by POST, frames by server-sent events.

/** What the server said no to, in words for a person. */
export class Rejected extends Error {}

/**
 * Ask for something. The answer is the server's JSON; Rejected where it says no, or does not answer.
 * @param {string} what open, control, change, … @param {Record<string, unknown>} body
 * @returns {Promise<Record<string, any>>}
 */
export function ask(what, body) {
  return sent(what, { headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
}

/**
 * Hand over a file of one's own.
 * @param {File} file
 */
export function upload(file) {
  const headers = { "Content-Type": "application/octet-stream" };
  return sent(`upload?name=${encodeURIComponent(file.name)}`, { headers, body: file });
}

/**
 * Hand over an image to be tried.
 * @param {Blob} image
 */
export function showImage(image) {
  return sent("image", { headers: { "Content-Type": "application/octet-stream" }, body: image });
}

/**
 * @param {string} address @param {RequestInit} request
 * @returns {Promise<Record<string, any>>}
 */
async function sent(address, request) {
  let answer;
  try {
    answer = await fetch(address, { method: "POST", ...request });
  } catch {
    throw new Rejected("The studio does not answer. Is it still running?");
  }
  const said = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Rejected(said.error ?? `The studio rejected this (${answer.status}).`);
  return said;
}

/**
 * Listen for frames. Of those that come while nobody looks, or faster than the screen is drawn, only the latest of each
 * side is kept.
 * @param {(frame: import("./words.js").Frame) => void} draw
 * @param {(words: string) => void} lost what is wrong with the connection, or nothing where all is well
 * @returns {() => void} to connect anew at once
 */
export function listen(draw, lost) {
  /** @type {Map<string, string>} */
  const waiting = new Map();
  /** @type {EventSource} */
  let source;
  let due = false;

  function drawAll() {
    due = false;
    const frames = [...waiting.values()];
    waiting.clear();
    for (const text of frames) draw(JSON.parse(text));
  }

  /** @param {MessageEvent<string>} event */
  function take({ data, lastEventId }) {
    waiting.set(side(data) ?? lastEventId, data);
    if (!due) requestAnimationFrame(drawAll);
    due = true;
  }

  function connect() {
    source?.close();
    source = new EventSource("events");
    source.addEventListener("frame", take);
    source.addEventListener("open", () => lost(""));
    source.addEventListener("error", () => {
      lost("The connection to the studio is lost. What you see is the last that came.");
    });
  }
  addEventListener("pagehide", () => source.close());
  addEventListener("pageshow", (event) => event.persisted && connect()); // back from the browser's cache
  connect();
  return connect;
}

/** @param {string} text a frame that is not read yet @returns {string | undefined} which side it is of */
export function side(text) {
  return /"side"\s*:\s*"([ab])"/.exec(text)?.[1];
}
