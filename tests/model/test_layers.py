"""Vectors are made of the layers that were asked for."""

import numpy as np
import pytest
import torch

from bertwright.errors import UserError
from bertwright.model import Model
from bertwright.model.layers import layers_of
from bertwright.model.text_model import TextModel
from bertwright.text.tokenizers import WordPieceChoice
from bertwright.text.vocabularies import train_tokenizer
from recipes_at_toy_size import toy

TEXTS = ["a dog sees the cat", "the cat", "dogs, cats and the sea"]


@pytest.fixture(scope="module", params=["bert", "modern", "sandwich", "lstm-lm"])
def model(request: pytest.FixtureRequest) -> TextModel:
    tokenizer = train_tokenizer(TEXTS * 5, WordPieceChoice(size=60))
    recipe = toy(request.param, f"text.tokenizer.size={tokenizer.size}", "encoder.depth.layers=3")
    return TextModel(Model.build(recipe, tokenizer.size), tokenizer, "float32")


def layer(model: TextModel, number: int) -> list[np.ndarray]:
    """Every layer by the definition: text by text, everything recorded."""
    specials, depth = model.tokenizer.specials, len(model.model.encoder.blocks)
    name = ["embeddings.output", *(f"blocks.{n}.residual" for n in range(depth - 1)), "output"]
    found = []
    for text in TEXTS:
        ids = [specials.start, *model.tokenizer.encode(text), specials.end]
        with torch.no_grad(), model.model.record("*") as values:
            model.model(torch.tensor([ids]))
        found.append(values[name[number]][0].numpy())
    return found


@pytest.mark.processor
def test_layers_are_those_of_the_whole_pass_and_mix_as_asked(model: TextModel) -> None:
    depth = len(model.model.encoder.blocks)
    each = [layer(model, number) for number in range(depth + 1)]
    for number in range(depth + 1):
        for found, expected in zip(model.encode(TEXTS, str(number)), each[number], strict=True):
            np.testing.assert_allclose(found, expected, atol=1e-5)
    for text in range(len(TEXTS)):
        some = [each[number][text] for number in (1, 2)]
        for mix, expected in {
            "concat": np.concatenate(some, axis=1),
            "sum": np.sum(some, axis=0),
            "mean": np.mean(some, axis=0),
        }.items():
            np.testing.assert_allclose(model.encode(TEXTS, "1-2", mix)[text], expected, atol=1e-5)
            vector = model.embed(TEXTS, layers="1-2", mix=mix)[text]
            np.testing.assert_allclose(vector, expected.mean(axis=0), atol=1e-5)


def test_no_texts_have_vectors_of_the_same_width(model: TextModel) -> None:
    assert model.embed([], layers="last-2").shape == (0, 64)


@pytest.mark.parametrize(
    ("said", "numbers"),
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
def test_layers_have_names(said: str, numbers: tuple[int, ...]) -> None:
    assert layers_of(said, "sum", [8] * 7).numbers == numbers


@pytest.mark.parametrize("said", ["7", "5-7", "4-2", "first", "", "last-0"])
def test_what_names_no_layers_is_refused(said: str) -> None:
    with pytest.raises(UserError, match="no layers"):
        layers_of(said, "sum", [8] * 7)
    with pytest.raises(UserError, match="not mixed by 'product'"):
        layers_of("1", "product", [8] * 7)  # type: ignore[arg-type]


def test_layers_of_different_widths_stand_side_by_side_only() -> None:
    assert layers_of("1-3", "concat", [4, 9, 9, 4]).width == 22
    assert layers_of("1-2", "mean", [4, 9, 9, 4]).width == 9
    with pytest.raises(UserError, match=r"layers 1-3 are \[4, 9\] wide, which have no mean"):
        layers_of("1-3", "mean", [4, 9, 9, 4])
