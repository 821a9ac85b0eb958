"""The pages name the packages, the tasks and the hook points that exist."""

import re
from itertools import chain
from pathlib import Path

import torch

import bertwright
from bertwright.models.model import Model
from bertwright.recipes import Recipe
from bertwright.tasks.catalogue import TASKS
from checkout import DOCUMENTS

RECIPES = (
    ("bert-tiny",),
    ("bert-tiny", "encoder.embeddings={kind: factorised, width: 16}"),
    ("lstm-lm-tiny",),
    ("xlm-tiny",),
    ("ernie-2-tiny",),
    ("longformer-tiny",),
)
"""Recipes that have all hook points between them."""


def test_every_task_is_listed() -> None:
    page = (DOCUMENTS / "how-to" / "fine-tune.md").read_text(encoding="utf-8")
    assert [name for name in TASKS if not re.search(rf"\b{re.escape(name)}\b", page)] == []


def test_every_package_is_listed() -> None:
    page = (DOCUMENTS / "concepts" / "architecture.md").read_text(encoding="utf-8")
    listed = {line.split("/")[0] for line in page.split("```")[1].splitlines() if line}
    package = Path(bertwright.__file__).parent
    assert listed == {path.parent.name for path in package.glob("*/__init__.py")}


def test_every_hook_point_is_listed() -> None:
    page = (DOCUMENTS / "reference" / "hooks.md").read_text(encoding="utf-8")
    listed = {
        name.replace(".i.", ".0.")
        for cell in re.findall(r"^\| (`[a-z].*?`) \| ", page, re.MULTILINE)
        for name in _names(cell)
    }
    assert listed == set(chain.from_iterable(_hook_points(*recipe) for recipe in RECIPES))


def _names(cell: str) -> list[str]:
    """Return the names of a cell, in which ``.d`` after ``a.b.c`` stands for ``a.b.d``."""
    first, *others = re.findall(r"`(.*?)`", cell)
    parent = first.rpartition(".")[0]
    return [first, *(parent + other for other in others)]


def _hook_points(*recipe: str) -> list[str]:
    model = Model.build(Recipe.load(*recipe), 50)
    with model.record("*") as values, torch.no_grad():
        model(torch.arange(8)[None])
    return [name for name in values if not name.startswith("blocks.1.")]
