// Page of the prediction server, rendered from its OpenAPI document: each endpoint with its parameters and a test request.

const title = document.getElementById("title"), about = document.getElementById("about");
const form = document.getElementById("token"), endpointList = document.getElementById("doors");
const JSON_TYPE = "application/json", BINARY = "application/octet-stream";
let token = "";

function element(name, attributes = {}, ...inside) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...inside);
  return node;
}

const headers = (more = {}) => (token ? { ...more, Authorization: `Bearer ${token}` } : more);

// Return a description of a schema.
function describeSchema(schema) {
  if (schema.oneOf) return schema.oneOf.map(describeSchema).join(" or ");
  if (schema.enum) return schema.enum.join(", ");
  const type = [].concat(schema.type ?? []).join(" or ");
  const examples = schema.examples ? `: ${schema.examples.join(", ")}` : "";
  const inner = schema.type === "array" && schema.items ? ` of ${describeSchema(schema.items)}` : "";
  return [`${type}${inner}${examples}`, schema.description].filter(Boolean).join(". ");
}

// Return a table of the keys of a request, and of the rows or files in it.
function requestTable(schema) {
  const rows = [];
  for (const one of schema.oneOf ?? [schema]) {
    for (const [key, value] of Object.entries(one.properties ?? {})) {
      rows.push(element("tr", {}, element("td", {}, element("code", {}, key)), element("td", {}, describeSchema(value))));
      for (const [inner, of] of Object.entries(value.items?.properties ?? {})) {
        const name = element("td", {}, element("code", {}, `${key}[].${inner}`));
        rows.push(element("tr", {}, name, element("td", {}, describeSchema(of))));
      }
    }
  }
  return element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Keys of a request" },
    element("table", {}, element("tbody", {}, ...rows)));
}

// Send a request and show its response.
async function send(path, method, body, type, out) {
  out.hidden = false;
  out.className = "";
  out.textContent = "…";
  try {
    const more = body === undefined ? {} : { "Content-Type": type };
    const answer = await fetch(path.slice(1), { method, body, headers: headers(more) });
    out.className = answer.ok ? "" : "bad";
    const kind = answer.headers.get("content-type") ?? "";
    if (kind.startsWith("text/event-stream")) return await showStream(answer, out);
    const text = await answer.text();
    const pretty = kind.startsWith(JSON_TYPE) ? JSON.stringify(JSON.parse(text), null, 1) : text;
    out.textContent = `${answer.status}\n${pretty}`;
  } catch (error) {
    out.className = "bad";
    out.textContent = `The server does not answer: ${error.message}`;
  }
}

// Show the text of server-sent events as it arrives, followed by the last event.
async function showStream(answer, out) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "", last = "";
  out.textContent = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) break;
    const lines = (rest + value).split("\n\n");
    rest = lines.pop();
    for (const line of lines.filter((l) => l !== "data: [DONE]")) {
      const event = JSON.parse(line.slice(6)), choice = event.choices?.[0];
      const text = event.text ?? choice?.text ?? choice?.delta?.content;
      if (text) out.append(text);
      if (event.error || event.finish || choice?.finish_reason) last = JSON.stringify(event);
      if (event.error) out.className = "bad";
    }
  }
  out.append(`\n\n${last}`);
}

function endpoint(path, method, operation) {
  const out = element("pre", { hidden: "", "aria-live": "polite", tabindex: "0" });
  const inside = element("div", { class: "inside" });
  const content = operation.requestBody?.content ?? {}, json = content[JSON_TYPE];
  const verb = method.toUpperCase();
  if (json) {
    inside.append(requestTable(json.schema));
    const area = element("textarea", { spellcheck: "false", "aria-label": `A request to ${path}` });
    area.value = JSON.stringify(json.example, null, 1);
    const button = element("button", {}, "Send");
    button.onclick = () => send(path, verb, area.value, JSON_TYPE, out);
    inside.append(area);
    const row = element("div", { class: "row" }, button);
    if (content[BINARY]) {
      const file = element("input", { type: "file" });
      file.onchange = () => {
        const [one] = file.files;
        if (one) send(`${path}?name=${encodeURIComponent(one.name)}`, verb, one, BINARY, out);
      };
      row.append(element("label", {}, "or one file ", file));
    }
    inside.append(row);
  } else {
    const button = element("button", {}, "Send");
    button.onclick = () => send(path, verb, undefined, "", out);
    inside.append(element("div", { class: "row" }, button));
  }
  inside.append(out);
  const head = element("summary", {}, element("span", { class: "method" }, verb), element("code", {}, path), operation.summary);
  return element("details", { class: "door", ...(path === "/predict" ? { open: "" } : {}) }, head, inside);
}

async function draw() {
  const answer = await fetch("openapi.json", { headers: headers() });
  form.hidden = answer.status !== 401 && !token;
  if (!answer.ok) {
    about.textContent = (await answer.json()).error;
    return;
  }
  const { info, paths } = await answer.json();
  document.title = `${info.title} · Cutaway server`;
  title.textContent = info.title;
  about.textContent = info.description;
  const endpoints = Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => endpoint(path, method, operation)));
  endpointList.replaceChildren(...endpoints);
}

form.onsubmit = (event) => {
  event.preventDefault();
  token = form.querySelector("input").value.trim();
  draw();
};
draw().catch((error) => { about.textContent = `The server does not answer: ${error.message}`; });
