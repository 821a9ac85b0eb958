"""Every verb that writes, its arguments, and the checks of its output."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from bertwright.training.checkpoints import open_checkpoint
from fuzz.workspace import TINY, Workspace

Tree = dict[str, str]

TIME_DEPENDENT_FILES = {
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
"""Files that depend on times."""

CHECKPOINT_FOLDER = "checkpoints/"
"""Folder whose JSON files depend on times, too."""


@dataclass(frozen=True)
class Writer:
    """A verb that writes ``output``.

    ``words`` are its arguments; ``resume`` are those that continue an interrupted run.
    """

    name: str
    words: tuple[str, ...]
    output: str = "out"
    resume: tuple[str, ...] = ()
    last_file: str | None = None
    """Pattern of the last file, for an output folder that is written in place."""

    def command(self, folder: Path, resumes: bool = False) -> list[str]:
        """Return the arguments that write into a folder."""
        return [*self.words, "-o", str(folder / self.output), *(self.resume if resumes else ())]

    def finished(self, folder: Path) -> bool:
        """Return True if the output is complete."""
        output = folder / self.output
        return output.exists() if self.last_file is None else any(output.glob(self.last_file))

    def resumes(self, folder: Path) -> bool:
        """Return True if an interrupted run must be resumed explicitly."""
        partial = folder / f"{self.output}.part"
        return bool(self.resume) and (
            partial.exists() or (bool(self.last_file) and (folder / self.output).exists())
        )

    def half_written(self, folder: Path, expected: Tree) -> str | None:
        """Return a problem of the output, or None if it is absent or complete."""
        files = tree(folder)
        if self.last_file:
            return _find_broken(folder / self.output, files, expected)
        partial = folder / f"{self.output}.part"
        if partial.is_file():
            return None
        if files and files != expected:
            different = sorted({*files.items()} ^ {*expected.items()})
            return f"{different[0][0]} is incomplete"
        return None


def writers(workspace: Workspace) -> list[Writer]:
    """Return every writer, with the inputs of a workspace."""
    settings = ("epochs=1", "compile=false", "precision=float32")
    task = ("--train", str(workspace.task / "train.tsv"), "--dev", str(workspace.task / "dev.tsv"))
    return [
        Writer(
            "tokenizer train",
            (
                "tokenizer",
                "train",
                str(workspace.text),
                "--vocab-size",
                "100",
                "--num-workers",
                "1",
            ),
        ),
        Writer(
            "prepare",
            (
                "prepare",
                str(workspace.text),
                "--tokenizer",
                str(workspace.tokenizer),
                "--num-workers",
                "1",
            ),
        ),
        Writer(
            "pretrain",
            (
                *("pretrain", "bert-tiny", *TINY, "steps=12", "checkpoint_every=2"),
                *("evaluate_every=4", "--data", str(workspace.data)),
            ),
            resume=("--resume",),
            last_file="model.safetensors",
        ),
        Writer("finetune", ("finetune", str(workspace.model), *task, *settings)),
        Writer("embed", ("embed", str(workspace.model), str(workspace.lines)), output="out.npy"),
        Writer(
            "predict",
            ("predict", str(workspace.tuned), str(workspace.lines)),
            "out.jsonl",
            ("--resume",),
        ),
        *(
            Writer(f"export {kind}", ("export", str(workspace.model), "--to", kind))
            for kind in ("huggingface", "sentence-transformers", "onnx")
        ),
        Writer("average", ("average", str(workspace.model), str(workspace.model))),
        Writer("import", ("import", str(workspace.huggingface))),
        Writer(
            "compress distil",
            (
                *("compress", "distil", str(workspace.tuned), "--layers", "1"),
                *(*task, "--work", str(workspace.folder / "work"), *settings),
            ),
        ),
        Writer(
            "vocab prune", ("vocab", "prune", str(workspace.tuned), "--data", str(workspace.task))
        ),
        Writer(
            "vocab extend",
            (
                *("vocab", "extend", str(workspace.model)),
                *("--text", str(workspace.lines), "--add", "3"),
            ),
        ),
        Writer("static", ("static", str(workspace.model), "--width", "8")),
        Writer("view", ("view", str(workspace.model), "the red bird"), output="out.html"),
        Writer(
            "analyse",
            ("analyse", str(workspace.model), "attention-mass", "--data", str(workspace.lines)),
            last_file="report.html",
        ),
        Writer("study run", ("study", "run", str(workspace.study)), last_file="*/result.json"),
    ]


def tree(folder: Path) -> Tree:
    """Return the digests of the visible files of a folder, by name."""
    digests: Tree = {}
    for file in sorted(folder.rglob("*")):
        name = str(file.relative_to(folder))
        hidden = any(".unfinished-" in part for part in name.split("/"))
        depends_on_time = file.name in TIME_DEPENDENT_FILES or (
            CHECKPOINT_FOLDER in name and file.suffix == ".json"
        )
        if file.is_file() and not hidden and not depends_on_time:
            digests[name] = hashlib.sha256(file.read_bytes()).hexdigest()
    return digests


def _find_broken(folder: Path, files: Tree, expected: Tree) -> str | None:
    """Return an incomplete checkpoint, model or JSON file in a folder, or None."""
    for checkpoint in folder.glob("**/checkpoints/step-*"):
        if open_checkpoint(checkpoint) is None:
            return f"{checkpoint.name} is incomplete"
    for name, digest in files.items():
        if name.endswith("model.safetensors") and digest != expected.get(name, digest):
            return f"{name} is incomplete"
    for file in folder.rglob("*.json"):
        try:
            json.loads(file.read_text())
        except ValueError:
            return f"{file.relative_to(folder)} is incomplete"
    return None
