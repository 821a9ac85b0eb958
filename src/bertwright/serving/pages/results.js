"use strict";

// What is shown of a response: bars, words in colour, marked text, a heat map.
const formatProbability = (value) => value.toFixed(4);

function bar(value) {
  const inner = element("span");
  inner.style.setProperty("--value", Math.min(1, Math.max(0, value)));
  return element("td", { class: "bar", "aria-hidden": "true" }, inner);
}

// A table of names with a bar and a number between 0 and 1 each.
function bars(caption, name, values, number = "probability") {
  const shown = table(caption, [name, element("td", { "aria-hidden": "true" }), numberHead(number)],
    values.map(([label, value]) => [label, bar(value), numberCell(formatProbability(value))]));
  shown.firstChild.classList.add("bars");
  return shown;
}

// One number without a scale.
const numberLine = (name, value) =>
  element("p", {}, `${name}: `, element("strong", { class: "number" }, formatProbability(value)));

// Colours far apart for neighbouring numbers.
const hue = (number) => (40 + number * 137.508) % 360;

function hued(node, number) {
  node.classList.add("hued");
  node.style.setProperty("--hue", hue(number));
  return node;
}

// B-PER and I-PER have the colour of PER; O, a word outside of all names, has none.
const tagType = (tag) => tag.replace(/^[BIES]-/, "");

function taggedWords(tags, labels) {
  const types = [...new Set(labels.map(tagType))].filter((type) => type !== "O");
  const colour = (node, tag) => (types.includes(tagType(tag)) ? hued(node, types.indexOf(tagType(tag))) : node);
  const words = tags.map(({ word, tag, probability }) => colour(
    element("span", { title: `${tag}, probability ${formatProbability(probability)}` },
      word, element("small", {}, tag)), tag));
  const present = new Set(tags.map(({ tag }) => tagType(tag)));
  const legend = types.filter((type) => present.has(type)).map((type) => colour(element("li", {}, type), type));
  return [
    element("div", { class: "words", role: "group", "aria-label": "Tagged words" }, ...words),
    element("h3", {}, "Legend"),
    legend.length ? element("ul", { class: "legend", "aria-label": "Legend" }, ...legend)
      : element("p", {}, "Every word has the tag O, outside of all names."),
    table("Words, their tags and probabilities", ["word", "tag", numberHead("probability")],
      tags.map(({ word, tag, probability }) => [word, tag, numberCell(formatProbability(probability))])),
  ];
}

// A text in which the answer is marked; positions count characters, not UTF-16 units.
function markedText(text, answer, start) {
  const characters = [...text];
  const stop = start + [...answer].length;
  return element("blockquote", {}, characters.slice(0, start).join(""),
    element("mark", {}, answer), characters.slice(stop).join(""));
}

function cosine(first, second) {
  const dot = (a, b) => a.reduce((sum, value, n) => sum + value * b[n], 0);
  return dot(first, second) / Math.sqrt(dot(first, first) * dot(second, second));
}

// The cosine similarity of every two texts, as numbers on a colour scale from the lowest of them to 1.
function heatMap(texts, vectors) {
  const cosines = vectors.map((first) => vectors.map((second) => cosine(first, second)));
  const lowest = Math.min(...cosines.flat());
  const cell = (value) => {
    const node = numberCell(value.toFixed(3));
    node.style.setProperty("--value", (value - lowest) / Math.max(1 - lowest, 1e-6));
    return node;
  };
  const rows = texts.map((text, row) => [element("th", { scope: "row" }, `${row + 1}. ${text}`), ...cosines[row].map(cell)]);
  const shown = table(`Cosine similarity, at most 1; the colour goes from the lowest, ${lowest.toFixed(3)}, to 1`,
    ["text", ...texts.map((_, n) => numberHead(String(n + 1)))], rows);
  shown.firstChild.classList.add("heat");
  return shown;
}

// The viewer runs its script in a sandbox, without access to this page and its API key.
function viewerFrame(page) {
  const frame = element("iframe", { title: "Attention and predictions", sandbox: "allow-scripts" });
  frame.srcdoc = page;
  frame.addEventListener("load", () => sendTheme(frame));
  return frame;
}

const sendTheme = (frame) =>
  frame.contentWindow.postMessage({ theme: document.documentElement.dataset.theme ?? "system" }, "*");
document.addEventListener("theme", () => document.querySelectorAll("iframe").forEach(sendTheme));
