"use strict";

// The page is drawn from `state`; code that changes `state` calls `draw`.
const data = JSON.parse(document.getElementById("data").textContent);
const state = { tab: "heads", text: 0, layer: 0, head: 0, position: 0, kind: "weights", which: "model" };
const byId = (id) => document.getElementById(id);
const ROW = 24;

async function unpack(packed) {
  const bytes = Uint8Array.from(atob(packed.values), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  const planes = new Uint8Array(await new Response(stream).arrayBuffer());
  const values = new Float64Array(packed.shape.reduce((size, axis) => size * axis, 1)).fill(packed.low);
  for (let n = 0, scale = packed.step; n < planes.length; scale *= 256)
    for (let index = 0; index < values.length; index++, n++) values[index] += scale * planes[n];
  return { shape: packed.shape, values };
}

// Unpacks arrays when their text is first shown.
const ready = new Map();
async function arraysOf(text) {
  if (!ready.has(text)) {
    const arrays = { model: {}, other: {} };
    for (const [side, packed] of [["model", data.texts[text].arrays], ["other", data.texts[text].other]])
      for (const [name, array] of Object.entries(packed)) arrays[side][name] = await unpack(array);
    ready.set(text, arrays);
  }
  return ready.get(text);
}

// The matrix (T, T) of a head, or of a layer for rollout. Effective attention is stored only where it
// differs from the weights; of the values only the norms are stored.
function matrix(arrays, kind, layer, head) {
  const { shape, values } = arrays[kind === "norms" || !(kind in arrays) ? "weights" : kind];
  const size = shape[shape.length - 1];
  const number = kind === "rollout" ? layer : layer * data.heads + head;
  const weights = values.subarray(number * size * size, (number + 1) * size * size);
  if (kind !== "norms") return weights;
  const norms = arrays.norms.values.subarray(number * size, (number + 1) * size);
  return weights.map((value, n) => value * norms[n % size]);
}

function selectedMatrix(both, kind, layer, head) {
  if (state.which !== "difference") return matrix(both[state.which], kind, layer, head);
  const first = matrix(both.model, kind, layer, head);
  const second = matrix(both.other, kind, layer, head);
  return second.map((value, n) => value - first[n]);
}

const text = () => data.texts[state.text];
const size = () => text().tokens.length;
const largest = (values) => values.reduce((most, value) => Math.max(most, Math.abs(value)), 1e-12);
const formatNumber = (value) => (Math.abs(value) >= 0.0005 || value === 0 ? value.toFixed(3) : value.toExponential(1));

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).split(",").map(Number);
}

function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes))
    if (name === "class") node.className = value;
    else node.setAttribute(name, value);
  node.append(...children);
  return node;
}

function table(head, rows) {
  const cells = (tag, row) => row.map((cell) =>
    cell instanceof Node ? cell : element(tag, typeof cell === "number" ? { class: "number" } : {},
      typeof cell === "number" ? formatNumber(cell) : cell));
  return element("table", {},
    element("thead", {}, element("tr", {}, ...head.map((name) => element("th", { scope: "col" }, name)))),
    element("tbody", {}, ...rows.map((row) => element("tr", {}, ...cells("td", row)))));
}

// Draws values as an image: larger values are stronger, negative values have the other colour.
function paint(canvas, values, width, most) {
  const height = values.length / width;
  canvas.width = width;
  canvas.height = height;
  const picture = new ImageData(width, height);
  const [more, less] = [colour("--more"), colour("--less")];
  for (let n = 0; n < values.length; n++) {
    const [red, green, blue] = values[n] < 0 ? less : more;
    picture.data.set([red, green, blue, Math.min(255, (Math.abs(values[n]) / most) * 255)], 4 * n);
  }
  canvas.getContext("2d").putImageData(picture, 0, 0);
}

function drawHeads(both) {
  const values = selectedMatrix(both, state.kind, state.layer, state.head);
  const number = size();
  const row = values.subarray(state.position * number, (state.position + 1) * number);
  const most = largest(values);
  byId("from").replaceChildren(...text().tokens.map((token, n) => element("li", {}, tokenButton(token, n))));
  const [more, less] = [colour("--more"), colour("--less")];
  byId("to").replaceChildren(...text().tokens.map((token, n) => {
    const item = element("li", {}, token);
    item.style.background = `rgba(${row[n] < 0 ? less : more}, ${(0.7 * Math.abs(row[n])) / most})`;
    return item;
  }));
  const canvas = byId("lines");
  const width = canvas.clientWidth || 200;
  canvas.width = width;
  canvas.height = number * ROW;
  canvas.style.height = `${number * ROW}px`;
  const pen = canvas.getContext("2d");
  for (let i = 0; i < number; i++)
    for (let j = 0; j < number; j++) {
      const value = values[i * number + j] / most;
      const strength = Math.abs(value) * (i === state.position ? 1 : 0.25);
      if (strength < 0.02) continue;
      pen.strokeStyle = `rgba(${value < 0 ? less : more}, ${strength})`;
      pen.lineWidth = i === state.position ? 2.5 : 1;
      pen.beginPath();
      pen.moveTo(0, (i + 0.5) * ROW);
      pen.lineTo(width, (j + 0.5) * ROW);
      pen.stroke();
    }
  const order = [...row.keys()].sort((a, b) => Math.abs(row[b]) - Math.abs(row[a])).slice(0, 8);
  byId("attention-of").replaceChildren(
    element("p", {}, `${text().tokens[state.position]} (position ${state.position}), layer ${state.layer + 1}` +
      (state.kind === "rollout" ? "" : `, head ${state.head + 1}`)),
    table(["attends to", "position", "value"], order.map((n) => [text().tokens[n], String(n), row[n]])));
}

function tokenButton(token, n) {
  const button = element("button", { type: "button", "aria-pressed": String(n === state.position), "data-position": n }, token);
  button.addEventListener("click", () => change({ position: n }));
  return button;
}

function drawModel(both) {
  const heads = state.kind === "rollout" ? 1 : data.heads;
  const grid = byId("grid");
  grid.style.gridTemplateColumns = `max-content repeat(${heads}, minmax(40px, 120px))`;
  const cells = [];
  for (let layer = 0; layer < data.layers; layer++) {
    cells.push(element("span", {}, String(layer + 1)));
    for (let head = 0; head < heads; head++) {
      const canvas = element("canvas");
      const values = selectedMatrix(both, state.kind, layer, head);
      paint(canvas, values, size(), largest(values));
      const name = `layer ${layer + 1}` + (heads > 1 ? `, head ${head + 1}` : "");
      const button = element("button", { type: "button", "aria-label": name, title: name }, canvas);
      button.addEventListener("click", () => change({ layer, head, tab: "heads" }));
      cells.push(button);
    }
  }
  grid.replaceChildren(...cells);
}

function drawNeurons(both) {
  const vectors = (name) => {
    const { shape, values } = both.model[name];
    const width = shape[3];
    const start = (state.layer * data.heads + state.head) * size() * width;
    return [values.subarray(start, start + size() * width), width];
  };
  const [queries, width] = vectors("query");
  const [keys] = vectors("key");
  const query = queries.subarray(state.position * width, (state.position + 1) * width);
  const most = [largest(query), largest(keys)];
  const strip = (values, limit) => {
    const canvas = element("canvas");
    paint(canvas, values, width, limit);
    return element("td", { class: "strip" }, canvas);
  };
  const rows = text().tokens.map((token, n) => {
    const key = keys.subarray(n * width, (n + 1) * width);
    const product = key.map((value, m) => value * query[m]);
    const sum = product.reduce((total, value) => total + value, 0) / Math.sqrt(width);
    return [tokenCell(token, n), strip(key, most[1]), strip(product, most[0] * most[1]), sum];
  });
  byId("strips").replaceChildren(
    table(["", "query", "", ""], [[text().tokens[state.position], strip(query, most[0]), "", ""]]),
    table(["position", "key", "query times key", "score"], rows));
}

const tokenCell = (token, n) => element("td", {}, tokenButton(token, n));

function drawWords() {
  byId("sentence").replaceChildren(...text().tokens.map(tokenButton));
  const token = text().tokens[state.position];
  const word = text().word_ids[state.position];
  const parts = [element("p", {}, word < 0 ? `${token} is a special token` : text().words[word])];
  const prediction = text().predictions[state.position];
  if (data.unavailable.predictions) parts.push(element("p", {}, `No predictions: ${data.unavailable.predictions}.`));
  else if (prediction)
    parts.push(element("h2", {}, "Predictions at this position"),
      table(["token", "probability"], [...prediction.tokens.map((name, n) => [name, prediction.probabilities[n]]),
        [`${token} (the actual token)`, prediction.actual_token_probability]]));
  if (word >= 0 && text().neighbours)
    parts.push(element("h2", {}, "Nearest words in other texts"),
      table(["layer", "words, their texts and cosines"], text().neighbours.map((layers, layer) => [
        layer ? String(layer) : "embeddings",
        layers[word].map((other, n) => {
          const [from, name] = data.words[other];
          return `${name} (text ${from + 1}, ${text().cosines[layer][word][n].toFixed(2)})`;
        }).join("; ")])));
  byId("of-word").replaceChildren(...parts);
}

const drawing = { heads: drawHeads, model: drawModel, neurons: drawNeurons, words: drawWords };
const needs = { heads: "attention", model: "attention", neurons: "neurons", words: null };

// Drop a request if a newer one arrives while it waits for arrays.
let drawRequest = 0;

async function draw() {
  const request = ++drawRequest;
  const both = await arraysOf(state.text);
  if (request !== drawRequest) return;
  for (const tab of Object.keys(drawing)) {
    byId(tab).hidden = tab !== state.tab;
    byId(`tab-${tab}`).setAttribute("aria-selected", String(tab === state.tab));
    byId(`tab-${tab}`).tabIndex = tab === state.tab ? 0 : -1;
  }
  for (const name of ["text", "layer", "head", "kind", "which"]) byId(name).value = String(state[name]);
  const why = needs[state.tab] && data.unavailable[needs[state.tab]];
  if (why) byId(state.tab).replaceChildren(element("p", {}, `Not available: ${why}.`));
  else drawing[state.tab](both);
  document.body.dataset.drawn = JSON.stringify(state);
}

function change(changes) {
  const focused = document.activeElement && document.activeElement.dataset.position;
  Object.assign(state, changes);
  state.position = Math.min(state.position, size() - 1);
  return draw().then(() => {
    // Redrawn elements keep the focus.
    if (focused !== undefined) {
      const button = byId(state.tab).querySelector(`button[data-position="${state.position}"]`);
      if (button) button.focus();
    }
  });
}

function options(id, names) {
  byId(id).replaceChildren(...names.map(([value, name]) => element("option", { value }, name)));
  byId(id).addEventListener("change", () => {
    const { value } = byId(id);
    change({ [id]: ["kind", "which"].includes(id) ? value : Number(value) });
  });
}

const numbered = (number) => Array.from({ length: number }, (_, n) => [n, String(n + 1)]);
options("text", data.texts.map((one, n) => [n, one.words.join(" ").slice(0, 60)]));
options("layer", numbered(data.layers));
options("head", numbered(data.heads));
options("kind", [...byId("kind").options].map((option) => [option.value, option.textContent]));
options("which", [["model", data.model], ["other", data.other], ["difference", `${data.other} minus ${data.model}`]]);
byId("which-label").hidden = data.other === null;

const tabs = Object.keys(drawing);
for (const tab of tabs) byId(`tab-${tab}`).addEventListener("click", () => change({ tab }));
byId("tabs").addEventListener("keydown", (event) => {
  const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (!step) return;
  event.stopPropagation();
  const tab = tabs[(tabs.indexOf(state.tab) + step + tabs.length) % tabs.length];
  change({ tab }).then(() => byId(`tab-${tab}`).focus());
});
document.addEventListener("keydown", (event) => {
  if (event.target.tagName === "SELECT") return;
  const moves = {
    ArrowLeft: { position: Math.max(0, state.position - 1) },
    ArrowRight: { position: Math.min(size() - 1, state.position + 1) },
    ArrowUp: { layer: Math.max(0, state.layer - 1) },
    ArrowDown: { layer: Math.min(data.layers - 1, state.layer + 1) },
    PageUp: { head: Math.max(0, state.head - 1) },
    PageDown: { head: Math.min(data.heads - 1, state.head + 1) },
  };
  if (!(event.key in moves)) return;
  event.preventDefault();
  change(moves[event.key]);
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
addEventListener("resize", draw);
draw();
