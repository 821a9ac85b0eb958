"""A prepared data set, and a task with a model, small enough to be made anew."""

from pathlib import Path

import pytest

from bertwright.model import Model
from bertwright.model.text_model import TextModel
from bertwright.text.preparation import prepare
from bertwright.text.tokenizers import WordPieceChoice
from bertwright.text.vocabularies import train_tokenizer
from recipes_at_toy_size import toy
from small_tasks import ENGLISH, classes

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


@pytest.fixture(scope="session")
def task_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, and a task with as many examples to judge by as to learn from."""
    folder = tmp_path_factory.mktemp("adapting")
    tokenizer = train_tokenizer([ENGLISH], WordPieceChoice(size=100))
    TextModel(Model.build(toy("bert"), tokenizer.size), tokenizer).save(folder / "model")
    rows = "".join(f"{e.first}\t{'01'[e.label == 'old']}\n" for e in classes())
    for part in ("train", "dev"):
        (folder / f"{part}.tsv").write_text(f"sentence\tlabel\n{rows}")
    return folder
