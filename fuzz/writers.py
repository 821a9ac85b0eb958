"""Every verb that writes: how it is called, and what of its output must be the same again."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from bertwright.training.checkpoints import open_whole
from fuzz.workspace import TINY, Workspace

Tree = dict[str, str]

OF_TIME = {
    "training.json",
    "README.md",
    "metrics.jsonl",
    "loss.png",
    "clock.jsonl",
    "compression.json",
    "onnx.json",
    "report.json",
    "result.json",
}
"""Files that say when or how fast they were made."""

OF_CHECKPOINTS = "checkpoints/"
"""The folder whose files in JSON say so, too."""


@dataclass(frozen=True)
class Writer:
    """A verb with an output, ``out`` in a folder of its own.

    ``words`` are those of the command line; ``again`` goes on after an interruption.
    """

    name: str
    words: tuple[str, ...]
    out: str = "out"
    again: tuple[str, ...] = ()
    grows: str | None = None
    """Of a folder that is added to while it is written, the file that ends it."""

    def command(self, folder: Path, resumes: bool = False) -> list[str]:
        """Return the words that write into a folder."""
        return [*self.words, "-o", str(folder / self.out), *(self.again if resumes else ())]

    def finished(self, folder: Path) -> bool:
        """Whether the output is there and needs no other run."""
        out = folder / self.out
        return out.exists() if self.grows is None else any(out.glob(self.grows))

    def resumes(self, folder: Path) -> bool:
        """Whether something is there to go on with, which must be said."""
        part = folder / f"{self.out}.part"
        return bool(self.again) and (
            part.exists() or (bool(self.grows) and (folder / self.out).exists())
        )

    def half_written(self, folder: Path, whole: Tree) -> str | None:
        """Return what is wrong with what is there, None where it is nothing or whole."""
        there = tree(folder)
        if self.grows:
            return _broken(folder / self.out, there, whole)
        part = folder / f"{self.out}.part"
        if part.is_file():
            return None
        if there and there != whole:
            odd = sorted({*there.items()} ^ {*whole.items()})
            return f"{odd[0][0]} is there and not whole"
        return None


def writers(made: Workspace) -> list[Writer]:
    """Return every writer over the inputs of a workspace."""
    settings = ("epochs=1", "compile=false", "precision=float32")
    task = ("--train", str(made.task / "train.tsv"), "--dev", str(made.task / "dev.tsv"))
    return [
        Writer(
            "tokenizer train",
            ("tokenizer", "train", str(made.text), "--vocab-size", "100", "--num-workers", "1"),
        ),
        Writer(
            "prepare",
            ("prepare", str(made.text), "--tokenizer", str(made.tokenizer), "--num-workers", "1"),
        ),
        Writer(
            "pretrain",
            (
                *("pretrain", "bert-tiny", *TINY, "steps=12", "checkpoint_every=2"),
                *("evaluate_every=4", "--data", str(made.data)),
            ),
            again=("--resume",),
            grows="model.safetensors",
        ),
        Writer("finetune", ("finetune", str(made.model), *task, *settings)),
        Writer("embed", ("embed", str(made.model), str(made.lines)), out="out.npy"),
        Writer(
            "predict", ("predict", str(made.tuned), str(made.lines)), "out.jsonl", ("--resume",)
        ),
        *(
            Writer(f"export {kind}", ("export", str(made.model), "--to", kind))
            for kind in ("huggingface", "sentence-transformers", "onnx")
        ),
        Writer("average", ("average", str(made.model), str(made.model))),
        Writer("import", ("import", str(made.huggingface))),
        Writer(
            "compress",
            (
                *("compress", str(made.tuned), "--layers", "1"),
                *(*task, "--work", str(made.folder / "work"), *settings),
            ),
        ),
        Writer("trim", ("trim", str(made.tuned), "--data", str(made.task))),
        Writer("static", ("static", str(made.model), "--width", "8")),
        Writer("view", ("view", str(made.model), "the red bird"), out="out.html"),
        Writer(
            "analyse",
            ("analyse", str(made.model), "attention-shares", "--data", str(made.lines)),
            grows="report.html",
        ),
        Writer("study run", ("study", "run", str(made.study)), grows="*/result.json"),
    ]


def tree(folder: Path) -> Tree:
    """Return the digests of the files below a folder that are there for a user to see, by name."""
    digests: Tree = {}
    for file in sorted(folder.rglob("*")):
        name = str(file.relative_to(folder))
        hidden = any(".unfinished-" in part for part in name.split("/"))
        of_time = file.name in OF_TIME or (OF_CHECKPOINTS in name and file.suffix == ".json")
        if file.is_file() and not hidden and not of_time:
            digests[name] = hashlib.sha256(file.read_bytes()).hexdigest()
    return digests


def _broken(folder: Path, there: Tree, whole: Tree) -> str | None:
    """Return what is wrong in a folder that grows: a checkpoint, a model or a file in JSON that is
    not whole."""
    for checkpoint in folder.glob("**/checkpoints/step-*"):
        if open_whole(checkpoint) is None:
            return f"{checkpoint.name} is there and not whole"
    for name, digest in there.items():
        if name.endswith("model.safetensors") and digest != whole.get(name, digest):
            return f"{name} is there and not whole"
    for file in folder.rglob("*.json"):
        try:
            json.loads(file.read_text())
        except ValueError:
            return f"{file.relative_to(folder)} is there and not whole"
    return None
