"""The comparison: what either side scores with the same seeds, and how long an epoch takes."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bertwright.bench.embedding import checkpoint_folder
from bertwright.bench.finetuning import peer
from bertwright.bench.finetuning.ours import finetuning_of
from bertwright.bench.finetuning.plan import Compared, Plan
from bertwright.bench.finetuning.timing import times
from bertwright.files import write_text
from bertwright.interop.loading import load
from bertwright.model.text_model import TextModel
from bertwright.statistics import estimate, paired
from bertwright.tasks.finetuning import finetune

COLUMNS = {
    "task": "task",
    "examples": "examples",
    "metric": "metric",
    "ours": "bertwright",
    "theirs": "Trainer",
    "difference": "difference",
    "equal": "equal",
    "epoch_seconds": "seconds an epoch",
    "against_default": "times the default",
    "against_best": "times its best",
}
"""What a document shows, by key."""


def compare(
    plan_file: Path, out: Path, rounds: int, say: Callable[[str], None]
) -> list[dict[str, Any]]:
    """The figures of every task; what stands in ``out`` is not found again."""
    plan = Plan.load(plan_file)
    folder = plan.encoder or checkpoint_folder()
    out.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    for name, compared in plan.tasks.items():
        file = out / f"{name}.json"
        known: dict[str, Any] = json.loads(file.read_text("utf-8")) if file.is_file() else {}
        stated = compared.model_dump(mode="json") | {"seeds": plan.seeds}
        if known.get("stated") != stated:
            known = {"stated": stated, "ours": [], "theirs": []}
        model = load(folder)
        while len(known["ours"]) < plan.seeds:
            seed = len(known["ours"])
            known["ours"].append(ours(plan, compared, model, seed))
            write_text(file, json.dumps(known, indent=1) + "\n")
            say(f"{name}, seed {seed}: ours {known['ours'][-1]:.4g}")
        while len(known["theirs"]) < plan.seeds:
            seed = len(known["theirs"])
            known["theirs"].append(theirs(plan, compared, model, folder, seed))
            write_text(file, json.dumps(known, indent=1) + "\n")
            say(f"{name}, seed {seed}: theirs {known['theirs'][-1]:.4g}")
        if rounds and "times" not in known:
            known["times"] = times(plan_file, name, rounds)
            write_text(file, json.dumps(known, indent=1) + "\n")
            say(f"{name}: {known['times']}")
        rows.append(_row(name, compared, model, known))
    return rows


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


def _row(name: str, compared: Compared, model: TextModel, known: dict[str, Any]) -> dict[str, Any]:
    part = compared.part(model)
    difference = paired(known["ours"], known["theirs"])
    return {
        "task": name,
        "examples": len(part.train),
        "metric": part.task.metrics[0],
        "ours": str(estimate(known["ours"])),
        "theirs": str(estimate(known["theirs"])),
        "difference": str(difference),
        "equal": "yes" if difference.low <= 0 <= difference.high else "no",
        **known.get("times", {}),
    }
