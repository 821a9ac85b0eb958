"""Every run of a plan, once; and what they come to."""

import json
from collections.abc import Callable, Iterator
from functools import partial
from hashlib import sha256
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any, NamedTuple

from bertwright.bench.adapting.plan import Plan
from bertwright.bench.embedding import checkpoint_folder
from bertwright.bench.runs import Runs
from bertwright.interop.loading import load
from bertwright.statistics import estimate, paired
from bertwright.tasks.finetuning import finetune_together

Say = Callable[[str], None]

COLUMNS = {
    "encoder": "encoder",
    "task": "task",
    "way": "way",
    "mean": "mean",
    "interval": "95 % interval",
    "deviation": "deviation",
    "median": "median",
    "best": "best",
    "difference": "difference",
    "trained": "trained, %",
}
"""What a document shows, by key."""


class Place(NamedTuple):
    """One cell of the table."""

    encoder: str
    task: str
    way: str


def compare(plan: Plan, out: Path, say: Say, processes: int = 1) -> list[dict[str, Any]]:
    """The rows of the table; runs that stand in ``out`` are not done again."""
    out.mkdir(parents=True, exist_ok=True)
    runs = Runs(out / "runs.json")
    cells = [(place, seed) for place in places(plan) for seed in range(plan.seeds)]
    names = {_hash(plan, place, seed): (place, seed) for place, seed in cells}
    jobs = {name: partial(run, plan, place, seed) for name, (place, seed) in names.items()}

    def tell(name: str, found: dict[str, float]) -> None:
        place, seed = names[name]
        say(f"{' / '.join(place)}, seed {seed}: {found['score']:.4g}")

    runs.find(jobs, processes, tell)
    found: dict[Place, list[dict[str, float]]] = {}
    for place, seed in cells:
        found.setdefault(place, []).append(runs.known[_hash(plan, place, seed)])
    return [_row(plan, place, own, found) for place, own in found.items()]


def places(plan: Plan) -> Iterator[Place]:
    """All cells, encoder by encoder and task by task."""
    for encoder in plan.encoders:
        for task in plan.tasks:
            for way, of in plan.ways.items():
                if of.tasks is None or task in of.tasks:
                    yield Place(encoder, task, way)


def run(plan: Plan, place: Place, seed: int) -> dict[str, float]:
    """What one run scores, what it trains and how long it takes."""
    model = load(plan.encoders[place.encoder] or checkpoint_folder())
    names = [place.task, *(n for n in plan.ways[place.way].beside if n != place.task)]
    several = [plan.tasks[name].examples(name) for name in names]
    result = finetune_together(model, several, **plan.settings_of(place.task, place.way, seed))
    own = next(iter(result.runs[0].scores[place.task].values()))
    return {
        "score": own,
        "trained": result.training.trained_share(),
        "seconds": result.seconds,
    }


def _row(
    plan: Plan,
    place: Place,
    runs: list[dict[str, float]],
    found: dict[Place, list[dict[str, float]]],
) -> dict[str, Any]:
    scores = [each["score"] for each in runs]
    known = estimate(scores)
    other = found.get(place._replace(way=plan.against)) if plan.against else None
    compared = other if place.way != plan.against else None
    return {
        **place._asdict(),
        "mean": known.mean,
        "interval": f"{known.low:.4g} to {known.high:.4g}" if known.interval else None,
        "deviation": stdev(scores) if len(scores) > 1 else None,
        "median": median(scores),
        "best": max(scores),
        "difference": str(paired(scores, [o["score"] for o in compared])) if compared else None,
        "trained": 100 * runs[0]["trained"],
        "seconds": fmean(each["seconds"] for each in runs),
        "scores": scores,
    }


def _hash(plan: Plan, place: Place, seed: int) -> str:
    """What decides a run."""
    way = plan.ways[place.way]
    deciding = [
        place.encoder,
        str(plan.encoders[place.encoder]),
        [plan.tasks[n].model_dump(mode="json") for n in (place.task, *way.beside)],
        plan.settings_of(place.task, place.way, seed),
    ]
    return sha256(json.dumps(deciding, sort_keys=True).encode()).hexdigest()[:16]
