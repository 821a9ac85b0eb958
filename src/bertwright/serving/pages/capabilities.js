"use strict";

// What a model can do, by endpoint: the fields of the form, the body of the request made of their
// values, and what is shown of the response. Options depend on the task of the model.
const lines = (value) => value.split("\n").map((line) => line.trim()).filter(Boolean);
const example = "The keeper of the old lighthouse lights the lamp every evening.";
const truncate = { name: "truncate", label: "Truncate long texts", type: "checkbox", value: false };

const NUMBER_NAMES = { number: "Predicted number", similarity: "Similarity", relevance: "Relevance" };

const TASK_NAMES = {
  class: "one label for a text", labels: "any number of labels for a text", number: "a number for a text",
  similarity: "similarity of two texts", relevance: "relevance of a text to a query", tags: "a tag for every word",
  span: "answers to questions in a text", text: "generated text",
};

function predictFields({ task }) {
  const [needsPair, takesPair] = [!task.inputs.includes("text"), task.inputs.includes("pair")];
  return [
    { name: "text", label: takesPair ? "First text" : "Text", rows: 3, value: example },
    ...(takesPair ? [{ name: "pair", label: needsPair ? "Second text" : "Second text (optional)",
      rows: 2, optional: !needsPair, value: needsPair ? "Somebody switches on a light." : "" }] : []),
    truncate,
  ];
}

function showScores(scores, _, { task }) {
  if (!task.labels.length) return [numberLine(NUMBER_NAMES[task.output] ?? "Predicted number", scores[0].score)];
  const kind = task.output === "labels" ? "Labels; each is decided on its own" : "Labels, most probable first";
  return [bars(kind, "label", scores.map(({ label, score }) => [label, score]))];
}

// The set of labels with the guarantee, or the interval of a number.
function showGuarantee({ set, interval, probabilities, prediction }, { coverage }) {
  if (interval) {
    return [numberLine("Predicted number", prediction), numberLine("From", interval[0]), numberLine("To", interval[1])];
  }
  const caption = `${set.length} of ${Object.keys(probabilities).length} labels, with a coverage of ${coverage}`;
  return [element("p", {}, `${caption}: `, element("strong", {}, set.join(", ") || "none fits")),
    bars("All labels, most probable first", "label", Object.entries(probabilities).sort(([, a], [, b]) => b - a))];
}

const CAPABILITIES = {
  "fill-mask": {
    title: "Fill in masks",
    help: "Write [MASK] for each token to predict.",
    fields: () => [
      { name: "text", label: "Text with [MASK]", rows: 3, value: "The keeper lights the [MASK] every [MASK]." },
      { name: "top_k", label: "Predictions per mask", type: "number", min: 1, max: 100, value: 5 },
    ],
    body: ({ text, top_k }) => ({ inputs: text, top_k: Number(top_k) }),
    show: ([masks]) => (masks.length ? masks.map((predictions, n) =>
      bars(`Mask ${n + 1} of ${masks.length}`, "token", predictions.map(({ token, probability }) => [token, probability])))
      : [element("p", {}, "The text has no [MASK].")]),
  },
  predict: {
    title: "Classify",
    titleOf: ({ task }) => (task.labels.length ? "Classify" : "Score"),
    help: "The prediction of the fine-tuned model for a text, or for a pair of texts.",
    fields: predictFields,
    body: ({ text, pair, truncate }) => ({ inputs: pair ? [text, pair] : text, truncate }),
    show: showScores,
  },
  classify: {
    title: "Classify with a guarantee",
    help: "The labels, or the interval, that hold the correct one with the probability that you ask for.",
    fields: (model) => [
      ...predictFields(model),
      { name: "coverage", label: "Coverage", type: "number", min: 0.001, max: 0.999, step: "any", value: 0.9 },
    ],
    body: ({ text, pair, truncate, coverage }) =>
      ({ inputs: pair ? [text, pair] : text, truncate, coverage: Number(coverage) }),
    show: showGuarantee,
  },
  rerank: {
    title: "Rank texts",
    help: "Texts sorted by their relevance to a query.",
    fields: () => [
      { name: "query", label: "Query", value: "Who lights the lamp?" },
      { name: "texts", label: "Texts, one per line", rows: 4, value: `${example}\nThe red bird sings in the tree.\nThe lamp is made of brass.` },
      truncate,
    ],
    body: ({ query, texts, truncate }) => ({ query, texts: lines(texts), truncate }),
    show: (ranks, { texts }) => [bars("Texts, most relevant first", "text",
      ranks.map(({ index, score }) => [lines(texts)[index], score]), "relevance")],
  },
  tag: {
    title: "Tag words",
    help: "A tag for every word; words are separated by white space.",
    fields: () => [{ name: "text", label: "Sentence", rows: 3, value: "Ada Lovelace wrote to Charles Babbage from London ." }],
    body: ({ text }) => ({ inputs: text }),
    show: ([tags], _, { task }) => taggedWords(tags, task.labels),
  },
  answer: {
    title: "Answer questions",
    help: "The span of the text that answers the question.",
    fields: () => [
      { name: "question", label: "Question", value: "Who lights the lamp?" },
      { name: "text", label: "Text", rows: 5, value: example },
      truncate,
    ],
    body: ({ question, text, truncate }) => ({ inputs: [{ question, text }], truncate }),
    show: ([{ answer, start, probability }], { text }) => [
      start === null ? element("p", {}, "The model finds no answer in the text.") : markedText(text, answer, start),
      numberLine("Probability", probability)],
  },
  generate: {
    title: "Generate",
    help: "The text that the model generates from the input.",
    fields: () => [{ name: "text", label: "Text", rows: 4, value: example }, truncate],
    body: ({ text, truncate }) => ({ inputs: text, truncate }),
    show: ([{ prediction, probability }]) => [element("blockquote", {}, String(prediction)), numberLine("Probability", probability)],
  },
  embed: {
    title: "Compare texts",
    help: "The cosine similarity of the embeddings of every two texts.",
    fields: () => [
      { name: "texts", label: "Texts, one per line", rows: 4, value: `${example}\nSomebody switches on the light at night.\nThe red bird sings in the tree.` },
      truncate,
    ],
    body: ({ texts, truncate }) => ({ inputs: lines(texts), truncate }),
    show: (vectors, { texts }) => [heatMap(lines(texts), vectors)],
  },
  explore: {
    title: "Look inside",
    help: "Attention, queries and keys, and the prediction at every position, of up to 64 tokens.",
    fields: () => [{ name: "text", label: "Text", rows: 2, value: example }],
    body: ({ text }) => ({ text }),
    isPage: true,
    show: (page) => [viewerFrame(page)],
  },
};
