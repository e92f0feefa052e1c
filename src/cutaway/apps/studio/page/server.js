// Connection to the server: requests by POST, frames by server-sent events.

/** A request that the server rejected, with a message for the user. */
export class RequestError extends Error {}

/**
 * Send a request and return the JSON of its response. Throw a RequestError if it is rejected or not answered.
 * @param {string} action open, control, change, … @param {Record<string, unknown>} body
 * @returns {Promise<Record<string, any>>}
 */
export function request(action, body) {
  return post(action, { headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
}

/**
 * Upload a data file.
 * @param {File} file
 */
export function upload(file) {
  const headers = { "Content-Type": "application/octet-stream" };
  return post(`upload?name=${encodeURIComponent(file.name)}`, { headers, body: file });
}

/**
 * Upload an image to predict for.
 * @param {Blob} image
 */
export function uploadImage(image) {
  return post("image", { headers: { "Content-Type": "application/octet-stream" }, body: image });
}

/**
 * @param {string} address @param {RequestInit} request
 * @returns {Promise<Record<string, any>>}
 */
async function post(address, request) {
  let answer;
  try {
    answer = await fetch(address, { method: "POST", ...request });
  } catch {
    throw new RequestError("The studio does not answer. Is it still running?");
  }
  const body = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new RequestError(body.error ?? `The studio rejected this (${answer.status}).`);
  return body;
}

/**
 * Listen for frames. If several arrive before the next repaint, only the latest one of each side is drawn.
 * @param {(frame: import("./labels.js").Frame) => void} onFrame
 * @param {(words: string) => void} onConnection called with an error message, or "" when connected
 * @returns {() => void} a function that reconnects
 */
export function listen(onFrame, onConnection) {
  /** @type {Map<string, string>} */
  const waiting = new Map();
  /** @type {EventSource} */
  let source;
  let scheduled = false;

  function drawAll() {
    scheduled = false;
    const frames = [...waiting.values()];
    waiting.clear();
    for (const text of frames) onFrame(JSON.parse(text));
  }

  /** @param {MessageEvent<string>} event */
  function receive({ data, lastEventId }) {
    waiting.set(frameSide(data) ?? lastEventId, data);
    if (!scheduled) requestAnimationFrame(drawAll);
    scheduled = true;
  }

  function connect() {
    source?.close();
    source = new EventSource("events");
    source.addEventListener("frame", receive);
    source.addEventListener("open", () => onConnection(""));
    source.addEventListener("error", () => {
      onConnection("The connection to the studio is lost. The page shows the last update received.");
    });
  }
  addEventListener("pagehide", () => source.close());
  addEventListener("pageshow", (event) => event.persisted && connect()); // back from the browser's cache
  connect();
  return connect;
}

/** @param {string} text JSON of a frame @returns {string | undefined} its side, found without parsing */
export function frameSide(text) {
  return /"side"\s*:\s*"([ab])"/.exec(text)?.[1];
}
