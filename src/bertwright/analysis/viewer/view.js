"use strict";

// Everything that is drawn follows from `state`; whoever changes it calls `draw`.
const data = JSON.parse(document.getElementById("data").textContent);
const state = { tab: "heads", text: 0, layer: 0, head: 0, place: 0, kind: "weights", which: "own" };
const byId = (id) => document.getElementById(id);
const ROW = 24;

async function unpack(told) {
  const bytes = Uint8Array.from(atob(told.values), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  const planes = new Uint8Array(await new Response(stream).arrayBuffer());
  const values = new Float64Array(told.shape.reduce((size, axis) => size * axis, 1)).fill(told.low);
  for (let n = 0, worth = told.step; n < planes.length; worth *= 256)
    for (let place = 0; place < values.length; place++, n++) values[place] += worth * planes[n];
  return { shape: told.shape, values };
}

// Arrays are unpacked when their text is first looked at.
const ready = new Map();
async function arraysOf(text) {
  if (!ready.has(text)) {
    const found = { own: {}, other: {} };
    for (const [side, arrays] of [["own", data.texts[text].arrays], ["other", data.texts[text].other]])
      for (const [name, told] of Object.entries(arrays)) found[side][name] = await unpack(told);
    ready.set(text, found);
  }
  return ready.get(text);
}

// The matrix (T, T) of a head, or of a layer for rollout. Effective attention is there only where it
// is not the weights; of values only the lengths are there.
function matrix(arrays, kind, layer, head) {
  const { shape, values } = arrays[kind === "lengths" || !(kind in arrays) ? "weights" : kind];
  const size = shape[shape.length - 1];
  const number = kind === "rollout" ? layer : layer * data.heads + head;
  const found = values.subarray(number * size * size, (number + 1) * size * size);
  if (kind !== "lengths") return found;
  const lengths = arrays.lengths.values.subarray(number * size, (number + 1) * size);
  return found.map((value, n) => value * lengths[n % size]);
}

function chosen(both, kind, layer, head) {
  if (state.which !== "difference") return matrix(both[state.which], kind, layer, head);
  const own = matrix(both.own, kind, layer, head);
  const other = matrix(both.other, kind, layer, head);
  return other.map((value, n) => value - own[n]);
}

const text = () => data.texts[state.text];
const size = () => text().pieces.length;
const largest = (values) => values.reduce((most, value) => Math.max(most, Math.abs(value)), 1e-12);
const written = (value) => (Math.abs(value) >= 0.0005 || value === 0 ? value.toFixed(3) : value.toExponential(1));

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).split(",").map(Number);
}

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes))
    if (name === "class") made.className = value;
    else made.setAttribute(name, value);
  made.append(...children);
  return made;
}

function table(head, rows) {
  const cells = (tag, row) => row.map((cell) =>
    cell instanceof Node ? cell : element(tag, typeof cell === "number" ? { class: "number" } : {},
      typeof cell === "number" ? written(cell) : cell));
  return element("table", {},
    element("thead", {}, element("tr", {}, ...head.map((name) => element("th", { scope: "col" }, name)))),
    element("tbody", {}, ...rows.map((row) => element("tr", {}, ...cells("td", row)))));
}

// Values as a picture: the more the stronger, what is less than nothing in the other colour.
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
  const own = chosen(both, state.kind, state.layer, state.head);
  const number = size();
  const row = own.subarray(state.place * number, (state.place + 1) * number);
  const most = largest(own);
  byId("from").replaceChildren(...text().pieces.map((piece, n) => element("li", {}, pieceButton(piece, n))));
  const [more, less] = [colour("--more"), colour("--less")];
  byId("to").replaceChildren(...text().pieces.map((piece, n) => {
    const item = element("li", {}, piece);
    item.style.background = `rgba(${row[n] < 0 ? less : more}, ${(0.7 * Math.abs(row[n])) / most})`;
    return item;
  }));
  const canvas = byId("lines");
  const wide = canvas.clientWidth || 200;
  canvas.width = wide;
  canvas.height = number * ROW;
  canvas.style.height = `${number * ROW}px`;
  const pen = canvas.getContext("2d");
  for (let i = 0; i < number; i++)
    for (let j = 0; j < number; j++) {
      const value = own[i * number + j] / most;
      const strength = Math.abs(value) * (i === state.place ? 1 : 0.25);
      if (strength < 0.02) continue;
      pen.strokeStyle = `rgba(${value < 0 ? less : more}, ${strength})`;
      pen.lineWidth = i === state.place ? 2.5 : 1;
      pen.beginPath();
      pen.moveTo(0, (i + 0.5) * ROW);
      pen.lineTo(wide, (j + 0.5) * ROW);
      pen.stroke();
    }
  const order = [...row.keys()].sort((a, b) => Math.abs(row[b]) - Math.abs(row[a])).slice(0, 8);
  byId("looked-at").replaceChildren(
    element("p", {}, `${text().pieces[state.place]} (place ${state.place}), layer ${state.layer + 1}` +
      (state.kind === "rollout" ? "" : `, head ${state.head + 1}`)),
    table(["looks at", "place", "value"], order.map((n) => [text().pieces[n], String(n), row[n]])));
}

function pieceButton(piece, n) {
  const button = element("button", { type: "button", "aria-pressed": String(n === state.place), "data-place": n }, piece);
  button.addEventListener("click", () => change({ place: n }));
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
      const own = chosen(both, state.kind, layer, head);
      paint(canvas, own, size(), largest(own));
      const name = `layer ${layer + 1}` + (heads > 1 ? `, head ${head + 1}` : "");
      const button = element("button", { type: "button", "aria-label": name, title: name }, canvas);
      button.addEventListener("click", () => change({ layer, head, tab: "heads" }));
      cells.push(button);
    }
  }
  grid.replaceChildren(...cells);
}

function drawNeurons(both) {
  const of = (name) => {
    const { shape, values } = both.own[name];
    const width = shape[3];
    const begin = (state.layer * data.heads + state.head) * size() * width;
    return [values.subarray(begin, begin + size() * width), width];
  };
  const [queries, width] = of("query");
  const [keys] = of("key");
  const query = queries.subarray(state.place * width, (state.place + 1) * width);
  const most = [largest(query), largest(keys)];
  const strip = (values, limit) => {
    const canvas = element("canvas");
    paint(canvas, values, width, limit);
    return element("td", { class: "strip" }, canvas);
  };
  const rows = text().pieces.map((piece, n) => {
    const key = keys.subarray(n * width, (n + 1) * width);
    const product = key.map((value, m) => value * query[m]);
    const sum = product.reduce((total, value) => total + value, 0) / Math.sqrt(width);
    return [pieceCell(piece, n), strip(key, most[1]), strip(product, most[0] * most[1]), sum];
  });
  byId("strips").replaceChildren(
    table(["", "query", "", ""], [[text().pieces[state.place], strip(query, most[0]), "", ""]]),
    table(["place", "key", "query times key", "score"], rows));
}

const pieceCell = (piece, n) => element("td", {}, pieceButton(piece, n));

function drawWords() {
  byId("sentence").replaceChildren(...text().pieces.map(pieceButton));
  const word = text().word[state.place];
  const parts = [element("p", {}, word < 0 ? `${text().pieces[state.place]} is no word` : text().words[word])];
  const guessed = text().guesses[state.place];
  if (data.lacking.guesses) parts.push(element("p", {}, `No guesses: ${data.lacking.guesses}.`));
  else if (guessed)
    parts.push(element("h2", {}, "What it would name here"),
      table(["piece", "chance"], [...guessed.pieces.map((piece, n) => [piece, guessed.chances[n]]),
        [`${text().pieces[state.place]} (what stands here)`, guessed.own]]));
  if (word >= 0 && text().near)
    parts.push(element("h2", {}, "Nearest words in other texts"),
      table(["layer", "words, their texts and cosines"], text().near.map((layers, layer) => [
        layer ? String(layer) : "embeddings",
        layers[word].map((other, n) => {
          const [from, spelled] = data.words[other];
          return `${spelled} (text ${from + 1}, ${text().cosines[layer][word][n].toFixed(2)})`;
        }).join("; ")])));
  byId("of-word").replaceChildren(...parts);
}

const drawing = { heads: drawHeads, model: drawModel, neurons: drawNeurons, words: drawWords };
const needs = { heads: "attention", model: "attention", neurons: "neurons", words: null };

// Whoever waited for numbers while something newer was asked for has nothing to draw any more.
let asked = 0;

async function draw() {
  const own = ++asked;
  const both = await arraysOf(state.text);
  if (own !== asked) return;
  for (const tab of Object.keys(drawing)) {
    byId(tab).hidden = tab !== state.tab;
    byId(`tab-${tab}`).setAttribute("aria-selected", String(tab === state.tab));
    byId(`tab-${tab}`).tabIndex = tab === state.tab ? 0 : -1;
  }
  for (const name of ["text", "layer", "head", "kind", "which"]) byId(name).value = String(state[name]);
  const why = needs[state.tab] && data.lacking[needs[state.tab]];
  if (why) byId(state.tab).replaceChildren(element("p", {}, `Nothing to be seen here: ${why}.`));
  else drawing[state.tab](both);
  document.body.dataset.drawn = JSON.stringify(state);
}

function change(some) {
  const focused = document.activeElement && document.activeElement.dataset.place;
  Object.assign(state, some);
  state.place = Math.min(state.place, size() - 1);
  return draw().then(() => {
    // What was drawn anew keeps the focus where it was.
    if (focused !== undefined) {
      const button = byId(state.tab).querySelector(`button[data-place="${state.place}"]`);
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

const counted = (number) => Array.from({ length: number }, (_, n) => [n, String(n + 1)]);
options("text", data.texts.map((own, n) => [n, own.words.join(" ").slice(0, 60)]));
options("layer", counted(data.layers));
options("head", counted(data.heads));
options("kind", [...byId("kind").options].map((own) => [own.value, own.textContent]));
options("which", [["own", data.model], ["other", data.other], ["difference", `${data.other} less ${data.model}`]]);
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
    ArrowLeft: { place: Math.max(0, state.place - 1) },
    ArrowRight: { place: Math.min(size() - 1, state.place + 1) },
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
