"""How much faster a model of the table answers here: its architecture and that of its base, with
weights as they are drawn, which take as long as any others.

What was measured is kept as a file for each recipe, and not measured again.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from bertwright.bench.artefacts.comparing import Artefact, ratio_interval, seconds_in_turns
from bertwright.document import origin
from bertwright.files import write_text
from bertwright.model.model import Model
from bertwright.model.text_model import TextModel
from bertwright.studies.compression_table.published import BASE, Bits, Published, bare
from bertwright.tasks.catalogue import table_task
from bertwright.tasks.finetuning import finetune
from bertwright.tasks.formats.examples import Example
from bertwright.tasks.formats.tables import Columns
from bertwright.text.tokenizers import WordPieceChoice
from bertwright.text.vocabularies import train_tokenizer

SHAPE = {"batch": 1, "length": 128, "threads": None}
STEPS, ROUNDS = 4, 15

SAID = ("the ships come home", "the boats return")
"""Something to make a tokenizer and a head of: what is timed are pieces drawn by chance."""


def file_of(words: Sequence[str], folder: Path) -> Path:
    """Where the times of a recipe are kept."""
    return folder / f"{'_'.join(words)}.json"


def speed_up(row: Published, folder: Path) -> tuple[float, float, float] | None:
    """How many times faster than its base, with its interval; None where it was not measured."""
    file = file_of(row.recipe, folder)
    if not row.recipe or row.bits != Bits() or not file.is_file():
        return None
    found = json.loads(file.read_text(encoding="utf-8"))
    base, own = found["seconds_of_base"], found["seconds"]
    return median(base) / median(own), *ratio_interval(base, own)


def time_all(rows: Sequence[Published], folder: Path, say: Callable[[str], None]) -> None:
    """Measure what has no file yet, each recipe once."""
    wanted = {row.recipe: row for row in rows if row.recipe and row.bits == Bits()}
    for words, row in wanted.items():
        file = file_of(words, folder)
        if file.is_file():
            continue
        found = _measured(row)
        write_text(file, json.dumps(found, indent=1) + "\n")
        say(f"{row.model}: {median(found['seconds_of_base']) / median(found['seconds']):.2f}")


def _measured(row: Published) -> dict[str, Any]:
    with TemporaryDirectory() as temporary:
        folders = [Path(temporary) / name for name in ("base", "own")]
        for folder, words, pooler in zip(
            folders, (BASE, row.recipe), (True, row.pooler), strict=True
        ):
            _write(words, pooler, folder)
        artefacts = [Artefact(folder, "float32") for folder in folders]
        base, own = seconds_in_turns(artefacts, SHAPE, STEPS, ROUNDS)
    return {
        "recipe": list(row.recipe),
        "base": list(BASE),
        **SHAPE,
        "seconds_of_base": base,
        "seconds": own,
        "origin": origin(),
    }


def _write(words: Sequence[str], pooler: bool, folder: Path) -> None:
    """The folder of a model that has learned nothing, behind a head of two classes."""
    recipe = bare(words, pooler)
    tokenizer = train_tokenizer(SAID, WordPieceChoice(size=60))
    drawn = Model.build(recipe, recipe.text.tokenizer.size, tokenizer)
    examples = [Example(text, label=label) for text, label in zip(SAID, "ab", strict=True)]
    task, model = table_task("nothing", Columns()), TextModel(drawn, tokenizer, "float32")
    finetune(model, task, train=examples, dev=examples, epochs=0, calibrate=False, out=folder)
