"""The loss of Skip-Thought, computed sentence by sentence."""

import pytest
import torch
from torch import Tensor

from bertwright.models import Model
from bertwright.objectives.model_output import ModelOutput
from toy_recipes import VOCABULARY, shaken, toy, toy_batch


def read(weights: list[Tensor], inputs: Tensor, condition: Tensor | None = None) -> list[Tensor]:
    """Return the states of gated recurrent units (Kiros et al. 2015, equations 1 to 8)."""
    w_r, w_z, w_n, u_r, u_z, u_n = (part for weight in weights[:2] for part in weight.chunk(3))
    c_r, c_z, c_n = (
        (0.0, 0.0, 0.0) if condition is None else (part @ condition for part in weights[2].chunk(3))
    )
    h, states = inputs.new_zeros(len(u_r)), []
    for x in inputs:
        r = torch.sigmoid(w_r @ x + u_r @ h + c_r)
        z = torch.sigmoid(w_z @ x + u_z @ h + c_z)
        h = (1 - z) * torch.tanh(w_n @ x + u_n @ (r * h) + c_n) + z * h
        states.append(h)
    return states


def sentence_vector(mixer, inputs: Tensor) -> Tensor:
    """Return the last state of each reading direction."""
    last_states = [
        read([layer.input.weight, layer.recurrent.weight], ordered)[-1]
        for layer, ordered in zip(mixer.direction_layers, (inputs, inputs.flip(0)), strict=False)
    ]
    return torch.cat(last_states)


@pytest.mark.parametrize("system", ["skip-thought", "bi-skip"])
def test_loss_follows_the_equations_of_the_paper(system):
    recipe = toy(system, "encoder.depth.layers=1")
    model = shaken(Model.build(recipe, VOCABULARY).double(), 0.3)
    batch, names = toy_batch(recipe, 0), dict(model.named_parameters())
    head = "heads.neighbouring-sentences"
    table = names["encoder.embeddings.tokens.weight"]
    total, num_tokens, num_correct = torch.zeros((), dtype=torch.float64), 0, 0
    for tokens, documents in zip(batch.token_ids, batch.token_info.document_ids, strict=True):
        sentences = [tokens[documents == number] for number in range(int(documents.max()) + 1)]
        mixer = model.encoder.blocks[0].sublayers["attention"]
        vectors = [sentence_vector(mixer, table[sentence]) for sentence in sentences]
        for number, sentence in enumerate(sentences):
            for decoder, neighbour in ((0, number + 1), (1, number - 1)):
                if not 0 <= neighbour < len(sentences):
                    continue
                prefix = f"{head}.decoders.{decoder}"
                weights = [names[f"{prefix}.gru.input.weight"]]
                weights += [names[f"{prefix}.gru.recurrent.weight"]]
                weights += [names[f"{prefix}.condition.weight"]]
                states = torch.stack(read(weights, table[sentence[:-1]], vectors[neighbour]))
                logits = states @ names[f"{head}.output.weight"].T + names[f"{head}.bias"]
                total += torch.nn.functional.cross_entropy(logits, sentence[1:], reduction="sum")
                num_tokens += len(sentence) - 1
                num_correct += int((logits.argmax(1) == sentence[1:]).sum())
    loss = model.losses(batch, recipe.objectives)["neighbouring-sentences"]
    assert loss.count == num_tokens > 0
    assert float(loss.sum.detach()) == pytest.approx(float(total.detach()), rel=1e-6)
    assert int(loss.num_correct) == num_correct
    objective = recipe.objectives["neighbouring-sentences"]
    targets = batch.targets["neighbouring-sentences"]
    states = model.encoder(batch.token_ids, batch.token_info)
    output = ModelOutput(batch.token_ids, states, model.embedding_table, None, {}, batch.token_info)
    logits = objective.logits(targets, output, model.heads["neighbouring-sentences"])
    losses = torch.nn.functional.cross_entropy(logits, targets.labels, reduction="none")
    assert torch.allclose((losses * targets.weights).sum(), total, rtol=1e-6)
    flops = objective.head_flops(recipe.encoder, VOCABULARY, 24, recipe.objectives)
    decoders = model.heads["neighbouring-sentences"].decoders
    num_weights = sum(weight.numel() for weight in decoders.parameters() if weight.ndim == 2)
    # Both decoders read the same output table.
    assert flops == 2 * (num_weights + 2 * names[f"{head}.output.weight"].numel())
