"""The recurrent decoder with attention: its equations, its dropout, and generation."""

import pytest
import torch
from torch import nn

from bertwright.core.errors import UserError
from bertwright.models import Model
from bertwright.models.generation.sequences import UncachedDecoderSequences
from bertwright.modules.dropout_rng import DropoutRng
from bertwright.modules.token_tensors import CrossAttentionSource, TokenInfo
from bertwright.recipes import Recipe
from toy_recipes import VOCABULARY, shaken, toy

SOURCES = [[2, 7, 9, 11, 3], [2, 8, 3]]
PADDED = torch.tensor([[2, 7, 9, 11, 3], [2, 8, 3, 0, 0]])
DOCUMENTS = torch.tensor([[0] * 5, [0, 0, 0, -1, -1]])
TARGETS = torch.tensor([[2, 5, 6, 30], [2, 31, 5, 7]])


@pytest.fixture(scope="module")
def model() -> Model:
    return shaken(Model.build(toy("cove"), VOCABULARY).double().eval(), 0.3).requires_grad_(False)


def encode(model: Model) -> CrossAttentionSource:
    info = TokenInfo(torch.arange(5)[None], document_ids=DOCUMENTS)
    return CrossAttentionSource(model.encoder(PADDED, info), info)


def stock_cells(model: Model) -> list[nn.LSTMCell]:
    """Return PyTorch's cells with the weights of the decoder."""
    cells = []
    for layer in model.decoder.network.layers:
        cell = nn.LSTMCell(layer.input.in_features, layer.recurrent.in_features).double()
        cell.weight_ih.data, cell.weight_hh.data = layer.input.weight, layer.recurrent.weight
        cell.bias_ih.data, cell.bias_hh.data = layer.input.bias, layer.recurrent_bias
        cells.append(cell.requires_grad_(False))
    return cells


def test_states_follow_the_equations(model):
    source, network, cells = encode(model), model.decoder.network, stock_cells(model)
    table, states = model.embedding_table, model.decoder.decode(TARGETS, encode(model))
    for sentence, expected in enumerate(states):
        keys = source.hidden_states[sentence, : len(SOURCES[sentence])]
        attended = torch.zeros(keys.shape[1], dtype=torch.float64)
        carried = [(attended, attended) for _ in cells]
        for token, state in zip(TARGETS[sentence], expected, strict=True):
            h = torch.cat((table[token], attended))
            for number, cell in enumerate(cells):
                carried[number] = cell(h, carried[number])
                h = carried[number][0]
            weights = torch.softmax(keys @ (network.query.weight @ h + network.query.bias), 0)
            joined = torch.cat((weights @ keys, h))
            attended = torch.tanh(network.combination.weight @ joined + network.combination.bias)
            torch.testing.assert_close(state, attended, atol=1e-9, rtol=1e-9)


def test_dropout_depends_on_the_step(model):
    decoded = [
        model.decoder.decode(TARGETS, encode(model), dropout_rng=DropoutRng.for_step(0, step))
        for step in (1, 1, 2)
    ]
    assert torch.equal(decoded[0], decoded[1])
    assert not torch.equal(decoded[0], decoded[2])


def test_generated_tokens_are_those_of_one_pass(model):
    sequences = UncachedDecoderSequences(model, SOURCES, [2, 2], [0, 0], 0, None, None)
    expected = model.logits(model.decoder.decode(TARGETS, encode(model)).flatten(0, 1))
    expected = expected.view(2, 4, -1)
    torch.testing.assert_close(sequences.logits(), expected[:, 0])
    sequences.append([5, 31])
    sequences.select([1, 0, 1])
    sequences.append([5, 6, 5])
    torch.testing.assert_close(sequences.logits(), expected[[1, 0, 1], 2])


def test_embeddings_need_a_single_table():
    change = "encoder.embeddings={kind: characters, norm: false}"
    with pytest.raises(UserError, match="decoder: it shares the token table"):
        Recipe.load("cove", change)
