"""Files of text and of tasks, in every format, with a change somewhere; and what is predicted."""

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

from bertwright.cli.application import app
from bertwright.errors import UserError
from bertwright.tasks.catalogue import TASKS, find_task
from bertwright.tasks.data import TaskData
from bertwright.tasks.fine_tuned import load_fine_tuned
from bertwright.tasks.formats.minimal_pairs import read_minimal_pairs
from bertwright.tasks.formats.prompts import read_prompts
from bertwright.tasks.formats.treebank import read_trees
from bertwright.tasks.prediction import predict_file
from bertwright.text.documents import ReadCounts
from bertwright.text.preparation import prepare
from bertwright.text.readers import read_documents
from bertwright.text.sources import find_sources
from bertwright.text.tokenizers import Tokenizer
from fuzz.case import Case, Kind
from fuzz.junk import TEXTS, as_json, changed, changed_bytes, changed_text, junk
from fuzz.workspace import WORDS, Workspace

PACKED: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".zst": zstandard.ZstdCompressor().compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
}


def sentence(draw: random.Random) -> str:
    """Return a short text, now and then an odd one."""
    if draw.random() < 0.05:
        return draw.choice(TEXTS)
    return " ".join(draw.choices(WORDS, k=draw.randint(1, 8)))


def rows(draw: random.Random, keys: tuple[str, ...]) -> list[dict[str, Any]]:
    """Return some rows of a table."""
    return [{key: sentence(draw) for key in keys} for _ in range(draw.randint(1, 4))]


def table(draw: random.Random, ending: str, records: list[dict[str, Any]]) -> bytes:
    """Return rows in a format, with a change somewhere, mostly."""
    if ending == "parquet":
        with suppress(pyarrow.ArrowException, TypeError, AttributeError, OverflowError, ValueError):
            records = changed(draw, records) if draw.random() < 0.7 else records
            held = io.BytesIO()
            parquet.write_table(pyarrow.Table.from_pylist(records), held)
            return changed_bytes(draw, held.getvalue()) if draw.random() < 0.3 else held.getvalue()
        return b"PAR1"
    if ending == "jsonl":
        records = changed(draw, records) if draw.random() < 0.6 else records
        lines = records if isinstance(records, list) else [records]
        text = "".join(f"{as_json(row)}\n" for row in lines)
    elif ending == "json":
        text = as_json(changed(draw, records))
    elif ending in ("csv", "tsv"):
        held_text = io.StringIO()
        keys = list(records[0])
        if ending == "csv":
            writer = csv.writer(held_text)
            writer.writerows([keys, *([row.get(key) for key in keys] for row in records)])
        else:
            lines = [keys, *([str(row.get(key)) for key in keys] for row in records)]
            held_text.write("".join("\t".join(line) + "\n" for line in lines))
        text = held_text.getvalue()
    else:
        text = "\n".join(" ".join(map(str, row.values())) for row in records)
    text = changed_text(draw, text) if draw.random() < 0.5 else text
    content = text.encode("utf-8", "surrogatepass")
    return changed_bytes(draw, content) if draw.random() < 0.2 else content


class TextFiles(Kind):
    """What ``prepare`` reads; a part of it is prepared."""

    name: ClassVar[str] = "text files"
    weight: ClassVar[float] = 15

    def __init__(self, made: Workspace, scratch: Path) -> None:
        self._folder, self._out = scratch / "texts", scratch / "data"
        self._folder.mkdir()
        self._tokenizer = Tokenizer.load(made.tokenizer)

    def case(self, draw: random.Random) -> Case:
        shutil.rmtree(self._out, ignore_errors=True)
        ending = draw.choice(("txt", "json", "jsonl", "csv", "tsv", "parquet"))
        packing = draw.choice(("", "", "", *PACKED))
        keys = ("text", "lang", "known", "dialogue")
        content = table(draw, ending, rows(draw, keys[: draw.randint(1, 4)]))
        file = self._folder / f"a.{draw.choice((ending, ending, ending, 'txt', 'json'))}{packing}"
        packed = PACKED[packing](content)
        file.write_bytes(changed_bytes(draw, packed) if draw.random() < 0.1 else packed)
        options: dict[str, Any] = {}
        if draw.random() < 0.2:
            options["column"] = draw.choice(("lang", "dialogue", *TEXTS[:8]))
        if draw.random() < 0.2:
            options["language_column"] = draw.choice(("lang", "known", ""))
        if draw.random() < 0.2:
            options["annotations"] = draw.choice(("known", "text"))
        source: Any = f"en={file}" if draw.random() < 0.1 else file
        what = f"{file.name} {options} {content!r}"
        if draw.random() < 0.15:
            self._out.parent.mkdir(exist_ok=True)
            heldout = draw.choice((0.05, 0.5, 0.0, 1.0, -1.0, float("nan"), 1e300))

            def prepared() -> object:
                return prepare(
                    source, self._out, self._tokenizer, heldout=heldout, num_workers=1, **options
                )

            return Case(what, prepared, self._out)

        def read() -> None:
            plain = {k: v for k, v in options.items() if k != "annotations"}
            for document in read_documents(find_sources([source], **plain), ReadCounts()):
                document.text.encode()

        return Case(what, read)


class TaskFiles(Kind):
    """What ``finetune`` reads, of every task."""

    name: ClassVar[str] = "task files"
    weight: ClassVar[float] = 15

    def __init__(self, made: Workspace, scratch: Path) -> None:
        self._folder = scratch / "tasks"
        self._folder.mkdir()
        self._names = sorted(TASKS)

    def case(self, draw: random.Random) -> Case:
        ending = draw.choice(("tsv", "csv", "jsonl", "json", "parquet", "conll", "conllu", "txt"))
        packing = draw.choice(("", "", "", ".gz"))
        file = self._folder / f"train.{ending}{packing}"
        content = self._content(draw, ending)
        file.write_bytes(PACKED[packing](content))
        what = f"{file.name} {content!r}"
        act = draw.randrange(8)
        if act == 0:
            return Case(what, lambda: read_minimal_pairs(file))
        if act == 1:
            return Case(what, lambda: read_trees(file))
        if act == 2:
            return Case(what, lambda: list(read_prompts(file)))
        name = draw.choice(self._names)
        task = find_task(name)
        labelled = draw.random() < 0.7
        if act < 6:
            return Case(f"{name} {what}", lambda: task.read(file, labelled=labelled))
        return Case(f"{name} {what}", lambda: TaskData(task, train=file).parts())

    def _content(self, draw: random.Random, ending: str) -> bytes:
        if ending in ("conll", "conllu", "txt"):
            return self._columns(draw)
        if ending == "json":
            squad = {
                "id": "1",
                "question": sentence(draw),
                "answers": [{"text": "a", "answer_start": 0}],
            }
            squad_file = {
                "data": [{"title": "a", "paragraphs": [{"context": "a red", "qas": [squad]}]}]
            }
            race = {"article": "a", "questions": ["b"], "options": [["c", "d"]], "answers": ["A"]}
            text = as_json(
                changed(draw, draw.choice((squad_file, race, [race], [[["A: a"], [squad]]])))
            )
            return text.encode("utf-8", "surrogatepass")
        keys = draw.choice(
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
        records = rows(draw, keys)
        for row in records:
            last = keys[-1]
            odd = draw.random() < 0.2
            row[last] = (
                junk(draw) if odd else draw.choice((row[last], "0", "1", 0, 1, ["a", "b"], 2.5))
            )
        return table(draw, ending, records)

    def _columns(self, draw: random.Random) -> bytes:
        lines: list[str] = []
        for number in range(1, draw.randint(2, 6)):
            full = draw.random() < 0.5
            word = draw.choice(WORDS)
            columns = [str(number), word, word, "NOUN", "_", "_", "0", "root", "_", "_"]
            lines.append(
                "\t".join(columns) if full else f"{word} {draw.choice(('O', 'B-X', 'I-X'))}"
            )
            if draw.random() < 0.2:
                lines.append(draw.choice(("", "# text = a", "1-2\ta\t_", "-DOCSTART- O", "1.1\ta")))
        text = "\n".join(lines) + "\n"
        text = changed_text(draw, text) if draw.random() < 0.7 else text
        return text.encode("utf-8", "surrogatepass")


class Predictions(Kind):
    """What a fine-tuned model is asked for, from a file; a part of it through the verb."""

    name: ClassVar[str] = "predictions"
    weight: ClassVar[float] = 3

    def __init__(self, made: Workspace, scratch: Path) -> None:
        self._made, self._folder, self._out = (
            made,
            scratch / "texts to predict",
            scratch / "predictions.jsonl",
        )
        self._folder.mkdir()
        self._model = load_fine_tuned(made.tuned, "float32")

    def case(self, draw: random.Random) -> Case:
        ending = draw.choice(("txt", "jsonl", "tsv", "csv", "conll"))
        file = self._folder / f"a.{ending}"
        content = table(
            draw, ending, rows(draw, draw.choice((("text",), ("text", "pair"), ("sentence",))))
        )
        file.write_bytes(content)
        what = f"{file.name} {content!r}"
        if draw.random() < 0.9:
            return Case(what, lambda: [json.dumps(p) for p in predict_file(self._model, file)])
        verb = draw.choice(("predict", "embed"))
        model = self._made.tuned if verb == "predict" else self._made.model
        for left in self._out.parent.glob(f"{self._out.name}*"):
            left.unlink()
        words = [verb, str(model), str(file), "-o", str(self._out)]
        return Case(f"{verb} {what}", lambda: verb_in_process(words), self._out)


def verb_in_process(words: list[str]) -> None:
    """Run a verb as the command line does, but for how its errors are printed."""
    try:
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            app(words, standalone_mode=False)
    except SystemExit as ended:
        if ended.code:
            raise UserError(f"exit code {ended.code}") from None
