"""Checks of every recipe: parameter counts, training, resumption, export."""

import json
import math
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bertwright.core.config import did_you_mean
from bertwright.core.errors import UserError
from bertwright.core.hardware import num_cores
from bertwright.data.shards.dataset import Dataset
from bertwright.interop.huggingface.exporter import export_huggingface
from bertwright.interop.loading import load
from bertwright.interop.onnx.exporter import export_onnx
from bertwright.models.saving import WEIGHTS_FILE, load_model
from bertwright.recipes import Recipe
from bertwright.recipes.loading import size_names, system_names
from bertwright.runtime.parallel import run_parallel
from bertwright.training.pretraining.pretrain import pretrain
from bertwright.training.reporters.metrics_file import read_metrics
from experiments.equalised import equalised_recipe
from experiments.recipe_texts import text_for_recipe
from experiments.system_info import num_parameters_of, read_system_info

STEPS, QUICK_STEPS = 300, 12
"""Training steps, in full and quick runs; the run is resumed at half of them."""

MAX_BATCH_TOKENS = 1_024
"""The maximum tokens per step."""

MAX_LENGTH = 128

TOLERANCE = 1e-4
"""The maximum difference between the outputs of an export and of the model."""


@dataclass(frozen=True)
class RecipeCheck:
    """The outcome of the check of one recipe.

    ``num_known_counts`` is the number of published parameter counts, all of them met if ``ok``;
    ``stock_class`` is the stock class, or why there is none; ``onnx_difference`` is the maximum
    difference between onnxruntime and the model.
    """

    name: str
    system: str
    ok: bool
    problem: str = ""
    num_known_counts: int = 0
    first_loss: float = math.nan
    last_loss: float = math.nan
    stock_class: str = ""
    onnx_difference: float = math.nan
    seconds: float = 0.0

    def __str__(self) -> str:
        if not self.ok:
            return f"{self.name:<28}MISS  {self.problem}"
        losses = f"{self.first_loss:.3f} -> {self.last_loss:.3f}"
        known = (
            f"{self.num_known_counts} counts exact" if self.num_known_counts else "no count known"
        )
        has_graph = self.onnx_difference == self.onnx_difference
        onnx = f"onnx {self.onnx_difference:.1e}" if has_graph else "no graph"
        return (
            f"{self.name:<28}ok    {known:<16}loss {losses}  {onnx}  "
            f"{self.seconds:5.1f} s  {self.stock_class}"
        )

    def as_dict(self) -> dict[str, Any]:
        """Return plain data; NaN is None."""
        values = asdict(self).items()
        return {name: None if value != value else value for name, value in values}


def check_recipe(system: str, data: Dataset, output: Path, num_steps: int = STEPS) -> RecipeCheck:
    """Build, count, train, resume, export and reload a system at 2x128.

    A failure ends the check and is part of the outcome.
    """
    start = time.monotonic()
    check = RecipeCheck(f"{system}-tiny", read_system_info(system).system, ok=True)
    try:
        for step in (_check_counts, _check_training, _check_resume, _check_export, _check_onnx):
            check = step(check, system, data, output, num_steps)
            if not check.ok:
                break
    except UserError as error:
        check = replace(check, ok=False, problem=str(error))
    except Exception as error:  # of one system: the others are still checked
        check = replace(check, ok=False, problem=f"{type(error).__name__}: {error}")
    finally:
        shutil.rmtree(output, ignore_errors=True)
    return replace(check, seconds=round(time.monotonic() - start, 1))


def check_recipes(
    names: Sequence[str],
    data: Path | None,
    num_steps: int,
    log: Callable[[RecipeCheck], None] = lambda check: None,
) -> list[RecipeCheck]:
    """Check these systems, or all, in parallel.

    Systems that need more than ``data`` has, or all without it, use the sample text or a synthetic
    corpus. Raises UserError for an unknown system.
    """
    for system in names:
        if system not in system_names():
            raise UserError(f"there is no system {system!r}{did_you_mean(system, system_names())}")
    systems, checks = names or system_names(), dict[int, RecipeCheck]()
    with TemporaryDirectory() as temporary:
        work = Path(temporary)
        texts = [
            text_for_recipe(Recipe.load(f"{system}-tiny"), work, data).data for system in systems
        ]
        jobs = [
            partial(_check_in_process, system, text, work / system, num_steps)
            for system, text in zip(systems, texts, strict=True)
        ]
        for index, check in run_parallel(jobs, num_cores()):
            checks[index] = check
            log(check)
    return [check for _, check in sorted(checks.items())]


def _check_in_process(system: str, data: Path, output: Path, num_steps: int) -> RecipeCheck:
    return check_recipe(system, Dataset.open(data), output, num_steps)


def small_recipe(system: str, data: Dataset, num_steps: int) -> Recipe:
    """Return a system with two blocks of width 128, for sequences of at most 128 positions."""
    changes = {
        "schedule": {"kind": "warmup", "warmup": 0.1, "decay": "linear"},
        "steps": num_steps,
        "checkpoint_every": num_steps // 2,
        "evaluate_every": num_steps,
        "compile": False,
    }
    kind = data.manifest.tokenizer.kind
    return equalised_recipe(system, "tiny", kind, MAX_LENGTH, MAX_BATCH_TOKENS, changes)


def _check_counts(
    check: RecipeCheck, system: str, data: Dataset, output: Path, num_steps: int
) -> RecipeCheck:
    for size in size_names(system):
        Recipe.load(f"{system}-{size}")
    known = read_system_info(system).all_parameter_counts()
    for count in known:
        parameters = num_parameters_of(system, count)
        if parameters != count.parameters:
            problem = (
                f"{count.size} has {parameters:,} parameters and must have {count.parameters:,}"
            )
            return replace(check, ok=False, problem=problem)
    return replace(check, num_known_counts=len(known))


def _check_training(
    check: RecipeCheck, system: str, data: Dataset, output: Path, num_steps: int
) -> RecipeCheck:
    recipe = small_recipe(system, data, num_steps)
    pretrain(recipe, data, output / "whole", quiet=True)
    losses = [
        line["loss"] for line in read_metrics(output / "whole" / "metrics.jsonl") if "loss" in line
    ]
    check = replace(check, first_loss=losses[0], last_loss=losses[-1])
    if not math.isfinite(losses[-1]) or (num_steps == STEPS and losses[-1] >= losses[0]):
        return replace(
            check, ok=False, problem=f"its loss went from {losses[0]:.3f} to {losses[-1]:.3f}"
        )
    return check


def _check_resume(
    check: RecipeCheck, system: str, data: Dataset, output: Path, num_steps: int
) -> RecipeCheck:
    """Check that a run resumed from its middle ends with the same bytes."""
    whole, resumed = output / "whole", output / "resumed"
    shutil.copytree(whole, resumed)
    (resumed / WEIGHTS_FILE).unlink()
    for checkpoint in (resumed / "checkpoints").iterdir():
        if json.loads((checkpoint / "manifest.json").read_text())["step"] != num_steps // 2:
            shutil.rmtree(checkpoint)
    pretrain(None, data, resumed, resume=True, quiet=True)
    if (resumed / WEIGHTS_FILE).read_bytes() != (whole / WEIGHTS_FILE).read_bytes():
        return replace(
            check, ok=False, problem="resumed from its middle, it ends with other weights"
        )
    return check


def _check_export(
    check: RecipeCheck, system: str, data: Dataset, output: Path, num_steps: int
) -> RecipeCheck:
    """Check that stock classes compute the same; a system without one says why."""
    model, tokenizer = load_model(output / "whole")
    try:
        export = export_huggingface(model, tokenizer, output / "export", verify=True)
    except UserError as error:
        return replace(check, stock_class=str(error))
    check = replace(check, stock_class=export.architecture)
    difference = export.max_difference
    if difference is None or difference > TOLERANCE:
        return replace(check, ok=False, problem=f"its export differs by {difference}")
    return check


def _check_onnx(
    check: RecipeCheck, system: str, data: Dataset, output: Path, num_steps: int
) -> RecipeCheck:
    """Check that onnxruntime computes the same, if the mixer has a graph."""
    model = load(output / "whole", "float32")
    if not model.model.recipe.encoder.mixer.supports_graph:
        return check
    export = export_onnx(model, output / "graph")
    return replace(check, onnx_difference=export.parity.max_difference)
