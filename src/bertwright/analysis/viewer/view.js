
// The page is drawn from `state`; code that changes `state` calls `draw`.
const state = {
  tab: "heads", text: 0, layer: 0, head: 0, heads: Array.from({ length: data.heads }, (_, head) => head),
  position: 0, kind: "weights", which: "model",
};

const VIEWS = {
  heads: { draw: drawHeads, needs: "attention", choices: ["layer", "kind", "which"] },
  model: { draw: drawModel, needs: "attention", choices: ["kind", "which"] },
  neurons: { draw: drawNeurons, needs: "neurons", choices: ["layer", "head"] },
  words: { draw: drawWords, needs: null, choices: [] },
};

const KIND_HELP = {
  weights: "Attention weight: the fraction of its attention that a query gives to a key. The weights of a query sum to 1.",
  effective: "Effective attention: the part of the weights that can change the output of the layer (Brunner et al. 2020).",
  norms: "Weight times the norm of the transformed value: how much a key adds to the output of a query (Kobayashi et al. 2020).",
  rollout: "Rollout: attention multiplied over the layers up to this one, heads averaged (Abnar and Zuidema 2020).",
};

// Drop a request if a newer one arrives while it waits for arrays.
let drawRequest = 0;

async function draw() {
  const request = ++drawRequest;
  const both = await arraysOf(state.text);
  if (request !== drawRequest) return;
  const view = VIEWS[state.tab];
  markTab(state.tab);
  for (const tab of Object.keys(VIEWS)) byId(tab).hidden = tab !== state.tab;
  for (const name of ["layer", "head", "kind", "which"])
    byId(name).closest("label").hidden = !view.choices.includes(name) || (name === "which" && data.other === null);
  for (const name of ["text", "layer", "head", "kind", "which"]) byId(name).value = String(state[name]);
  byId("kind-help").textContent = view.choices.includes("kind") ? KIND_HELP[state.kind] : "";
  const why = view.needs && data.unavailable[view.needs];
  if (why) byId(state.tab).replaceChildren(element("p", {}, `Not available: ${why}.`));
  else view.draw(both);
  document.body.dataset.drawn = JSON.stringify(state);
}

function change(changes) {
  const { position, head } = document.activeElement?.dataset ?? {};
  Object.assign(state, changes);
  state.position = Math.min(state.position, size() - 1);
  return draw().then(() => {
    // Redrawn elements keep the focus.
    if (position !== undefined) byId(state.tab).querySelector(`button[data-position="${state.position}"]`)?.focus();
    if (head !== undefined) byId(state.tab).querySelector(`button[data-head="${head}"]`)?.focus();
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
options("text", data.texts.map((one, n) => [n, `${n + 1}. ${one.words.join(" ").slice(0, 60)}`]));
options("layer", numbered(data.layers));
options("head", numbered(data.heads));
options("kind", Object.entries(KIND_NAMES));
options("which", [["model", data.model], ["other", data.other], ["difference", `${data.other} minus ${data.model}`]]);

const markTab = tabs(byId("tabs"), (tab) => change({ tab }));

// What a key changes. Tokens of a right-to-left text go on to the left.
function moveOf({ key, shiftKey }) {
  const clamp = (number, count) => Math.min(count - 1, Math.max(0, number));
  if (shiftKey) {
    const [layer, head] = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[key] ?? [];
    if (layer) return { layer: clamp(state.layer + layer, data.layers) };
    return head ? { head: clamp(state.head + head, data.heads), heads: [clamp(state.head + head, data.heads)] } : null;
  }
  const next = isRightToLeft() ? -1 : 1;
  const step = { ArrowLeft: -next, ArrowRight: next, ArrowUp: -1, ArrowDown: 1, Home: -Infinity, End: Infinity }[key];
  return step ? { position: clamp(state.position + step, size()) } : null;
}

document.addEventListener("keydown", (event) => {
  if (event.target.tagName === "SELECT" || event.ctrlKey || event.altKey || event.metaKey) return;
  const move = moveOf(event);
  if (!move) return;
  event.preventDefault();
  change(move);
});
document.addEventListener("theme", draw);
addEventListener("resize", draw);
draw();
