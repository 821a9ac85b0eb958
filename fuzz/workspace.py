"""Small inputs of every kind, made once: text, a tokenizer, data, models, a task."""

import json
import random
from dataclasses import dataclass
from pathlib import Path

from bertwright.interop.huggingface import export_folder
from bertwright.model import Model
from bertwright.model.text_model import TextModel
from bertwright.recipes import Recipe
from bertwright.recipes.loading import changed
from bertwright.tasks.catalogue import table_task
from bertwright.tasks.finetuning import finetune
from bertwright.tasks.formats.tables import Columns
from bertwright.text.preparation import prepare
from bertwright.text.tokenizers import WordPieceChoice
from bertwright.text.vocabularies import train_on_files

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
    """The folder of all inputs."""

    folder: Path

    @property
    def text(self) -> Path:
        return self.folder / "text.txt"

    @property
    def lines(self) -> Path:
        """A text on each line."""
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
        """A model that is fine-tuned for the task."""
        return self.folder / "tuned"

    @property
    def huggingface(self) -> Path:
        return self.folder / "huggingface"

    @property
    def study(self) -> Path:
        """Two arms of a few steps each."""
        return self.folder / "study.yaml"

    @property
    def task(self) -> Path:
        """A folder with train.tsv and dev.tsv."""
        return self.folder / "task"


def make_workspace(folder: Path) -> Workspace:
    """Make all inputs in a folder that is empty."""
    made, draw = Workspace(folder), random.Random(0)
    folder.mkdir(parents=True, exist_ok=True)

    def sentence() -> str:
        return " ".join(draw.choices(WORDS, k=draw.randint(3, 12))).capitalize() + "."

    made.text.write_text("\n\n".join("\n".join([sentence() for _ in range(6)]) for _ in range(80)))
    made.lines.write_text("".join(f"{sentence()}\n" for _ in range(300)))
    made.task.mkdir()
    for name, number in (("train", 40), ("dev", 16)):
        rows = ((sentence(), ("old", "new")[number % 2]) for number in range(number))
        table = "".join(f"{text}\t{label}\n" for text, label in rows)
        (made.task / f"{name}.tsv").write_text(f"text\tlabel\n{table}")
    (folder / "rows.jsonl").write_text(
        "".join(json.dumps({"text": sentence(), "lang": "en"}) + "\n" for _ in range(20))
    )
    tokenizer = train_on_files(
        [made.text], made.tokenizer, WordPieceChoice(size=120), num_workers=1
    )
    prepare(made.text, made.data, made.tokenizer, num_workers=1)
    model = TextModel(Model.build(Recipe.load("bert-tiny", *TINY), tokenizer.size), tokenizer)
    model.save(made.model)
    task = table_task("task", Columns())
    train, dev = (task.read(made.task / f"{name}.tsv") for name in ("train", "dev"))
    settings = {"epochs": 1, "compile": False, "precision": "float32"}
    finetune(model, task, train=train, dev=dev, out=made.tuned, **settings)
    export_folder(model.model, tokenizer, made.huggingface)
    study = {"name": "length", "question": "Do more heads learn more?"}
    study |= {"corpus": {"kind": "files", "paths": [str(made.text)]}, "seeds": 1}
    study |= {"tokenizer": {"kind": "wordpiece", "size": 120}, "equal": {"steps": 4}}
    heads = {f"heads-{n}": {"encoder": {"mixer": {"heads": n}}} for n in (1, 2)}
    study["arms"] = {n: {"recipe": "bert-tiny", "changes": c} for n, c in heads.items()}
    study["changes"] = changed({"checkpoint_every": 2}, TINY)
    made.study.write_text(json.dumps(study))
    return made
