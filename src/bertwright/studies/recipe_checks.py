"""Whether every recipe keeps what it promises: counted, trained on real text, resumed, exported."""

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

from bertwright.axes import did_you_mean
from bertwright.errors import UserError
from bertwright.interop.huggingface import export_folder
from bertwright.interop.loading import load
from bertwright.interop.onnx.writing import export_onnx
from bertwright.machine.cores import num_cores
from bertwright.model.counting import counted
from bertwright.model.folder import WEIGHTS, load_model
from bertwright.recipes import Recipe
from bertwright.recipes.about import about
from bertwright.recipes.evened import evened
from bertwright.recipes.loading import sizes_of, systems
from bertwright.side_by_side import side_by_side
from bertwright.studies.made_to_order import text_for
from bertwright.text.shards import Data
from bertwright.training.metrics_file import read_metrics
from bertwright.training.pretraining import pretrain

STEPS, QUICK_STEPS = 300, 12
"""Of training, in whole and where there is little time; the run is resumed at half of them."""

TOKENS = 1_024
"""Of a step, at most."""

LONGEST_ROW = 128

CLOSE = 1e-4
"""The greatest difference between what an export says and what it was made of."""


@dataclass(frozen=True)
class Check:
    """What became of one recipe.

    ``counts`` is how many known numbers of parameters it has, all of them right if it is ``ok``;
    ``export`` is the stock class, or why there is none; ``graph`` the greatest difference between
    what onnxruntime computes and the model.
    """

    name: str
    system: str
    ok: bool
    wrong: str = ""
    counts: int = 0
    first_loss: float = math.nan
    last_loss: float = math.nan
    export: str = ""
    graph: float = math.nan
    seconds: float = 0.0

    def __str__(self) -> str:
        if not self.ok:
            return f"{self.name:<28}MISS  {self.wrong}"
        losses = f"{self.first_loss:.3f} -> {self.last_loss:.3f}"
        known = f"{self.counts} counts exact" if self.counts else "no count known"
        return (
            f"{self.name:<28}ok    {known:<16}loss {losses}  onnx {self.graph:.1e}  "
            f"{self.seconds:5.1f} s  {self.export}"
        )

    def as_dict(self) -> dict[str, Any]:
        """Plain data; a loss that was not found is None."""
        known = asdict(self).items()
        return {name: None if value != value else value for name, value in known}


def check_recipe(system: str, data: Data, out: Path, steps: int = STEPS) -> Check:
    """Build, count, train, resume, export and load again a system at 2x128.

    What is wrong ends the check and stands in it.
    """
    began = time.monotonic()
    check = Check(f"{system}-tiny", about(system).system, ok=True)
    try:
        for step in (_count, _train, _resume, _reload, _graph):
            check = step(check, system, data, out, steps)
            if not check.ok:
                break
    except UserError as error:
        check = replace(check, ok=False, wrong=str(error))
    except Exception as error:  # of one system: the others are still to be checked
        check = replace(check, ok=False, wrong=f"{type(error).__name__}: {error}")
    finally:
        shutil.rmtree(out, ignore_errors=True)
    return replace(check, seconds=round(time.monotonic() - began, 1))


def check_all(
    systems_wanted: Sequence[str],
    data: Path | None,
    steps: int,
    tell: Callable[[Check], None] = lambda check: None,
) -> list[Check]:
    """The checks of these systems, or of all, on every core one.

    Those that need more than ``data`` hold, or all where it is None, read the sample text or what
    is made to order. Errors: UserError for a system that is not there.
    """
    for system in systems_wanted:
        if system not in systems():
            raise UserError(f"there is no system {system!r}{did_you_mean(system, systems())}")
    wanted, found = systems_wanted or systems(), dict[int, Check]()
    with TemporaryDirectory() as temporary:
        work = Path(temporary)
        texts = [text_for(Recipe.load(f"{system}-tiny"), work, data).data for system in wanted]
        jobs = [
            partial(_check_at, system, text, work / system, steps)
            for system, text in zip(wanted, texts, strict=True)
        ]
        for number, check in side_by_side(jobs, num_cores()):
            found[number] = check
            tell(check)
    return [check for _, check in sorted(found.items())]


def _check_at(system: str, data: Path, out: Path, steps: int) -> Check:
    return check_recipe(system, Data.open(data), out, steps)


def at_small_cost(system: str, data: Data, steps: int) -> Recipe:
    """A system in the size of two blocks of width 128, on rows of at most 128 places."""
    changes = {
        "schedule": {"kind": "warmup", "warmup": 0.1, "decay": "linear"},
        "steps": steps,
        "checkpoint_every": steps // 2,
        "evaluate_every": steps,
        "compile": False,
    }
    kind = data.manifest.tokenizer.kind
    return evened(system, "tiny", kind, LONGEST_ROW, TOKENS, changes)


def _count(check: Check, system: str, data: Data, out: Path, steps: int) -> Check:
    for size in sizes_of(system):
        Recipe.load(f"{system}-{size}")
    known = about(system).all_counts()
    for count in known:
        found = counted(system, count)
        if found != count.parameters:
            wrong = f"{count.size} has {found:,} parameters and must have {count.parameters:,}"
            return replace(check, ok=False, wrong=wrong)
    return replace(check, counts=len(known))


def _train(check: Check, system: str, data: Data, out: Path, steps: int) -> Check:
    recipe = at_small_cost(system, data, steps)
    pretrain(recipe, data, out / "whole", quiet=True)
    losses = [
        line["loss"] for line in read_metrics(out / "whole" / "metrics.jsonl") if "loss" in line
    ]
    check = replace(check, first_loss=losses[0], last_loss=losses[-1])
    if not math.isfinite(losses[-1]) or (steps == STEPS and losses[-1] >= losses[0]):
        return replace(
            check, ok=False, wrong=f"its loss went from {losses[0]:.3f} to {losses[-1]:.3f}"
        )
    return check


def _resume(check: Check, system: str, data: Data, out: Path, steps: int) -> Check:
    """The same run from its middle must end with the same bytes."""
    whole, resumed = out / "whole", out / "resumed"
    shutil.copytree(whole, resumed)
    (resumed / WEIGHTS).unlink()
    for checkpoint in (resumed / "checkpoints").iterdir():
        if json.loads((checkpoint / "manifest.json").read_text())["step"] != steps // 2:
            shutil.rmtree(checkpoint)
    pretrain(None, data, resumed, resume=True, quiet=True)
    if (resumed / WEIGHTS).read_bytes() != (whole / WEIGHTS).read_bytes():
        return replace(check, ok=False, wrong="resumed from its middle it ends otherwise")
    return check


def _reload(check: Check, system: str, data: Data, out: Path, steps: int) -> Check:
    """What stock classes load must say the same; what has none says why."""
    model, tokenizer = load_model(out / "whole")
    try:
        written = export_folder(model, tokenizer, out / "export", verify=True)
    except UserError as error:
        return replace(check, export=str(error))
    check = replace(check, export=written.architecture)
    difference = written.max_difference
    if difference is None or difference > CLOSE:
        return replace(check, ok=False, wrong=f"its export differs by {difference}")
    return check


def _graph(check: Check, system: str, data: Data, out: Path, steps: int) -> Check:
    """What onnxruntime computes of every recipe must be the same."""
    written = export_onnx(load(out / "whole", "float32"), out / "graph")
    return replace(check, graph=written.parity.difference)
