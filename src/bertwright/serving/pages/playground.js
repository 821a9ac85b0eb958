"use strict";

// The page is drawn from `state`; code that changes the model, capability or language calls `draw`.
const state = { models: [], model: null, capability: null, language: "curl", key: null };
const values = {};
let running = null;

const endpointUrl = (path) => new URL(path, document.baseURI).href;
const headers = () => ({
  "Content-Type": "application/json",
  ...(state.key ? { Authorization: `Bearer ${state.key}` } : {}),
});
const capability = () => CAPABILITIES[state.capability];
const capabilitiesOf = (model) => Object.keys(CAPABILITIES).filter((name) => model.endpoints.includes(name));
const titleOf = (name, model) => CAPABILITIES[name].titleOf?.(model) ?? CAPABILITIES[name].title;

// The sentence of an error response, in the format of any of the protocols.
async function errorMessage(response) {
  try {
    const { error } = await response.json();
    return error.message ?? error;
  } catch {
    return `The server answered with status ${response.status}.`;
  }
}

// Sends a request; an AbortError passes.
async function send(path, options) {
  try {
    return await fetch(endpointUrl(path), { headers: headers(), ...options });
  } catch (error) {
    throw error instanceof TypeError ? new Error("The server cannot be reached.") : error;
  }
}

async function loadModels() {
  const status = byId("server-status");
  try {
    const response = await send("v1/models");
    byId("key-form").hidden = response.status !== 401;
    if (response.status === 401) {
      status.textContent = state.key ? "The API key is wrong." : "This server requires an API key.";
      byId("key").focus();
      return;
    }
    if (!response.ok) throw new Error(await errorMessage(response));
    state.models = (await response.json()).data;
  } catch (error) {
    status.textContent = error.message;
    return;
  }
  status.textContent = "";
  byId("playground").hidden = false;
  byId("models").append(...state.models.map(modelChoice));
  chooseModel(state.models[0]);
}

function modelChoice(model, number) {
  const input = element("input", { type: "radio", name: "model", value: model.id });
  input.checked = number === 0;
  input.addEventListener("change", () => chooseModel(model));
  const abilities = capabilitiesOf(model).map((name) => titleOf(name, model).toLowerCase()).join(", ");
  return element("label", {}, input, model.id, element("small", {}, abilities));
}

function chooseModel(model) {
  state.model = model;
  const names = capabilitiesOf(model);
  byId("model-name").textContent = model.id;
  byId("model-task").textContent = model.task
    ? `Fine-tuned for ${TASK_NAMES[model.task.output] ?? model.task.output}` + (model.task.labels.length ? `, ${model.task.labels.length} labels` : "")
    : "Not fine-tuned";
  byId("capabilities").replaceChildren(...names.map((name) => element("button",
    { role: "tab", type: "button", id: `tab-${name}`, value: name, "aria-controls": "panel" }, titleOf(name, model))));
  chooseCapability(names.includes(state.capability) ? state.capability : names[0]);
}

function chooseCapability(name) {
  state.capability = name;
  running?.abort();
  markCapability(name);
  byId("panel").setAttribute("aria-labelledby", `tab-${name}`);
  byId("help").textContent = capability().help;
  values[name] ??= {};
  byId("fields").replaceChildren(...capability().fields(state.model).map(formField));
  byId("result").replaceChildren();
  showStatus("");
  drawSnippet();
}

// A labelled control that keeps its value while other capabilities are shown.
function formField(field) {
  const kept = values[state.capability];
  const { name, label, rows, optional } = field;
  if (field.type === "checkbox") kept[name] ??= field.value;
  else kept[name] = kept[name] || String(field.value);
  const control = element(rows ? "textarea" : "input", { name, rows, type: rows ? null : field.type ?? "text", min: field.min, max: field.max, step: field.step });
  control.required = field.type !== "checkbox" && !optional;
  if (field.type === "checkbox") control.checked = kept[name];
  else control.value = kept[name];
  control.addEventListener("input", () => {
    kept[name] = field.type === "checkbox" ? control.checked : control.value;
    drawSnippet();
  });
  return field.type === "checkbox" ? element("label", { class: "check" }, control, label) : element("label", {}, label, control);
}

function requestBody() {
  const shown = new Set(capability().fields(state.model).map(({ name }) => name));
  const fields = Object.entries(values[state.capability]).filter(([name]) => shown.has(name));
  return { model: state.model.id, ...capability().body(Object.fromEntries(fields)) };
}

function drawSnippet() {
  markLanguage(state.language);
  byId("snippet").setAttribute("aria-labelledby", `language-${state.language}`);
  byId("copied").textContent = "";
  byId("key-note").hidden = !state.key;
  byId("code").textContent = SNIPPETS[state.language]({
    url: endpointUrl(state.capability), body: requestBody(), needsKey: Boolean(state.key),
    output: capability().isPage ? "view.html" : null,
  });
}

function showStatus(message, isError = false) {
  byId("status").textContent = message;
  byId("status").classList.toggle("error", isError);
}

async function run() {
  running?.abort();
  const request = (running = new AbortController());
  const { model } = state;
  const { isPage, show } = capability();
  const sent = { ...values[state.capability] };
  byId("result").setAttribute("aria-busy", "true");
  showStatus("Computing ...");
  try {
    const body = JSON.stringify(requestBody());
    const response = await send(state.capability, { method: "POST", body, signal: request.signal });
    if (!response.ok) throw new Error(await errorMessage(response));
    const nodes = show(isPage ? await response.text() : await response.json(), sent, model);
    byId("result").replaceChildren(...nodes);
    showStatus("Done.");
  } catch (error) {
    if (request.signal.aborted) return;
    byId("result").replaceChildren();
    showStatus(error.message, true);
  }
  byId("result").removeAttribute("aria-busy");
}

const markCapability = tabs(byId("capabilities"), chooseCapability);
const markLanguage = tabs(byId("languages"), (language) => {
  state.language = language;
  drawSnippet();
});

byId("request").addEventListener("submit", (event) => {
  event.preventDefault();
  run();
});
byId("request").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    byId("request").requestSubmit();
  }
});
byId("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  state.key = byId("key").value;
  loadModels();
});
byId("copy").addEventListener("click", () => copyText(byId("code")).then(
  () => { byId("copied").textContent = "Copied."; },
  () => { byId("copied").textContent = "The browser does not allow it: select the text instead."; }));
loadModels();
