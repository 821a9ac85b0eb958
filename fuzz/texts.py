"""Random text and task files in every format, and predictions for them."""

import bz2
import csv
import gzip
import io
import json
import lzma
import random
import shutil
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Any, ClassVar

import pyarrow
import zstandard
from pyarrow import parquet

from bertwright.cli.app import app
from bertwright.core.errors import UserError
from bertwright.data.document import ReadCounts
from bertwright.data.preparation import prepare
from bertwright.data.readers.sources import find_sources
from bertwright.data.readers.tables import read_documents
from bertwright.data.tokenization.tokenizer import Tokenizer
from bertwright.models.generation.prompt_files import read_prompts
from bertwright.tasks.catalogue import TASKS, find_task
from bertwright.tasks.data.task_data import TaskData
from bertwright.tasks.fine_tuned_model import load_fine_tuned_model
from bertwright.tasks.formats.dependency_trees import read_trees
from bertwright.tasks.prediction import predict_file
from bertwright.tasks.zero_shot.minimal_pairs import read_minimal_pairs
from fuzz.case import Case, Kind
from fuzz.junk import TEXTS, as_json, changed, changed_bytes, changed_text, junk
from fuzz.workspace import WORDS, Workspace

COMPRESSORS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".zst": zstandard.ZstdCompressor().compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
}


def sentence(rng: random.Random) -> str:
    """Return a short text, sometimes an unexpected one."""
    if rng.random() < 0.05:
        return rng.choice(TEXTS)
    return " ".join(rng.choices(WORDS, k=rng.randint(1, 8)))


def rows(rng: random.Random, keys: tuple[str, ...]) -> list[dict[str, Any]]:
    """Return some rows of a table."""
    return [{key: sentence(rng) for key in keys} for _ in range(rng.randint(1, 4))]


def table(rng: random.Random, ending: str, records: list[dict[str, Any]]) -> bytes:
    """Return rows in a format, mostly with a random change."""
    if ending == "parquet":
        with suppress(pyarrow.ArrowException, TypeError, AttributeError, OverflowError, ValueError):
            records = changed(rng, records) if rng.random() < 0.7 else records
            buffer = io.BytesIO()
            parquet.write_table(pyarrow.Table.from_pylist(records), buffer)
            return (
                changed_bytes(rng, buffer.getvalue()) if rng.random() < 0.3 else buffer.getvalue()
            )
        return b"PAR1"
    if ending == "jsonl":
        value: Any = changed(rng, records) if rng.random() < 0.6 else records
        lines = value if isinstance(value, list) else [value]
        text = "".join(f"{as_json(row)}\n" for row in lines)
    elif ending == "json":
        text = as_json(changed(rng, records))
    elif ending in ("csv", "tsv"):
        text_buffer = io.StringIO()
        keys = list(records[0])
        if ending == "csv":
            writer = csv.writer(text_buffer)
            writer.writerows([keys, *([row.get(key) for key in keys] for row in records)])
        else:
            lines = [keys, *([str(row.get(key)) for key in keys] for row in records)]
            text_buffer.write("".join("\t".join(line) + "\n" for line in lines))
        text = text_buffer.getvalue()
    else:
        text = "\n".join(" ".join(map(str, row.values())) for row in records)
    text = changed_text(rng, text) if rng.random() < 0.5 else text
    content = text.encode("utf-8", "surrogatepass")
    return changed_bytes(rng, content) if rng.random() < 0.2 else content


class TextFiles(Kind):
    """Text files, which are read or prepared."""

    name: ClassVar[str] = "text files"
    weight: ClassVar[float] = 15

    def __init__(self, workspace: Workspace, scratch: Path) -> None:
        self._folder, self._output = scratch / "texts", scratch / "data"
        self._folder.mkdir()
        self._tokenizer = Tokenizer.load(workspace.tokenizer)

    def case(self, rng: random.Random) -> Case:
        shutil.rmtree(self._output, ignore_errors=True)
        ending = rng.choice(("txt", "json", "jsonl", "csv", "tsv", "parquet"))
        compression = rng.choice(("", "", "", *COMPRESSORS))
        keys = ("text", "lang", "annotations", "dialogue")
        content = table(rng, ending, rows(rng, keys[: rng.randint(1, 4)]))
        file = (
            self._folder / f"a.{rng.choice((ending, ending, ending, 'txt', 'json'))}{compression}"
        )
        compressed = COMPRESSORS[compression](content)
        file.write_bytes(changed_bytes(rng, compressed) if rng.random() < 0.1 else compressed)
        options: dict[str, Any] = {}
        if rng.random() < 0.2:
            options["column"] = rng.choice(("lang", "dialogue", *TEXTS[:8]))
        if rng.random() < 0.2:
            options["language_column"] = rng.choice(("lang", "annotations", ""))
        if rng.random() < 0.2:
            options["annotations"] = rng.choice(("annotations", "text"))
        source: Any = f"en={file}" if rng.random() < 0.1 else file
        description = f"{file.name} {options} {content!r}"
        if rng.random() < 0.15:
            self._output.parent.mkdir(exist_ok=True)
            heldout = rng.choice((0.05, 0.5, 0.0, 1.0, -1.0, float("nan"), 1e300))

            def prepare_file() -> object:
                return prepare(
                    source, self._output, self._tokenizer, heldout=heldout, num_workers=1, **options
                )

            return Case(description, prepare_file, self._output)

        def read() -> None:
            plain = {k: v for k, v in options.items() if k != "annotations"}
            for document in read_documents(find_sources([source], **plain), ReadCounts()):
                document.text.encode()

        return Case(description, read)


class TaskFiles(Kind):
    """Files of every task."""

    name: ClassVar[str] = "task files"
    weight: ClassVar[float] = 15

    def __init__(self, workspace: Workspace, scratch: Path) -> None:
        self._folder = scratch / "tasks"
        self._folder.mkdir()
        self._names = sorted(TASKS)

    def case(self, rng: random.Random) -> Case:
        ending = rng.choice(("tsv", "csv", "jsonl", "json", "parquet", "conll", "conllu", "txt"))
        compression = rng.choice(("", "", "", ".gz"))
        file = self._folder / f"train.{ending}{compression}"
        content = self._content(rng, ending)
        file.write_bytes(COMPRESSORS[compression](content))
        description = f"{file.name} {content!r}"
        action = rng.randrange(8)
        if action == 0:
            return Case(description, lambda: read_minimal_pairs(file))
        if action == 1:
            return Case(description, lambda: read_trees(file))
        if action == 2:
            return Case(description, lambda: list(read_prompts(file)))
        name = rng.choice(self._names)
        task = find_task(name)
        labelled = rng.random() < 0.7
        if action < 6:
            return Case(
                f"{name} {description}", lambda: task.read_examples(file, with_labels=labelled)
            )
        return Case(f"{name} {description}", lambda: TaskData(task, train=file).load_splits())

    def _content(self, rng: random.Random, ending: str) -> bytes:
        if ending in ("conll", "conllu", "txt"):
            return self._columns(rng)
        if ending == "json":
            squad = {
                "id": "1",
                "question": sentence(rng),
                "answers": [{"text": "a", "answer_start": 0}],
            }
            squad_file = {
                "data": [{"title": "a", "paragraphs": [{"context": "a red", "qas": [squad]}]}]
            }
            race = {"article": "a", "questions": ["b"], "options": [["c", "d"]], "answers": ["A"]}
            text = as_json(
                changed(rng, rng.choice((squad_file, race, [race], [[["A: a"], [squad]]])))
            )
            return text.encode("utf-8", "surrogatepass")
        keys = rng.choice(
            (
                ("sentence", "label"),
                ("text", "label"),
                ("sentence1", "sentence2", "label"),
                ("question1", "question2", "is_duplicate"),
                ("premise", "hypothesis", "gold_label"),
                ("text", "pair", "other"),
                ("sentence1", "sentence2", "score"),
                ("sentence_good", "sentence_bad"),
                ("context", "ending0", "ending1", "ending2", "ending3", "label"),
                ("question", "text", "options", "answer"),
                ("prompt",),
            )
        )
        records = rows(rng, keys)
        for row in records:
            last = keys[-1]
            is_junk = rng.random() < 0.2
            row[last] = (
                junk(rng) if is_junk else rng.choice((row[last], "0", "1", 0, 1, ["a", "b"], 2.5))
            )
        return table(rng, ending, records)

    def _columns(self, rng: random.Random) -> bytes:
        lines: list[str] = []
        for number in range(1, rng.randint(2, 6)):
            full = rng.random() < 0.5
            word = rng.choice(WORDS)
            columns = [str(number), word, word, "NOUN", "_", "_", "0", "root", "_", "_"]
            lines.append(
                "\t".join(columns) if full else f"{word} {rng.choice(('O', 'B-X', 'I-X'))}"
            )
            if rng.random() < 0.2:
                lines.append(rng.choice(("", "# text = a", "1-2\ta\t_", "-DOCSTART- O", "1.1\ta")))
        text = "\n".join(lines) + "\n"
        text = changed_text(rng, text) if rng.random() < 0.7 else text
        return text.encode("utf-8", "surrogatepass")


class Predictions(Kind):
    """Files to predict for, some through the command line."""

    name: ClassVar[str] = "predictions"
    weight: ClassVar[float] = 3

    def __init__(self, workspace: Workspace, scratch: Path) -> None:
        self._workspace = workspace
        self._folder, self._output = scratch / "texts to predict", scratch / "predictions.jsonl"
        self._folder.mkdir()
        self._model = load_fine_tuned_model(workspace.tuned, "float32")

    def case(self, rng: random.Random) -> Case:
        ending = rng.choice(("txt", "jsonl", "tsv", "csv", "conll"))
        file = self._folder / f"a.{ending}"
        content = table(
            rng, ending, rows(rng, rng.choice((("text",), ("text", "pair"), ("sentence",))))
        )
        file.write_bytes(content)
        description = f"{file.name} {content!r}"
        if rng.random() < 0.9:
            return Case(
                description, lambda: [json.dumps(p) for p in predict_file(self._model, file)]
            )
        verb = rng.choice(("predict", "embed"))
        model = self._workspace.tuned if verb == "predict" else self._workspace.model
        for leftover in self._output.parent.glob(f"{self._output.name}*"):
            leftover.unlink()
        words = [verb, str(model), str(file), "-o", str(self._output)]
        return Case(f"{verb} {description}", lambda: verb_in_process(words), self._output)


def verb_in_process(words: list[str]) -> None:
    """Run a verb in this process; its errors are raised."""
    try:
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            app(words, standalone_mode=False)
    except SystemExit as exit:
        if exit.code:
            raise UserError(f"exit code {exit.code}") from None
