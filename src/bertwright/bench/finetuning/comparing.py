"""The comparison: what either side scores with the same seeds, and how long an epoch takes."""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
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
from bertwright.machine.description import device_name
from bertwright.model.text_model import TextModel
from bertwright.side_by_side import side_by_side
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
    plan_file: Path,
    out: Path,
    parts: Sequence[str],
    rounds: int,
    say: Callable[[str], None],
    processes: int = 1,
) -> list[dict[str, Any]]:
    """Find these parts of the figures of every task, but for those that stand in ``out``; and tell
    all that stand there then. ``scores`` are the same on a busy machine, and so many ``processes``
    find them at once; ``times`` are not."""
    for part in parts:
        if part not in PARTS:
            raise UserError(f"--parts {part}: write scores, times, or both with a comma")
    plan = Plan.load(plan_file)
    out.mkdir(parents=True, exist_ok=True)
    tasks = plan.tasks.items()
    known = {name: _Known(out / f"{name}.json", of, plan.seeds) for name, of in tasks}
    if "scores" in parts:
        _score(plan, known, processes, say)
    for name, own in known.items():
        if "times" in parts and not own.times:
            own.keep_times(times(plan_file, name, rounds))
            say(f"{name}: {own.times}")
    model = load(plan.encoder or checkpoint_folder())
    return [_row(name, compared, model, known[name]) for name, compared in tasks]


def _score(
    plan: Plan, known: Mapping[str, "_Known"], processes: int, say: Callable[[str], None]
) -> None:
    """Both sides with every seed, where they are not known."""
    missing = [
        (name, side, seed)
        for name, own in known.items()
        for side in SIDES
        for seed in range(plan.seeds)
        if own.scores(side)[seed] is None
    ]
    jobs = [partial(SIDES[side], plan, plan.tasks[name], seed) for name, side, seed in missing]
    for number, score in side_by_side(jobs, processes):
        name, side, seed = missing[number]
        known[name].keep_score(side, seed, score)
        say(f"{name}, seed {seed}: {side} {score:.4g}")


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
        begun: dict[str, Any] = {"stated": stated, "times": {}}
        for side in SIDES:
            begun[side] = [None] * seeds
        self._all = begun | found
        if self.times.get("timed") != compared.timed:
            self._all["times"] = {}
        self._timed = compared.timed

    def scores(self, side: str) -> list[float | None]:
        """By seed; None are those that were not found yet."""
        return self._all[side]

    @property
    def times(self) -> dict[str, Any]:
        return self._all["times"]

    @property
    def scored_on(self) -> list[str]:
        return self._all.get("scored_on", [])

    def keep_score(self, side: str, seed: int, score: float) -> None:
        """Of one side, with one seed."""
        self._all[side][seed] = score
        self._all["scored_on"] = sorted({*self.scored_on, device_name()})
        self._write()

    def keep_times(self, found: dict[str, float]) -> None:
        """Those of both."""
        self._all["times"] = {"timed": self._timed, "processor": device_name(), **found}
        self._write()

    def _write(self) -> None:
        write_text(self._file, json.dumps(self._all, indent=1) + "\n")


def ours(plan: Plan, compared: Compared, seed: int) -> float:
    """The score of the best epoch of a run of ours."""
    model = load(plan.encoder or checkpoint_folder())
    part = compared.part(model)
    settings = finetuning_of(plan, compared, part.task.answer)
    chosen: dict[str, Any] = {**settings.model_dump(), "seed": seed}
    result = finetune(model, part.task, train=part.train, dev=part.dev, **chosen)
    return result.scores[0]


def theirs(plan: Plan, compared: Compared, seed: int) -> float:
    """That of a run of the Trainer, whose steps are fast and whose rows come in any order."""
    folder = plan.encoder or checkpoint_folder()
    model = load(folder)
    part = compared.part(model)
    maker_rows = part.answering.rows(compared.maker(model), part.dev)
    scores: list[float] = []

    def after_epoch(stock: Any) -> None:
        said = part.answering.predictions(
            maker_rows, peer.outputs(stock, maker_rows, part), part.dev
        )
        scores.append(next(iter(part.task.score(part.dev, said).values())))

    peer.trained(plan, compared, part, folder, seed, peer.fast(), after_epoch=after_epoch)
    return max(scores)


SIDES: Mapping[str, Callable[[Plan, Compared, int], float]] = {"ours": ours, "theirs": theirs}
"""Who is compared."""


def _row(name: str, compared: Compared, model: TextModel, known: _Known) -> dict[str, Any]:
    part = compared.part(model)
    row: dict[str, Any] = {
        "task": name,
        "examples": len(part.train),
        "metric": part.task.metrics[0],
        **known.times,
    }
    own, other = ([s for s in known.scores(side) if s is not None] for side in SIDES)
    if None in known.scores("ours") + known.scores("theirs"):
        return row
    difference = paired(own, other)
    equal = "yes" if difference.low <= 0 <= difference.high else "no"
    return {
        **row,
        "ours": str(estimate(own)),
        "theirs": str(estimate(other)),
        "difference": str(difference),
        "equal": equal if difference.interval else None,
        **({"scored_on": ", ".join(known.scored_on)} if known.scored_on else {}),
    }
