"""Every run of a plan, once; how long what it made takes; and what it all comes to."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from bertwright.bench.artefacts.comparing import SHAPES, ratio_interval, seconds_in_turns
from bertwright.bench.ladder.making import Maker, require_possible
from bertwright.bench.ladder.plan import Form, Plan
from bertwright.bench.runs import Runs
from bertwright.errors import UserError
from bertwright.machine.description import processor
from bertwright.side_by_side import side_by_side
from bertwright.statistics import estimate, paired

Say = Callable[[str], None]

PARTS = ("scores", "times")
"""What can be found."""

COLUMNS = {
    "task": "task",
    "way": "way",
    "form": "form",
    "mean": "score",
    "interval": "95 % interval",
    "kept": "kept, %",
    "lost": "lost, points",
    "over_alone": "points over the same alone",
    "parameters": "parameters, M",
    "layers": "layers",
    "megabytes": "MB",
    "smaller": "times smaller",
    **{
        f"{key}_{batch}x{length}": f"{said} {batch}x{length}"
        for batch, length, _ in SHAPES
        for key, said in (("ms", "ms at"), ("faster", "times faster at"))
    },
    "processor": "timed on",
}
"""What a document shows, by key."""


def climb(
    plan: Plan,
    out: Path,
    models: Path,
    parts: Sequence[str],
    rounds: int,
    say: Say,
    processes: int = 1,
) -> list[dict[str, Any]]:
    """The rows of the table, of what stands in ``out``; the named parts that do not stand there
    are found first, so many ``processes`` at once where it is no times.

    Errors: UserError for a part that is none, for ways that cannot be gone, before anything is
    learned, and for times of models that are not in ``models``.
    """
    for part in parts:
        if part not in PARTS:
            raise UserError(f"--parts {part}: choose from {', '.join(PARTS)}")
    out.mkdir(parents=True, exist_ok=True)
    runs, times = Runs(out / "runs.json"), Runs(out / "times.json")
    makers = [Maker(plan, task, models) for task in plan.tasks]
    if "scores" in parts:
        _score(plan, makers, runs, processes, say)
    rows: list[dict[str, Any]] = []
    for maker in makers:
        if "times" in parts and maker.is_timed:
            _time(maker, maker.ways, times, rounds, say)
        rows += _rows(maker, maker.ways, runs.known, times.known)
    return rows


def _score(plan: Plan, makers: Sequence[Maker], runs: Runs, processes: int, say: Say) -> None:
    """All runs that are not known: those who have learned the tasks first."""
    asked = {
        maker.name(way, seed): (maker, way, seed)
        for maker in makers
        for way in maker.ways
        for seed in range(plan.seeds)
    }
    missing = {name: of for name, of in asked.items() if name not in runs.known}
    if not missing:
        return
    require_possible(plan)
    taught = {(maker.task, seed): partial(maker.learn, seed) for maker, _, seed in missing.values()}
    for _ in side_by_side(list(taught.values()), processes):
        pass
    jobs = {name: partial(maker.made, way, seed) for name, (maker, way, seed) in missing.items()}

    def tell(name: str, found: dict[str, Any]) -> None:
        maker, way, seed = missing[name]
        say(f"{maker.task} / {way}, seed {seed}: {_shown(found)}")

    runs.find(jobs, processes, tell)


def _forms(maker: Maker, ways: Sequence[str]) -> list[tuple[str, Form]]:
    """All that is timed, the base first."""
    base = maker.plan.base
    sides: list[tuple[str, Form]] = [
        (way, form) for way in ways for form in maker.plan.ways[way].forms
    ]
    return sorted(sides, key=lambda side: side != (base, maker.plan.ways[base].forms[0]))


def _time(maker: Maker, ways: Sequence[str], times: Runs, rounds: int, say: Say) -> None:
    """All models of a task in turns, where one of them was not timed yet."""
    sides = _forms(maker, ways)
    names = [f"{maker.name(way, 0)} {form}" for way, form in sides]
    if all(name in times.known for name in names):
        return
    artefacts = [maker.artefact(way, form) for way, form in sides]
    if lost := next((own for own in artefacts if not own.folder.is_dir()), None):
        raise UserError(
            f"{lost.folder} is not there, and what it scored is known already: give the folder of "
            f"its models by --models, or another -o"
        )
    found: dict[str, dict[str, Any]] = {name: {"processor": processor()} for name in names}
    for batch, length, steps in SHAPES:
        shape = f"{batch}x{length}"
        given = {"batch": batch, "length": length, "threads": None}
        seconds = seconds_in_turns(artefacts, given, steps, rounds)
        for name, own in zip(names, seconds, strict=True):
            found[name][f"ms_{shape}"] = 1000 * median(own)
            found[name][f"faster_{shape}"] = median(seconds[0]) / median(own)
            found[name][f"interval_{shape}"] = list(ratio_interval(seconds[0], own))
        say(f"{maker.task}, {shape}: timed")
    for name, own in found.items():
        times.keep(name, own)


def _rows(
    maker: Maker, ways: Sequence[str], runs: dict[str, Any], times: dict[str, Any]
) -> list[dict[str, Any]]:
    """Those of a task, of ways whose seeds are all there."""
    plan = maker.plan
    names = {way: [maker.name(way, seed) for seed in range(plan.seeds)] for way in ways}
    whole = {way: [runs[n] for n in of] for way, of in names.items() if all(n in runs for n in of)}
    if plan.base not in whole:
        return []
    base = [run["forms"][plan.ways[plan.base].forms[0]] for run in whole[plan.base]]
    return [
        _row(whole[way], form, base)
        | {"task": maker.task, "way": way, "form": form}
        | times.get(f"{maker.name(way, 0)} {form}", {})
        for way, form in _forms(maker, [way for way in ways if way in whole])
    ]


def _row(
    runs: Sequence[dict[str, Any]], form: Form, base: Sequence[dict[str, float]]
) -> dict[str, Any]:
    """What the seeds of a form come to, beside those of the base."""
    own = [run["forms"][form] for run in runs]
    scores, before = [each["score"] for each in own], [each["score"] for each in base]
    alone = [run["alone"] for run in runs]
    known = estimate(scores)
    return {
        "mean": known.mean,
        "interval": f"{known.low:.4g} to {known.high:.4g}" if known.interval else None,
        "of": (of := estimate(before).mean),
        "kept": 100 * known.mean / of,
        "lost": _points(before, scores),
        "over_alone": None if None in alone else _points(scores, alone),
        "parameters": runs[0]["parameters"] / 1e6,
        "layers": runs[0]["layers"],
        "megabytes": own[0]["bytes"] / 1e6,
        "smaller": base[0]["bytes"] / own[0]["bytes"],
        "scores": scores,
    }


def _points(first: Sequence[float], second: Sequence[float]) -> str:
    """How many hundredths the first are above the second, seed by seed."""
    return str(paired([100 * score for score in first], [100 * score for score in second]))


def _shown(run: dict[str, Any]) -> str:
    return ", ".join(f"{form} {own['score']:.4f}" for form, own in run["forms"].items())
