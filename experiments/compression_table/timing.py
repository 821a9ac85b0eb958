"""The speed-up of the models of the table over their base, measured here with untrained weights.

The times of each recipe are kept in a file and not measured again.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from bertwright.core.files import write_text
from bertwright.data.tokenization.tokenizer import WordPieceConfig
from bertwright.data.vocabulary_training import train_tokenizer
from bertwright.models.model import Model
from bertwright.models.text_model import TextModel
from bertwright.runtime.markdown_report import run_provenance
from bertwright.tasks.catalogue import table_task
from bertwright.tasks.finetuning.finetune import finetune
from bertwright.tasks.formats.examples import Example
from bertwright.tasks.formats.tables import Columns
from bertwright.timing.artefacts import Artefact, interleaved_seconds, ratio_interval
from experiments.compression_table.published import BASE, PublishedModel, WeightBits, bare_recipe

SHAPE = {"batch_size": 1, "max_length": 128, "threads": None}
STEPS, ROUNDS = 4, 15

TEXTS = ("the ships come home", "the boats return")
"""The texts of a tokenizer and a head; timing uses random tokens."""


def timing_file(recipe_words: Sequence[str], folder: Path) -> Path:
    """Return the file of the times of a recipe."""
    return folder / f"{'_'.join(recipe_words)}.json"


def speed_up(model: PublishedModel, folder: Path) -> tuple[float, float, float] | None:
    """Return the speed-up over the base with its interval; None if it was not measured."""
    file = timing_file(model.recipe, folder)
    if not model.recipe or model.bits != WeightBits() or not file.is_file():
        return None
    times = json.loads(file.read_text(encoding="utf-8"))
    base, compressed = times["seconds_of_base"], times["seconds"]
    return median(base) / median(compressed), *ratio_interval(base, compressed)


def time_all(models: Sequence[PublishedModel], folder: Path, log: Callable[[str], None]) -> None:
    """Time every recipe without a file, once."""
    by_recipe = {m.recipe: m for m in models if m.recipe and m.bits == WeightBits()}
    for words, model in by_recipe.items():
        file = timing_file(words, folder)
        if file.is_file():
            continue
        times = _measure(model)
        write_text(file, json.dumps(times, indent=1) + "\n")
        log(f"{model.model}: {median(times['seconds_of_base']) / median(times['seconds']):.2f}")


def _measure(model: PublishedModel) -> dict[str, Any]:
    with TemporaryDirectory() as temporary:
        folders = [Path(temporary) / name for name in ("base", "compressed")]
        for folder, words, pooler in zip(
            folders, (BASE, model.recipe), (True, model.pooler), strict=True
        ):
            _write_untrained(words, pooler, folder)
        artefacts = [Artefact(folder, "float32") for folder in folders]
        base, compressed = interleaved_seconds(artefacts, SHAPE, STEPS, ROUNDS)
    return {
        "recipe": list(model.recipe),
        "base": list(BASE),
        **SHAPE,
        "seconds_of_base": base,
        "seconds": compressed,
        "provenance": run_provenance(),
    }


def _write_untrained(recipe_words: Sequence[str], pooler: bool, folder: Path) -> None:
    """Write the folder of an untrained model with a head of two classes."""
    recipe = bare_recipe(recipe_words, pooler)
    tokenizer = train_tokenizer(TEXTS, WordPieceConfig(vocab_size=60))
    untrained = Model.build(recipe, recipe.text.tokenizer.vocab_size, tokenizer)
    examples = [Example(text, label=label) for text, label in zip(TEXTS, "ab", strict=True)]
    task, model = table_task("nothing", Columns()), TextModel(untrained, tokenizer, "float32")
    finetune(model, task, train=examples, dev=examples, epochs=0, calibrate=False, output=folder)
