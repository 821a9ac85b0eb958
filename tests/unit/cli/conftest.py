"""A pre-trained model, a fine-tuned one and the files of several tasks."""

import json
from pathlib import Path

import pytest

from bertwright.data.tokenization.tokenizer import WordPieceConfig
from bertwright.data.vocabulary_training import train_tokenizer
from bertwright.models import Model
from bertwright.models.text_model import TextModel
from commands import invoke
from small_tasks import ENGLISH, classes, partners, several_labels, tagged
from toy_recipes import toy


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of ``model`` and of the files of several tasks."""
    folder = tmp_path_factory.mktemp("tasks")
    tokenizer = train_tokenizer([ENGLISH], WordPieceConfig(vocab_size=100))
    TextModel(Model.build(toy("bert"), tokenizer.vocab_size), tokenizer).save(folder / "model")
    lines = "".join(f"{e.text}\t{e.label}\n" for e in classes())
    (folder / "train.tsv").write_text(f"text\tlabel\n{lines}")
    (folder / "dev.tsv").write_text(f"text\tlabel\n{lines}")
    (folder / "one").mkdir()
    (folder / "one" / "train.tsv").write_text(f"text\tlabel\n{lines}")
    pairs = [f"{e.text}\t{e.pair}\t{e.negatives[0]}" for e in partners()]
    (folder / "pairs.tsv").write_text("text\tpair\tother\n" + "\n".join(pairs) + "\n")
    scored = "".join(f"{pair}\t5\n" for pair in pairs)
    (folder / "similar.tsv").write_text(f"text\tpair\tother\tlabel\n{scored}")
    labels = [json.dumps({"text": e.text, "label": e.label}) for e in several_labels()]
    (folder / "labels.jsonl").write_text("\n".join(labels) + "\n")
    sentences = [
        "".join(f"{word} {tag}\n" for word, tag in zip(s.words, s.tags, strict=True))
        for s in tagged()
    ]
    (folder / "words.conll").write_text("\n".join(sentences))
    _write_glue(folder / "glue")
    return folder


def _write_glue(folder: Path) -> None:
    binary = [(e.text, int(e.label == "old")) for e in classes()]
    sst2 = "".join(f"{n}\t{text}\t{label}\n" for n, (text, label) in enumerate(binary))
    cola = "".join(f"x\t{label}\t\t{text}\n" for text, label in binary)
    for task, content in (("SST-2", f"index\tsentence\tlabel\n{sst2}"), ("CoLA", cola)):
        (folder / task).mkdir(parents=True)
        for part in ("train", "dev"):
            (folder / task / f"{part}.tsv").write_text(content)


@pytest.fixture(scope="module")
def tuned(folder: Path) -> Path:
    """A model that is fine-tuned on train.tsv."""
    output = folder / "tuned"
    invoke("finetune", folder / "model", "--train", folder / "train.tsv", "-o", output, "epochs=2")
    return output
