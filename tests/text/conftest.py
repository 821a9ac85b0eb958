"""A tokenizer of each kind that learned from the small text."""

from pathlib import Path

import pytest
from small_text import KINDS, stories

from bertwright.text.tokenizers import Tokenizer, TokenizerChoice
from bertwright.text.vocabularies import train_tokenizer


@pytest.fixture(scope="session")
def trained() -> dict[str, Tokenizer]:
    """A tokenizer of each kind."""
    return {
        kind: train_tokenizer(stories(50), TokenizerChoice.choose({"kind": kind, "size": 600}))
        for kind in KINDS
    }


@pytest.fixture(scope="session", params=KINDS)
def tokenizer(request: pytest.FixtureRequest, trained: dict[str, Tokenizer]) -> Tokenizer:
    """Each kind of tokenizer in turn."""
    return trained[request.param]


@pytest.fixture(scope="session")
def wordpiece(trained: dict[str, Tokenizer]) -> Tokenizer:
    """A lower-casing WordPiece tokenizer."""
    return trained["wordpiece"]


@pytest.fixture(scope="session")
def tokenizer_folder(wordpiece: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the WordPiece tokenizer."""
    folder = tmp_path_factory.mktemp("tokenizer")
    wordpiece.save(folder)
    return folder
