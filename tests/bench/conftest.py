"""A prepared data set, small enough to be made anew."""

from pathlib import Path

import pytest

from bertwright.text.preparation import prepare
from bertwright.text.tokenizers import WordPieceChoice
from bertwright.text.vocabularies import train_tokenizer

WORDS = [
    "the",
    "a",
    "big",
    "small",
    "old",
    "new",
    "cat",
    "dog",
    "bird",
    "house",
    "tree",
    "runs",
    "sees",
    "likes",
    "finds",
    "leaves",
]


@pytest.fixture(scope="session")
def data_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder of 200 short documents."""
    folder = tmp_path_factory.mktemp("bench")
    documents = [
        " ".join(WORDS[(document * 7 + word * word) % len(WORDS)] for word in range(60)) + "."
        for document in range(200)
    ]
    numbered = [f"{number} {document}" for number, document in enumerate(documents)]
    text = folder / "text.txt"
    text.write_text("\n\n".join(numbered))
    tokenizer = train_tokenizer(numbered, WordPieceChoice(size=300))
    prepare(text, folder / "data", tokenizer, num_workers=1)
    return folder / "data"
