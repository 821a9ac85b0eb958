"""The comparison: what either side scores with the same seeds, and how long an epoch takes."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bertwright.bench.embedding import checkpoint_folder
from bertwright.bench.finetuning import peer
from bertwright.bench.finetuning.ours import finetuning_of
from bertwright.bench.finetuning.plan import Compared, Plan
from bertwright.bench.finetuning.timing import times
from bertwright.errors import UserError
from bertwright.files import read_findings, write_text
from bertwright.interop.loading import load
from bertwright.machine import device_name
from bertwright.model.text_model import TextModel
from bertwright.statistics import estimate, paired
from bertwright.tasks.finetuning import finetune

PARTS = ("scores", "times")
"""Of the figures."""

COLUMNS = {
    "task": "task",
    "examples": "examples",
    "metric": "metric",
    "ours": "bertwright",
    "theirs": "Trainer",
    "difference": "difference",
    "equal": "equal",
    "scored_on": "scored on",
    "epoch_seconds": "seconds an epoch",
    "against_default": "times the default",
    "against_best": "times its best",
    "processor": "timed on",
}
"""What a document shows, by key."""


def compare(
    plan_file: Path, out: Path, parts: Sequence[str], rounds: int, say: Callable[[str], None]
) -> list[dict[str, Any]]:
    """Find these parts of the figures of every task, but for those that stand in ``out``; and tell
    all that stand there then. ``scores`` are the same on a busy machine, ``times`` are not."""
    for part in parts:
        if part not in PARTS:
            raise UserError(f"--parts {part}: write scores, times, or both with a comma")
    plan = Plan.load(plan_file)
    folder = plan.encoder or checkpoint_folder()
    model = load(folder)
    out.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    for name, compared in plan.tasks.items():
        known = _Known(out / f"{name}.json", compared, plan.seeds)
        while "scores" in parts and len(known.ours) < plan.seeds:
            known.add("ours", ours(plan, compared, model, len(known.ours)))
            say(f"{name}, seed {len(known.ours) - 1}: ours {known.ours[-1]:.4g}")
        while "scores" in parts and len(known.theirs) < plan.seeds:
            known.add("theirs", theirs(plan, compared, model, folder, len(known.theirs)))
            say(f"{name}, seed {len(known.theirs) - 1}: theirs {known.theirs[-1]:.4g}")
        if "times" in parts and not known.times:
            known.add("times", times(plan_file, name, rounds))
            say(f"{name}: {known.times}")
        rows.append(_row(name, compared, model, known))
    return rows


class _Known:
    """What is known of a task, in a file: the scores of both sides and the devices that they come
    from, and the times, which are of turns of so many steps; of another task, or of others of its
    settings, nothing."""

    def __init__(self, file: Path, compared: Compared, seeds: int) -> None:
        self._file = file
        found = read_findings(file)
        stated = compared.model_dump(mode="json", exclude={"timed"}) | {"seeds": seeds}
        if found.get("stated") != stated:
            found = {}
        begun: dict[str, Any] = {"stated": stated, "ours": [], "theirs": [], "times": {}}
        self._all = begun | found
        if self.times.get("timed") != compared.timed:
            self._all["times"] = {}
        self._timed = compared.timed

    @property
    def ours(self) -> list[float]:
        return self._all["ours"]

    @property
    def theirs(self) -> list[float]:
        return self._all["theirs"]

    @property
    def times(self) -> dict[str, Any]:
        return self._all["times"]

    @property
    def scored_on(self) -> list[str]:
        return self._all.get("scored_on", [])

    def add(self, name: str, found: float | dict[str, float]) -> None:
        """Keep what was found."""
        if isinstance(found, dict):
            self._all[name] = {"timed": self._timed, "processor": device_name(), **found}
        else:
            self._all[name].append(found)
            self._all["scored_on"] = sorted({*self.scored_on, device_name()})
        write_text(self._file, json.dumps(self._all, indent=1) + "\n")


def ours(plan: Plan, compared: Compared, model: TextModel, seed: int) -> float:
    """The score of the best epoch of a run of ours."""
    part = compared.part(model)
    settings = finetuning_of(plan, compared, part.task.answer)
    chosen: dict[str, Any] = {**settings.model_dump(), "seed": seed}
    result = finetune(model, part.task, train=part.train, dev=part.dev, **chosen)
    return result.scores[0]


def theirs(
    plan: Plan,
    compared: Compared,
    model: TextModel,
    folder: Path,
    seed: int,
    changed: Mapping[str, Any] = peer.FAST,
) -> float:
    """That of a run of the Trainer, whose steps are fast and whose rows come in any order."""
    part = compared.part(model)
    maker_rows = part.answering.rows(compared.maker(model), part.dev)
    scores: list[float] = []

    def after_epoch(stock: Any) -> None:
        said = part.answering.predictions(
            maker_rows, peer.outputs(stock, maker_rows, part), part.dev
        )
        scores.append(next(iter(part.task.score(part.dev, said).values())))

    peer.trained(plan, compared, part, folder, seed, changed, after_epoch=after_epoch)
    return max(scores)


def _row(name: str, compared: Compared, model: TextModel, known: _Known) -> dict[str, Any]:
    part = compared.part(model)
    row: dict[str, Any] = {
        "task": name,
        "examples": len(part.train),
        "metric": part.task.metrics[0],
        **known.times,
    }
    if not known.ours or len(known.ours) != len(known.theirs):
        return row
    difference = paired(known.ours, known.theirs)
    return {
        **row,
        "ours": str(estimate(known.ours)),
        "theirs": str(estimate(known.theirs)),
        "difference": str(difference),
        "equal": "yes" if difference.low <= 0 <= difference.high else "no",
        **({"scored_on": ", ".join(known.scored_on)} if known.scored_on else {}),
    }
