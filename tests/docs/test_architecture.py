"""docs/architecture.md names the rooms, the kinds and the taps that there are."""

import re
from itertools import chain
from pathlib import Path

import pytest
import torch

import bertwright
from bertwright.axes import Choice
from bertwright.compression import pruning, quantisation
from bertwright.compression.augmentation import Augmentation
from bertwright.compression.quantisation import Granularity, Observer
from bertwright.compression.signals import Signal
from bertwright.encoder.depth import Depth
from bertwright.encoder.embeddings import EmbeddingChoice
from bertwright.encoder.feed_forward import FeedForward
from bertwright.encoder.initialisation import Initialisation
from bertwright.encoder.mixers import Mixer
from bertwright.encoder.norms import Norm
from bertwright.encoder.positions import Positions
from bertwright.encoder.residual import Residual
from bertwright.encoder.visibility import Visibility
from bertwright.examples.assembly import Assembly
from bertwright.examples.corruption import Corruption
from bertwright.examples.selection import Selection
from bertwright.model.model import Model
from bertwright.objectives import Objective
from bertwright.objectives.output import OutputChoice
from bertwright.optimisers.optimiser import Optimiser
from bertwright.recipes import Recipe
from bertwright.schedules import Schedule
from bertwright.tasks.adaptation import Adaptation
from bertwright.tasks.answers import Answer
from bertwright.tasks.catalogue import TASKS
from bertwright.tasks.formats.reader import Reader
from bertwright.tasks.heads import HeadChoice
from bertwright.tasks.perturbation import Perturbation
from bertwright.text.tokenizers import TokenizerChoice

TEXT = (Path(__file__).parents[2] / "docs" / "architecture.md").read_text(encoding="utf-8")

BEYOND = (pruning, quantisation)
"""Where an axis of another room has choices of its own: known when it is imported."""

AXES: dict[str, type[Choice]] = {
    "tokenizer": TokenizerChoice,
    "assembly": Assembly,
    "embeddings": EmbeddingChoice,
    "positions": Positions,
    "visibility": Visibility,
    "mixer": Mixer,
    "feed-forward": FeedForward,
    "norm": Norm,
    "residual": Residual,
    "depth": Depth,
    "initialisation": Initialisation,
    "output": OutputChoice,
    "objectives": Objective,
    "selection": Selection,
    "corruption": Corruption,
    "optimiser": Optimiser,
    "schedule": Schedule,
    "reader": Reader,
    "answer": Answer,
    "head": HeadChoice,
    "adaptation": Adaptation,
    "perturbation": Perturbation,
    "signal": Signal,
    "granularity": Granularity,
    "observer": Observer,
    "augmentation": Augmentation,
}


def test_every_task_by_name_is_told() -> None:
    told = (Path(__file__).parents[2] / "docs" / "adaptation.md").read_text(encoding="utf-8")
    assert [name for name in TASKS if not re.search(rf"\b{re.escape(name)}\b", told)] == []


def test_the_rooms_are_those_that_are_there() -> None:
    house = TEXT.split("```")[1]
    rooms = {line.split("/")[0] for line in house.splitlines() if re.match(r"[a-z]+/", line)}
    there = {path.parent.name for path in Path(bertwright.__file__).parent.glob("*/__init__.py")}
    assert rooms == there


@pytest.mark.parametrize("name", AXES)
def test_an_axis_has_the_kinds_that_it_is_said_to_have(name: str) -> None:
    (kinds,) = re.findall(rf"^\| {name} \| .*? \| (.*?) \|$", TEXT, re.MULTILINE)
    said = re.sub(r"\(.*?\)|;.*", "", kinds).split(",")
    # Benchmarks, studies and other tests bring kinds of their own.
    modules = {kind: choice.__module__ for kind, choice in AXES[name].kinds().items()}
    theirs = ("bertwright.bench.", "bertwright.studies.")
    ours = {
        k for k, m in modules.items() if m.startswith("bertwright.") and not m.startswith(theirs)
    }
    assert {kind.strip() for kind in said} == ours


def test_every_tap_is_in_the_table_with_its_width() -> None:
    said = {
        f"{start}{name}".replace(".i.", ".0.")
        for names in re.findall(r"^\| (`[a-z].*?`) \| ", TEXT.split("## The taps")[1], re.MULTILINE)
        for start, name in _names(names)
    }
    systems = (
        "bert-tiny",
        "bert-tiny narrow",
        "lstm-lm-tiny",
        "xlm-tiny",
        "ernie-2-tiny",
        "longformer-tiny",
    )
    assert said == set(chain(*map(_taps_of, systems)))


def _names(cell: str) -> list[tuple[str, str]]:
    """``a.b.c`` and, behind it, ``.d`` for ``a.b.d``."""
    first, *others = re.findall(r"`(.*?)`", cell)
    start = first.rpartition(".")[0]
    return [("", first), *((start, other) for other in others)]


def _taps_of(name: str) -> set[str]:
    changes = ["encoder.embeddings={kind: factorised, width: 16}"] if "narrow" in name else []
    model = Model.build(Recipe.load(name.split()[0], *changes), 50)
    pieces = torch.arange(8)[None]
    with model.record("*") as values, torch.no_grad():
        model(pieces)
    return {tap for tap in values if not tap.startswith("blocks.1.")}
