"""Small inputs of every kind: text, a tokenizer, data, models, a task."""

import json
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertwright.data.preparation import prepare
from bertwright.data.tokenization.tokenizer import WordPieceConfig
from bertwright.data.vocabulary_training import train_tokenizer_on_files
from bertwright.interop.huggingface.exporter import export_huggingface
from bertwright.models import Model
from bertwright.models.text_model import TextModel
from bertwright.recipes import Recipe
from bertwright.recipes.loading import apply_overrides
from bertwright.tasks.catalogue import table_task
from bertwright.tasks.finetuning.finetune import finetune
from bertwright.tasks.formats.tables import Columns

WORDS = [
    *("the", "a", "red", "old", "new", "small", "bird", "tree", "ship", "house"),
    *("sees", "builds", "finds", "likes", "river", "never"),
]

TINY = (
    "encoder.width=16",
    "encoder.depth.layers=2",
    "encoder.mixer.heads=2",
    "encoder.positions.size=32",
    "assembly.length=32",
    "batch_tokens=256",
    "precision=float32",
    "compile=false",
)


@dataclass(frozen=True)
class Workspace:
    """Paths of all inputs in a folder."""

    folder: Path

    @property
    def text(self) -> Path:
        return self.folder / "text.txt"

    @property
    def lines(self) -> Path:
        """File with one text per line."""
        return self.folder / "lines.txt"

    @property
    def tokenizer(self) -> Path:
        return self.folder / "tokenizer"

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def model(self) -> Path:
        return self.folder / "model"

    @property
    def tuned(self) -> Path:
        """Fine-tuned model folder."""
        return self.folder / "tuned"

    @property
    def huggingface(self) -> Path:
        return self.folder / "huggingface"

    @property
    def study(self) -> Path:
        """Study of two arms of a few steps."""
        return self.folder / "study.yaml"

    @property
    def task(self) -> Path:
        """Folder with train.tsv and dev.tsv."""
        return self.folder / "task"


def make_workspace(folder: Path) -> Workspace:
    """Write all inputs into an empty folder."""
    workspace, rng = Workspace(folder), random.Random(0)
    folder.mkdir(parents=True, exist_ok=True)

    def sentence() -> str:
        return " ".join(rng.choices(WORDS, k=rng.randint(3, 12))).capitalize() + "."

    workspace.text.write_text(
        "\n\n".join("\n".join([sentence() for _ in range(6)]) for _ in range(80))
    )
    workspace.lines.write_text("".join(f"{sentence()}\n" for _ in range(300)))
    workspace.task.mkdir()
    for name, number in (("train", 40), ("dev", 16)):
        rows = ((sentence(), ("old", "new")[number % 2]) for number in range(number))
        table = "".join(f"{text}\t{label}\n" for text, label in rows)
        (workspace.task / f"{name}.tsv").write_text(f"text\tlabel\n{table}")
    (folder / "rows.jsonl").write_text(
        "".join(json.dumps({"text": sentence(), "lang": "en"}) + "\n" for _ in range(20))
    )
    tokenizer = train_tokenizer_on_files(
        [workspace.text], workspace.tokenizer, WordPieceConfig(vocab_size=120), num_workers=1
    )
    prepare(workspace.text, workspace.data, workspace.tokenizer, num_workers=1)
    model = TextModel(Model.build(Recipe.load("bert-tiny", *TINY), tokenizer.vocab_size), tokenizer)
    model.save(workspace.model)
    task = table_task("task", Columns())
    train, dev = (task.read_examples(workspace.task / f"{name}.tsv") for name in ("train", "dev"))
    finetune(
        model,
        task,
        train=train,
        dev=dev,
        output=workspace.tuned,
        epochs=1,
        compile=False,
        precision="float32",
    )
    export_huggingface(model.model, tokenizer, workspace.huggingface)
    study: dict[str, Any] = {"name": "length", "question": "Do more heads learn more?"}
    study |= {"corpus": {"kind": "files", "paths": [str(workspace.text)]}, "seeds": 1}
    study |= {"tokenizer": {"kind": "wordpiece", "vocab_size": 120}, "equal": {"steps": 4}}
    heads = {f"heads-{n}": {"encoder": {"mixer": {"heads": n}}} for n in (1, 2)}
    study["arms"] = {n: {"recipe": "bert-tiny", "changes": c} for n, c in heads.items()}
    study["changes"] = apply_overrides({"checkpoint_every": 2}, TINY)
    workspace.study.write_text(json.dumps(study))
    return workspace
