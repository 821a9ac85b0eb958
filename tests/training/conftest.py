"""A small prepared data set, made once."""

from pathlib import Path

import numpy as np
import pytest

from bertwright.text.preparation import prepare
from bertwright.text.shards import Data
from bertwright.text.tokenizers import ByteBpeChoice, WordPieceChoice
from bertwright.text.vocabularies import train_tokenizer
from bertwright.training import pretraining

TEXT = """the a old young small great red blue house river mountain farmer teacher horse bird song
walks sings sees builds carries remembers slowly quickly often never under over beside and"""
WORDS = TEXT.split()


def stories(number: int, seed: int = 0) -> list[str]:
    """Documents of made-up sentences; words repeat within a document more than between them."""
    draw = np.random.default_rng(seed)
    texts: list[str] = []
    for _ in range(number):
        favourites = draw.choice(WORDS, 8)
        sentences = [
            " ".join(draw.choice(favourites if draw.random() < 0.7 else WORDS, 9)).capitalize()
            for _ in range(draw.integers(4, 12))
        ]
        texts.append(". ".join(sentences) + ".")
    return texts


def prepared(folder: Path, kind: str = "wordpiece") -> Data:
    """The stories as a data set."""
    texts = stories(120)
    choices = {"wordpiece": WordPieceChoice(size=120), "byte-bpe": ByteBpeChoice(size=320)}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "stories.txt").write_text("\n\n".join(texts))
    tokenizer = train_tokenizer(texts, choices[kind])
    return prepare(folder / "stories.txt", folder / "data", tokenizer, heldout=0.2, num_workers=1)


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Data:
    return prepared(tmp_path_factory.mktemp("stories"))


@pytest.fixture(scope="session")
def byte_data(tmp_path_factory: pytest.TempPathFactory) -> Data:
    """The same documents in other pieces."""
    return prepared(tmp_path_factory.mktemp("bytes"), "byte-bpe")


@pytest.fixture(autouse=True)
def peak(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measuring the machine takes longer than these runs."""
    monkeypatch.setattr(pretraining, "known_matrix_peak", lambda *_: 1e11)
