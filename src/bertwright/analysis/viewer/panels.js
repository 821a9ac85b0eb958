
// The four views. Each draws `state`, which `change` replaces.
const ROW = 24;
const text = () => data.texts[state.text];
const size = () => text().tokens.length;
const quoted = (n) => `${n + 1} “${text().tokens[n]}”`;
const KIND_NAMES = Object.fromEntries([...byId("kind").options].map(({ value, textContent }) => [value, textContent]));

const RIGHT_TO_LEFT = /[\p{Script=Hebrew}\p{Script=Arabic}\p{Script=Syriac}\p{Script=Thaana}\p{Script=Nko}]/u;
const isRightToLeft = () => RIGHT_TO_LEFT.test(text().words.join("").match(/\p{L}/u)?.[0] ?? "");

// Heads that are shown; rollout is one matrix for all heads, shown as a head without a number.
const shownHeads = () => (state.kind === "rollout" ? [null] : state.heads);
const headName = (head) => (head === null ? "all heads" : `head ${head + 1}`);

// Neighbouring heads have distant hues.
function colouredAs(head, node) {
  node.classList.add(head === null ? "plain" : "hued");
  if (head !== null) node.style.setProperty("--hue", (25 + head * 137.508) % 360);
  return node;
}

const computedColour = (node, name) => getComputedStyle(node).getPropertyValue(name);

function tokenButton(token, n) {
  const button = element("button", {
    type: "button", class: "token", "aria-pressed": String(n === state.position), "data-position": n,
    "aria-label": `token ${n + 1} of ${size()}: ${token}`,
  }, element("span", { class: "position" }, String(n + 1)), element("bdi", {}, token));
  button.addEventListener("click", () => change({ position: n }));
  return button;
}

const tokenCell = (token, n) => element("td", {}, tokenButton(token, n));

function drawLegend(most) {
  const heads = state.kind === "rollout" ? [null] : Array.from({ length: data.heads }, (_, head) => head);
  const chips = heads.map((head) => {
    const isShown = head === null || state.heads.includes(head);
    const chip = colouredAs(head, element("button", { type: "button", "aria-pressed": String(isShown), "data-head": head,
      title: isShown ? "Shown; choose it to hide it" : "Hidden; choose it to show it" }, headName(head)));
    chip.addEventListener("click", () => head !== null && change({
      head, heads: isShown ? state.heads.filter((other) => other !== head) : [...state.heads, head].sort((a, b) => a - b) }));
    return chip;
  });
  const preset = (name, chosen) => {
    const button = element("button", { type: "button", "data-head": name }, name);
    button.addEventListener("click", () => change({ heads: chosen }));
    return button;
  };
  byId("legend").replaceChildren(...chips, ...(state.kind === "rollout" ? [] : [preset("all", heads), preset("none", [])]));
  byId("scale").textContent = shownHeads().length
    ? `Lines and squares: from 0, invisible, to ${formatNumber(most)}, full colour, the largest value of the shown heads in layer ${state.layer + 1}. ` +
      (state.which === "difference" ? "Dashed is negative. " : "") + "Strong lines start at the selected query; point at a line or a square for its value."
    : "No head is shown: choose one above.";
}

function drawHeads(both) {
  const heads = shownHeads();
  const number = size();
  const matrices = heads.map((head) => selectedMatrix(both, { ...state, head }));
  const most = Math.max(1e-12, ...matrices.map(largest));
  const value = (n, i, j) => matrices[n][i * number + j];
  const describe = (i, j) => [`Layer ${state.layer + 1}, ${KIND_NAMES[state.kind]}`, `query ${quoted(i)} to key ${quoted(j)}`,
    ...heads.map((head, n) => `${headName(head)}: ${exact(value(n, i, j))}`)];
  drawLegend(most);
  byId("from").replaceChildren(...text().tokens.map((token, n) => element("li", {}, tokenButton(token, n))));
  byId("to-head").replaceChildren(...heads.map((head) =>
    element("span", { class: "cell-number", "aria-hidden": "true" }, head === null ? "" : String(head + 1))), "Key");
  byId("to").replaceChildren(...text().tokens.map((token, n) => {
    const cells = heads.map((head, m) => {
      const one = value(m, state.position, n);
      const cell = colouredAs(head, element("span", { class: one < 0 ? "cell negative" : "cell", "aria-hidden": "true" }));
      cell.style.setProperty("--value", Math.abs(one) / most);
      return cell;
    });
    const item = element("li", {}, ...cells, element("span", { class: "position" }, String(n + 1)), element("bdi", {}, token));
    hover(item, () => (heads.length ? describe(state.position, n) : null));
    return item;
  }));
  const chips = [...byId("legend").querySelectorAll(".hued, .plain")];
  drawLines(heads.map((head) => computedColour(chips[head ?? 0], "--head-colour")), value, most);
  byId("lines").describe = describe;
  drawAttentionTable(heads, value);
}

// Lines of the selected query are strong, those of the others faint.
function drawLines(colours, value, most) {
  const canvas = byId("lines");
  const number = size();
  const width = canvas.clientWidth || 200;
  const scale = devicePixelRatio || 1;
  canvas.width = width * scale;
  canvas.height = number * ROW * scale;
  canvas.style.height = `${number * ROW}px`;
  const pen = canvas.getContext("2d");
  pen.scale(scale, scale);
  const faint = 0.25 / Math.sqrt(Math.max(1, colours.length));
  const queries = [...Array(number).keys()].filter((i) => i !== state.position);
  for (const i of [...queries, state.position])
    for (let j = 0; j < number; j++)
      colours.forEach((colour, n) => {
        const strength = (Math.abs(value(n, i, j)) / most) * (i === state.position ? 1 : faint);
        if (strength < 0.02) return;
        // Lines of several heads lie beside each other.
        const offset = (n - (colours.length - 1) / 2) * Math.min(3, 14 / colours.length);
        pen.globalAlpha = strength;
        pen.strokeStyle = colour;
        pen.lineWidth = i === state.position ? 2 : 1;
        pen.setLineDash(value(n, i, j) < 0 ? [5, 4] : []);
        pen.beginPath();
        pen.moveTo(0, (i + 0.5) * ROW + offset);
        pen.lineTo(width, (j + 0.5) * ROW + offset);
        pen.stroke();
      });
}

// The query and key of the line nearest to the pointer; lines of the selected query come first.
function lineAt(event) {
  const box = byId("lines").getBoundingClientRect();
  const [along, height] = [(event.clientX - box.left) / box.width, event.clientY - box.top];
  let [nearest, best] = [null, 8];
  for (let i = 0; i < size(); i++)
    for (let j = 0; j < size(); j++) {
      const distance = Math.abs((i + (j - i) * along + 0.5) * ROW - height) + (i === state.position ? 0 : 4);
      if (distance < best) [nearest, best] = [[i, j], distance];
    }
  return nearest;
}

hover(byId("lines"), (event) => {
  const line = shownHeads().length ? lineAt(event) : null;
  return line && byId("lines").describe(...line);
});

const NUM_KEYS = 8;

function drawAttentionTable(heads, value) {
  const strength = (j) => Math.max(...heads.map((_, n) => Math.abs(value(n, state.position, j))));
  const order = [...Array(size()).keys()].sort((a, b) => strength(b) - strength(a)).slice(0, NUM_KEYS);
  const label = `Layer ${state.layer + 1}, ${KIND_NAMES[state.kind]}: query ${quoted(state.position)}`;
  byId("lines").setAttribute("aria-label", heads.length
    ? `${label}. Lines to its keys, strongest to key ${quoted(order[0])}; the table below has the values.` : "No head is shown.");
  byId("attention-of").replaceChildren(...(heads.length ? [table(
    `${label}; the ${order.length} of ${size()} keys with the largest values`,
    ["number", "key", ...heads.map((head) => numberHead(headName(head)))],
    order.map((n) => [String(n + 1), text().tokens[n], ...heads.map((_, m) => numberCell(value(m, state.position, n).toFixed(4)))]))] : []));
}

// Draws values as an image: larger values are stronger, negative values have the other colour.
function paint(canvas, values, width, most) {
  const [more, less] = ["--more", "--less"].map((name) =>
    computedColour(document.documentElement, name).match(/[\d.]+/g).map(Number));
  canvas.width = width;
  canvas.height = values.length / width;
  const picture = new ImageData(width, canvas.height);
  for (let n = 0; n < values.length; n++) {
    const [red, green, blue] = values[n] < 0 ? less : more;
    picture.data.set([red, green, blue, Math.min(255, (Math.abs(values[n]) / most) * 255)], 4 * n);
  }
  canvas.getContext("2d").putImageData(picture, 0, 0);
}

function drawModel(both) {
  const heads = state.kind === "rollout" ? [null] : Array.from({ length: data.heads }, (_, head) => head);
  const grid = byId("grid");
  grid.style.gridTemplateColumns = `max-content repeat(${heads.length}, minmax(40px, 120px))`;
  const cells = [element("span", {}, "layer, head"), ...heads.map((head) => element("span", {}, head === null ? "all" : String(head + 1)))];
  for (let layer = 0; layer < data.layers; layer++) {
    cells.push(element("span", {}, String(layer + 1)));
    for (const head of heads) {
      const canvas = element("canvas");
      const values = selectedMatrix(both, { ...state, layer, head });
      paint(canvas, values, size(), largest(values));
      const button = element("button", { type: "button", "aria-label": `layer ${layer + 1}, ${headName(head)}` }, canvas);
      hover(button, (event) => {
        const [key, query] = pixelAt(canvas, event);
        return [`Layer ${layer + 1}, ${headName(head)}`, `query ${quoted(query)} to key ${quoted(key)}: ${exact(values[query * size() + key])}`,
          `largest: ${exact(largest(values))}`];
      });
      button.addEventListener("click", () => change({ layer, tab: "heads", ...(head === null ? {} : { head, heads: [head] }) }));
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
  const strip = (name, values, limit) => {
    const canvas = element("canvas");
    paint(canvas, values, width, limit);
    hover(canvas, (event) => {
      const [dimension] = pixelAt(canvas, event);
      return [`${name}, dimension ${dimension + 1} of ${width}: ${exact(values[dimension])}`];
    });
    return element("td", { class: "strip" }, canvas);
  };
  const rows = text().tokens.map((token, n) => {
    const key = keys.subarray(n * width, (n + 1) * width);
    const product = key.map((value, m) => value * query[m]);
    const sum = product.reduce((total, value) => total + value, 0) / Math.sqrt(width);
    return [tokenCell(token, n), strip(`key ${quoted(n)}`, key, most[1]), strip("product", product, most[0] * most[1]), sum];
  });
  const place = `Layer ${state.layer + 1}, head ${state.head + 1}`;
  byId("strips").replaceChildren(
    table(`${place}: the query of ${quoted(state.position)}, ${width} dimensions`, ["token", "query"],
      [[quoted(state.position), strip(`query ${quoted(state.position)}`, query, most[0])]]),
    table(`${place}: the keys of all ${size()} tokens`, ["token", "key", "query times key", numberHead("score")], rows));
}

function drawWords() {
  byId("sentence").dir = isRightToLeft() ? "rtl" : "ltr";
  byId("sentence").replaceChildren(...text().tokens.map(tokenButton));
  const token = text().tokens[state.position];
  const word = text().word_ids[state.position];
  const parts = [element("p", {}, `Token ${quoted(state.position)} of ${size()}: ` +
    (word < 0 ? "a special token" : `part of word ${word + 1} “${text().words[word]}”`))];
  const prediction = text().predictions[state.position];
  if (data.unavailable.predictions) parts.push(element("p", {}, `No predictions: ${data.unavailable.predictions}.`));
  else if (prediction)
    parts.push(table("Predictions at this position, with its word masked", ["token", numberHead("probability")],
      [...prediction.tokens.map((name, n) => [name, prediction.probabilities[n]]),
        [`${token} (the actual token)`, prediction.actual_token_probability]]));
  if (word >= 0 && text().neighbours)
    parts.push(table("Nearest words in other texts, by cosine of their states", ["layer", "words, their texts and cosines"],
      text().neighbours.map((layers, layer) => [
        layer ? String(layer) : "embeddings",
        layers[word].map((other, n) => {
          const [from, name] = data.words[other];
          return `${name} (text ${from + 1}, ${text().cosines[layer][word][n].toFixed(2)})`;
        }).join("; ")])));
  byId("of-word").replaceChildren(...parts);
}
