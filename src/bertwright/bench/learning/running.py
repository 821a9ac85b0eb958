"""One arm after the other, each in a process of its own; what is finished is not done again."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bertwright.axes import did_you_mean
from bertwright.bench.learning import evaluation
from bertwright.bench.learning.arms import Arm, PeerArm, Plan, Setting
from bertwright.errors import UserError
from bertwright.extras import require
from bertwright.files import read_findings, write_text
from bertwright.recipes import Recipe
from bertwright.text.shards import Data

Say = Callable[[str], None]
Figures = dict[str, Any]

STDERR = 2
"""Its descriptor, whatever a test or a notebook has put in the place of ``sys.stderr``."""


class Results:
    """The figures of finished arms, by name, in ``results.json``.

    They belong to one data set, one size, and rows that are assembled in one way. Errors: UserError
    where the file holds others.
    """

    def __init__(self, folder: Path, data: Data, plan: Plan) -> None:
        self.folder = folder
        self.data = data
        self._file = folder / "results.json"
        recipe = Recipe.load(plan.recipe)
        self._about = {
            "data": data.manifest.hash,
            "size": plan.size,
            "rows": recipe.assembly_of(len(recipe.phases) - 1).model_dump(mode="json"),
        }
        self.arms: dict[str, Figures] = {}
        if stored := read_findings(self._file):
            if stored.get("about") != self._about:
                raise UserError(
                    f"{self._file} belongs to another data set, size or assembly: choose another "
                    f"folder with -o"
                )
            self.arms = stored["arms"]

    def add(self, arm: Arm, figures: Figures) -> None:
        """Keep the figures of an arm."""
        self.arms[arm.name] = figures
        write_text(
            self._file, json.dumps({"about": self._about, "arms": self.arms}, indent=1) + "\n"
        )

    def loss(self, arm: Arm) -> float:
        """The held-out masked loss of an arm that is finished."""
        return self.arms[arm.name]["masked_loss"]

    def best_setting(self, plan: Plan) -> Setting:
        """The setting of lowest loss in the grid; UserError while the grid is not finished."""
        if not self.has(plan.grid):
            raise UserError(
                "the grid is not finished: run --arms hf-grid with the same rates and minutes"
            )
        return min(plan.grid, key=self.loss).setting

    def has(self, arms: Sequence[Arm]) -> bool:
        """Whether all of these are finished."""
        return all(arm.name in self.arms for arm in arms)


PARTS = ("hf-grid", "hf-best", "ours")


def run_parts(plan: Plan, parts: Sequence[str], results: Results, say: Say) -> None:
    """Run the named parts of a plan: the grid, then its best setting and ours, seed by seed, so
    that both meet the same weather on the machine.

    Errors: UserError for a part that is none, and for hf-best while the grid is not finished.
    """
    for part in parts:
        if part not in PARTS:
            raise UserError(f"--arms has no {part!r}{did_you_mean(part, PARTS)}")
    if {"hf-grid", "hf-best"} & set(parts):
        require("transformers", "huggingface")
    if "hf-grid" in parts:
        run(plan.grid, plan, results, say)
    theirs = plan.theirs(results.best_setting(plan)) if "hf-best" in parts else []
    ours = plan.ours if "ours" in parts else []
    arms: list[Arm] = []
    for seed in range(plan.seeds):
        arms += [*theirs[seed : seed + 1], *ours[seed : seed + 1]]
    run(arms, plan, results, say)


def run(arms: Sequence[Arm], plan: Plan, results: Results, say: Say) -> None:
    """Train and evaluate the arms that are not finished."""
    waiting = [arm for arm in arms if arm.name not in results.arms]
    for number, arm in enumerate(waiting):
        say(f"arm {number + 1} of {len(waiting)}: {arm.name}")
        folder = results.folder / "models" / arm.name
        shutil.rmtree(folder, ignore_errors=True)
        run_module(*training_command(arm, plan.size, results.data.path, folder))
        found = evaluation.figures(arm, folder, Recipe.load(plan.recipe), results.data)
        record = json.loads((folder / "training.json").read_text(encoding="utf-8"))
        results.add(arm, {**asdict(arm), **found, "training": record})
        say(f"  masked loss {results.loss(arm):.3f}")


def training_command(arm: Arm, size: str, data: Path, folder: Path) -> list[str]:
    """The module and arguments that train an arm into a folder."""
    if isinstance(arm, PeerArm):
        order = {"data": str(data), "output": str(folder), "size": size, **asdict(arm)}
        return ["bertwright.bench.learning.trainer", json.dumps(order)]
    return [
        *("bertwright", "pretrain", arm.recipe, f"seed={arm.seed}"),
        *("--data", str(data), "-o", str(folder), "--budget", f"{arm.minutes:g}m"),
    ]


def run_module(module: str, *arguments: str) -> None:
    """Run a module of ours in a process of its own; what it prints goes to stderr.

    Errors: RuntimeError where it fails; its own words are on stderr.
    """
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(command, stdout=STDERR, check=False)
    if done.returncode:
        raise RuntimeError(f"{module} {' '.join(arguments)} failed: see above")
