"""Small encoders with a vocabulary of their own, to be fine-tuned in a moment."""

from collections.abc import Callable

import pytest
import torch

from bertwright.model import Model
from bertwright.model.text_model import TextModel
from bertwright.text.tokenizers import ByteBpeChoice, Tokenizer, WordPieceChoice
from bertwright.text.vocabularies import train_tokenizer
from recipes_at_toy_size import toy
from small_tasks import ENGLISH


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def wordpiece() -> Tokenizer:
    return train_tokenizer([ENGLISH], WordPieceChoice(size=160))


@pytest.fixture(scope="session")
def byte_bpe() -> Tokenizer:
    return train_tokenizer([ENGLISH], ByteBpeChoice(size=300))


Pretrained = Callable[..., TextModel]


@pytest.fixture(scope="session")
def pretrained(wordpiece: Tokenizer, byte_bpe: Tokenizer) -> Pretrained:
    """An encoder of a system, as if it came from pre-training: its states are of a size to learn
    from; in float32 unless told."""

    def make(system: str = "bert", *changes: str, precision: str | None = "float32") -> TextModel:
        recipe = toy(system, "encoder.initialisation={kind: width-aware}", *changes)
        tokenizer = byte_bpe if recipe.text.tokenizer.kind == "byte-bpe" else wordpiece
        return TextModel(Model.build(recipe, tokenizer.size, tokenizer), tokenizer, precision)

    return make
