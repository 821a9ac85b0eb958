"""Vectors from selected layers."""

import numpy as np
import pytest
import torch

from bertwright.core.errors import UserError
from bertwright.data.tokenization.tokenizer import WordPieceConfig
from bertwright.data.vocabulary_training import train_tokenizer
from bertwright.models import Model
from bertwright.models.layer_selection import select_layers
from bertwright.models.text_model import TextModel
from toy_recipes import toy

TEXTS = ["a dog sees the cat", "the cat", "dogs, cats and the sea"]


@pytest.fixture(scope="module", params=["bert", "modern", "sandwich", "lstm-lm"])
def model(request: pytest.FixtureRequest) -> TextModel:
    tokenizer = train_tokenizer(TEXTS * 5, WordPieceConfig(vocab_size=60))
    recipe = toy(
        request.param, f"text.tokenizer.vocab_size={tokenizer.vocab_size}", "encoder.depth.layers=3"
    )
    return TextModel(Model.build(recipe, tokenizer.vocab_size), tokenizer, "float32")


def layer(model: TextModel, index: int) -> list[np.ndarray]:
    """Return every text's hidden states of a layer, from a full recorded pass."""
    specials, depth = model.tokenizer.special_tokens, len(model.model.encoder.blocks)
    names = [
        "embeddings.output",
        *(f"blocks.{block}.residual" for block in range(depth - 1)),
        "output",
    ]
    states = []
    for text in TEXTS:
        ids = [specials.start, *model.tokenizer.encode(text), specials.end]
        with torch.no_grad(), model.model.record("*") as values:
            model.model(torch.tensor([ids]))
        states.append(values[names[index]][0].numpy())
    return states


@pytest.mark.processor
def test_selected_layers_equal_those_of_a_full_pass(model: TextModel) -> None:
    depth = len(model.model.encoder.blocks)
    layers = [layer(model, number) for number in range(depth + 1)]
    for number in range(depth + 1):
        for states, expected in zip(model.encode(TEXTS, str(number)), layers[number], strict=True):
            np.testing.assert_allclose(states, expected, atol=1e-5)
    for text in range(len(TEXTS)):
        selected = [layers[number][text] for number in (1, 2)]
        for mix, expected in {
            "concat": np.concatenate(selected, axis=1),
            "sum": np.sum(selected, axis=0),
            "mean": np.mean(selected, axis=0),
        }.items():
            np.testing.assert_allclose(model.encode(TEXTS, "1-2", mix)[text], expected, atol=1e-5)
            vector = model.embed(TEXTS, layers="1-2", mix=mix)[text]
            np.testing.assert_allclose(vector, expected.mean(axis=0), atol=1e-5)


def test_no_texts_give_an_empty_matrix_of_the_same_width(model: TextModel) -> None:
    assert model.embed([], layers="last-2").shape == (0, 64)


@pytest.mark.parametrize(
    ("layers", "indices"),
    [
        ("last", (6,)),
        ("last-4", (3, 4, 5, 6)),
        ("last-but-one", (5,)),
        ("last-9", (1, 2, 3, 4, 5, 6)),
        ("all", (1, 2, 3, 4, 5, 6)),
        ("0", (0,)),
        ("2,5-6,2", (2, 5, 6)),
    ],
)
def test_layers_have_names(layers: str, indices: tuple[int, ...]) -> None:
    assert select_layers(layers, "sum", [8] * 7).indices == indices


@pytest.mark.parametrize("layers", ["7", "5-7", "4-2", "first", "", "last-0"])
def test_unknown_layers_are_refused(layers: str) -> None:
    with pytest.raises(UserError, match="no layers"):
        select_layers(layers, "sum", [8] * 7)
    with pytest.raises(UserError, match="unknown layer mix 'product'"):
        select_layers("1", "product", [8] * 7)  # type: ignore[arg-type]


def test_a_model_without_blocks_has_its_embeddings_only() -> None:
    assert select_layers("0", "sum", [8]).indices == select_layers("last", "sum", [8]).indices
    with pytest.raises(UserError, match="no layers 'all': the model has the embeddings only"):
        select_layers("all", "sum", [8])


def test_layers_of_different_widths_can_only_be_concatenated() -> None:
    assert select_layers("1-3", "concat", [4, 9, 9, 4]).width == 22
    assert select_layers("1-2", "mean", [4, 9, 9, 4]).width == 9
    with pytest.raises(UserError, match=r"layers 1-3 have widths \[4, 9\], which have no mean"):
        select_layers("1-3", "mean", [4, 9, 9, 4])
