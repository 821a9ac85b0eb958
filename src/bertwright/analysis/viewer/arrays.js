
// The values in the page, as matrices.
const data = JSON.parse(byId("data").textContent);

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

// The same of the selected model, or the second model minus the first.
function selectedMatrix(both, { which, kind, layer, head }) {
  if (which !== "difference") return matrix(both[which], kind, layer, head);
  const first = matrix(both.model, kind, layer, head);
  return matrix(both.other, kind, layer, head).map((value, n) => value - first[n]);
}

const largest = (values) => values.reduce((most, value) => Math.max(most, Math.abs(value)), 1e-12);
