"""Pieces by their characters: the equations, the spelling, and that each piece has its own."""

import numpy as np
import pytest
import torch

from bertwright.errors import UserError
from bertwright.model import Model
from bertwright.model.folder import load_model, save_model
from bertwright.recipes import Recipe
from bertwright.text.spelling import spelled, spelling
from bertwright.text.tokenizers import WordsChoice
from bertwright.text.vocabularies import train_tokenizer
from recipes_at_toy_size import VOCABULARY, shaken, toy

TEXT = "a cat is no cataract, and a café is no cat"


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer([TEXT], WordsChoice(size=20))


def built(*overrides: str) -> Model:
    return shaken(Model.build(toy("elmo", *overrides), VOCABULARY).double(), 0.2)


def written_out(table, characters):
    """One piece of characters (C,), filter by filter and window by window."""
    names = dict(table.named_parameters())
    x = names["characters.weight"][characters]
    answers = []
    for number in range(len(table.filters)):
        weight, bias = names[f"filters.{number}.weight"], names[f"filters.{number}.bias"]
        kernel = weight.view(len(weight), x.shape[1], -1)
        wide = kernel.shape[2]
        found = [
            torch.einsum("kf,nfk->n", x[start : start + wide], kernel) + bias
            for start in range(len(x) - wide + 1)
        ]
        answers.append(torch.relu(torch.stack(found).amax(0)))
    joined = torch.cat(answers)
    for number in range(len(table.highways)):
        made = names[f"highways.{number}.both.weight"] @ joined
        new, gate = (made + names[f"highways.{number}.both.bias"]).chunk(2)
        share = torch.sigmoid(gate - 2.0)
        joined = share * torch.relu(new) + (1 - share) * joined
    return names["projection.weight"] @ joined + names["projection.bias"]


def test_the_vector_of_a_piece_is_its_equations():
    model = built()
    table = model.encoder.embeddings.pieces
    pieces = torch.tensor([[7, 3, 7], [39, 0, 12]])
    expected = [written_out(table, table.spelling[p].long()) for p in pieces.flatten()]
    found = table(pieces)
    torch.testing.assert_close(found.flatten(0, 1), torch.stack(expected), atol=1e-9, rtol=1e-9)


def test_both_halves_begin_with_the_same_vector():
    model = built()
    with model.record("embeddings.output") as values:
        model(torch.tensor([[7, 3, 7]]))
    first, second = values["embeddings.output"].chunk(2, -1)
    assert torch.equal(first, second)


def test_what_is_read_elsewhere_does_not_change_a_vector():
    table = built().encoder.embeddings.pieces
    alone, together = table(torch.tensor([9])), table(torch.tensor([4, 9, 30]))
    torch.testing.assert_close(alone[0], together[1], atol=1e-12, rtol=1e-12)


def test_words_are_framed_cut_and_filled_up():
    assert spelled(["cat", ""], 7).tolist() == [
        [259, 100, 98, 117, 260, 261, 261],
        [259, 260, 261, 261, 261, 261, 261],
    ]
    assert spelled(["cataract"], 5).tolist() == [[259, 100, 98, 117, 260]]


def test_every_piece_is_spelled_as_it_is_written(tokenizer):
    found = spelling(tokenizer, 22, 8)
    assert found.shape == (22, 8)
    assert found[tokenizer.specials.pad].tolist() == [0] * 8
    assert found[tokenizer.specials.start].tolist() == [259, 257, 260, *[261] * 5]
    assert found[tokenizer.specials.end].tolist() == [259, 258, 260, *[261] * 5]
    cafe = tokenizer.id("café")
    assert [c - 1 for c in found[cafe][1:6]] == list("café".encode())
    assert len(np.unique(found[: tokenizer.size], axis=0)) == tokenizer.size


def test_a_model_folder_keeps_the_spelling(tokenizer, tmp_path):
    model = Model.build(toy("elmo"), tokenizer.size, tokenizer)
    expected = torch.from_numpy(spelling(tokenizer, tokenizer.size, 6))
    assert torch.equal(model.encoder.embeddings.pieces.spelling, expected)
    save_model(tmp_path / "m", model, tokenizer)
    again, _ = load_model(tmp_path / "m")
    assert torch.equal(again.encoder.embeddings.pieces.spelling, expected)


def test_words_are_numbered_by_their_frequency(tokenizer):
    assert tokenizer.kind == "words"
    assert [tokenizer.piece(i) for i in range(5, 10)] == ["a", "cat", "is", "no", ","]
    assert tokenizer.encode("a cat unheard") == [5, 6, tokenizer.specials.unknown]
    assert tokenizer.decode(tokenizer.encode("a cat is")) == "a cat is"


@pytest.mark.parametrize(
    "change",
    [
        "output={kind: tied, transform: false}",
        "objectives={causal: null, masked: {}, span-boundary: {}}",
    ],
)
def test_what_needs_one_table_is_refused(change):
    with pytest.raises(UserError, match="table of pieces"):
        Recipe.load("lstm-lm", "encoder.embeddings={kind: characters, norm: false}", change)
