"""Tokenizers of every kind, trained on the small text."""

from pathlib import Path

import pytest

from bertwright.data.tokenization.tokenizer import Tokenizer, TokenizerConfig
from bertwright.data.vocabulary_training import train_tokenizer
from small_text import KINDS, stories


@pytest.fixture(scope="session")
def trained() -> dict[str, Tokenizer]:
    """Return a trained tokenizer of each kind."""
    return {
        kind: train_tokenizer(stories(50), TokenizerConfig.parse({"kind": kind, "vocab_size": 600}))
        for kind in KINDS
    }


@pytest.fixture(scope="session", params=KINDS)
def tokenizer(request: pytest.FixtureRequest, trained: dict[str, Tokenizer]) -> Tokenizer:
    """Return each tokenizer in turn."""
    return trained[request.param]


@pytest.fixture(scope="session")
def wordpiece(trained: dict[str, Tokenizer]) -> Tokenizer:
    """Return a lower-casing WordPiece tokenizer."""
    return trained["wordpiece"]


@pytest.fixture(scope="session")
def tokenizer_folder(wordpiece: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the WordPiece tokenizer."""
    folder = tmp_path_factory.mktemp("tokenizer")
    wordpiece.save(folder)
    return folder
