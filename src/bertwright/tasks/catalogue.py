"""The tasks that are known by name, and tasks made of any file with named columns."""

import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Literal

from bertwright.axes import did_you_mean
from bertwright.errors import UserError
from bertwright.tasks.formats.tables import Columns, read_table
from bertwright.tasks.formats.tagged import read_tagged
from bertwright.tasks.restoration import TAGS, read_restoration
from bertwright.tasks.task import Task

_ENTAILMENT = ("entailment", "not_entailment")
_BINARY = ("0", "1")


def table_task(
    name: str,
    columns: Columns,
    answer: Literal["class", "number"] = "class",
    metrics: Sequence[str] = (),
    labels: Sequence[str] = (),
    source: str = "",
) -> Task:
    """A task of sentences or pairs in any TSV, CSV or JSON lines file with named columns."""
    read = partial(read_table, columns=columns, answer=answer, labels=tuple(labels))
    default = ("accuracy", "macro-f1") if answer == "class" else ("spearman", "pearson")
    return Task(name, answer, read, tuple(metrics) or default, tuple(labels), source)


def tagging_task(
    name: str, column: str = "tag", metrics: Sequence[str] = ("span-f1", "accuracy")
) -> Task:
    """A task of tagged words in any CoNLL, CoNLL-U or IOB2 file."""
    return Task(name, "tags", partial(read_tagged, column=column), tuple(metrics))


def _glue(
    name: str,
    columns: Columns,
    metrics: Sequence[str] = ("accuracy",),
    labels: Sequence[str] = _BINARY,
    answer: Literal["class", "number"] = "class",
) -> Task:
    return table_task(name, columns, answer, metrics, labels, "GLUE, Wang et al. 2019")


_PAIR = Columns("sentence1", "sentence2", "label")

TASKS: dict[str, Task] = {
    task.name: task
    for task in (
        _glue(
            "cola",
            Columns("sentence", header=("source", "label", "mark", "sentence")),
            ("matthews", "accuracy"),
        ),
        _glue("sst-2", Columns("sentence")),
        _glue("mrpc", Columns("#1 String", "#2 String", "Quality"), ("accuracy", "positive-f1")),
        _glue(
            "sts-b",
            Columns("sentence1", "sentence2", "score"),
            ("spearman", "pearson"),
            (),
            "number",
        ),
        _glue("rte", _PAIR, labels=_ENTAILMENT),
        _glue("wnli", _PAIR),
        _glue("qnli", Columns("question", "sentence"), labels=_ENTAILMENT),
        tagging_task("ner"),
        tagging_task("upos", "upos", ("accuracy", "macro-f1")),
        tagging_task("xpos", "xpos", ("accuracy", "macro-f1")),
        tagging_task("feats", "feats", ("accuracy", "macro-f1")),
        Task("restoration", "tags", read_restoration, ("macro-f1", "accuracy"), TAGS),
    )
}
"""By name, in lower case."""


def find_task(name: str) -> Task:
    """The task of that name, whether written ``CoLA`` or ``cola``."""
    if name.lower() not in TASKS:
        raise UserError(f"no task {name!r}{did_you_mean(name.lower(), TASKS)}")
    return TASKS[name.lower()]


_PARTS = {"train": ("train",), "dev": ("dev", "valid", "validation", "val")}


def find_part(folder: Path, part: Literal["train", "dev"]) -> Path:
    """The file of a data folder that holds its training or its development examples.

    It is the one whose name has the word in it: ``train.tsv.gz``, ``en_ewt-ud-dev.conllu``.
    Errors: UserError when there is none, or more than one.
    """
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder")
    found = [
        file
        for file in sorted(folder.iterdir())
        if file.is_file() and set(re.split(r"[-_.]", file.name.lower())) & set(_PARTS[part])
    ]
    if len(found) != 1:
        names = ", ".join(file.name for file in found) or "none"
        raise UserError(f"{folder}: expected one file named after {part!r}, found {names}")
    return found[0]
