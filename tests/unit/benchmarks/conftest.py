"""A small prepared data set, and a small model with a task."""

from pathlib import Path

import pytest

from bertwright.data.preparation import prepare
from bertwright.data.tokenization.tokenizer import WordPieceConfig
from bertwright.data.vocabulary_training import train_tokenizer
from bertwright.models import Model
from bertwright.models.text_model import TextModel
from small_tasks import ENGLISH, classes
from toy_recipes import toy

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
    """Return a data folder of 200 short documents."""
    folder = tmp_path_factory.mktemp("bench")
    documents = [
        " ".join(WORDS[(document * 7 + word * word) % len(WORDS)] for word in range(60)) + "."
        for document in range(200)
    ]
    numbered = [f"{number} {document}" for number, document in enumerate(documents)]
    text = folder / "text.txt"
    text.write_text("\n\n".join(numbered))
    tokenizer = train_tokenizer(numbered, WordPieceConfig(vocab_size=300))
    prepare(text, folder / "data", tokenizer, num_workers=1)
    return folder / "data"


@pytest.fixture(scope="session")
def task_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of a model and of a task with as many development as training examples."""
    folder = tmp_path_factory.mktemp("task")
    tokenizer = train_tokenizer([ENGLISH], WordPieceConfig(vocab_size=100))
    TextModel(Model.build(toy("bert"), tokenizer.vocab_size), tokenizer).save(folder / "model")
    lines = "".join(f"{e.text}\t{'01'[e.label == 'old']}\n" for e in classes())
    for part in ("train", "dev"):
        (folder / f"{part}.tsv").write_text(f"sentence\tlabel\n{lines}")
    return folder
