"""Small pretrained encoders with small vocabularies, which fine-tune in a moment."""

from collections.abc import Callable

import pytest
import torch

from bertwright.data.tokenization.tokenizer import ByteBpeConfig, Tokenizer, WordPieceConfig
from bertwright.data.vocabulary_training import train_tokenizer
from bertwright.models import Model
from bertwright.models.text_model import TextModel
from small_tasks import ENGLISH
from toy_recipes import toy


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def wordpiece() -> Tokenizer:
    return train_tokenizer([ENGLISH], WordPieceConfig(vocab_size=160))


@pytest.fixture(scope="session")
def byte_bpe() -> Tokenizer:
    return train_tokenizer([ENGLISH], ByteBpeConfig(vocab_size=300))


Pretrained = Callable[..., TextModel]


@pytest.fixture(scope="session")
def pretrained(wordpiece: Tokenizer, byte_bpe: Tokenizer) -> Pretrained:
    """Return a factory of random encoders, initialised large enough to learn from.

    The default precision is float32.
    """

    def build(system: str = "bert", *changes: str, precision: str | None = "float32") -> TextModel:
        recipe = toy(system, "encoder.initialisation={kind: width-aware}", *changes)
        tokenizer = byte_bpe if recipe.text.tokenizer.kind == "byte-bpe" else wordpiece
        return TextModel(Model.build(recipe, tokenizer.vocab_size, tokenizer), tokenizer, precision)

    return build
