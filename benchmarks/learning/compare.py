"""Run the arms one after the other, each in its own process, and keep their results."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.learning import evaluation
from benchmarks.learning.arms import Arm, LearningPlan, TrainerArm, TrainerSetting
from bertwright.core.config import did_you_mean
from bertwright.core.errors import UserError
from bertwright.core.files import read_results, write_text
from bertwright.core.optional_dependencies import require_library
from bertwright.data.shards.dataset import Dataset
from bertwright.recipes import Recipe

Log = Callable[[str], None]
Figures = dict[str, Any]

STDERR_FILENO = 2
"""File descriptor of stderr, which a test or a notebook may have replaced in ``sys``."""


class LearningResults:
    """Figures of finished arms by name, in ``results.json``.

    They belong to one data set, size and input format. Errors: UserError for a file of others.
    """

    def __init__(self, folder: Path, data: Dataset, plan: LearningPlan) -> None:
        self.folder = folder
        self.data = data
        self._file = folder / "results.json"
        recipe = Recipe.load(plan.recipe)
        self._about = {
            "data": data.manifest.hash,
            "size": plan.size,
            "input_format": recipe.input_format_of(len(recipe.phases) - 1).model_dump(mode="json"),
        }
        self.arms: dict[str, Figures] = {}
        if stored := read_results(self._file):
            if stored.get("about") != self._about:
                raise UserError(
                    f"{self._file} belongs to another data set, size or input format: choose "
                    f"another folder with -o"
                )
            self.arms = stored["arms"]

    def add(self, arm: Arm, figures: Figures) -> None:
        """Add the figures of an arm."""
        self.arms[arm.name] = figures
        content = {"about": self._about, "arms": self.arms}
        write_text(self._file, json.dumps(content, indent=1) + "\n")

    def loss(self, arm: Arm) -> float:
        """Return the held-out masked loss of a finished arm."""
        return self.arms[arm.name]["masked_loss"]

    def best_setting(self, plan: LearningPlan) -> TrainerSetting:
        """Return the setting of lowest loss in the grid; UserError for an unfinished grid."""
        if not self.has(plan.grid):
            raise UserError(
                "the grid is not finished: run --parts hf-grid with the same learning rates and "
                "minutes"
            )
        return min(plan.grid, key=self.loss).setting

    def has(self, arms: Sequence[Arm]) -> bool:
        """Return True if all arms are finished."""
        return all(arm.name in self.arms for arm in arms)


ARM_GROUPS = ("hf-grid", "hf-best", "ours")


def run_groups(
    plan: LearningPlan, groups: Sequence[str], results: LearningResults, log: Log
) -> None:
    """Run groups of arms: the grid, then its best setting and bertwright, alternating by seed.

    Errors: UserError for an unknown group, and for hf-best with an unfinished grid.
    """
    for group in groups:
        if group not in ARM_GROUPS:
            raise UserError(f"--parts has no {group!r}{did_you_mean(group, ARM_GROUPS)}")
    if {"hf-grid", "hf-best"} & set(groups):
        require_library("transformers", "huggingface")
    if "hf-grid" in groups:
        run_arms(plan.grid, plan, results, log)
    theirs = plan.trainer_arms(results.best_setting(plan)) if "hf-best" in groups else []
    ours = plan.bertwright_arms if "ours" in groups else []
    arms: list[Arm] = []
    for seed in range(plan.seeds):
        arms += [*theirs[seed : seed + 1], *ours[seed : seed + 1]]
    run_arms(arms, plan, results, log)


def run_arms(arms: Sequence[Arm], plan: LearningPlan, results: LearningResults, log: Log) -> None:
    """Train and evaluate the unfinished arms."""
    unfinished = [arm for arm in arms if arm.name not in results.arms]
    for number, arm in enumerate(unfinished):
        log(f"arm {number + 1} of {len(unfinished)}: {arm.name}")
        folder = results.folder / "models" / arm.name
        shutil.rmtree(folder, ignore_errors=True)
        run_module(*training_command(arm, plan.size, results.data.path, folder))
        metrics = evaluation.evaluate_arm(arm, folder, Recipe.load(plan.recipe), results.data)
        record = json.loads((folder / "training.json").read_text(encoding="utf-8"))
        results.add(arm, {**asdict(arm), **metrics, "training": record})
        log(f"  masked loss {results.loss(arm):.3f}")


def training_command(arm: Arm, size: str, data: Path, folder: Path) -> list[str]:
    """Return the module and arguments that train an arm into a folder."""
    if isinstance(arm, TrainerArm):
        job = {"data": str(data), "output": str(folder), "size": size, **asdict(arm)}
        job["peer"] = arm.setting.peer
        return ["benchmarks.learning.trainer", json.dumps(job)]
    return [
        *("bertwright", "pretrain", arm.recipe, f"seed={arm.seed}"),
        *("--data", str(data), "-o", str(folder), "--budget", f"{arm.minutes:g}m"),
    ]


def run_module(module: str, *arguments: str) -> None:
    """Run a module in its own process; its output goes to stderr.

    Errors: RuntimeError if it fails.
    """
    command = [sys.executable, "-m", module, *arguments]
    process = subprocess.run(command, stdout=STDERR_FILENO, check=False)
    if process.returncode:
        raise RuntimeError(f"{module} {' '.join(arguments)} failed: see above")
