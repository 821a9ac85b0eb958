"""Several analyses of one model: which they are, how long they take, and their files."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from bertwright import __version__
from bertwright.analysis import (
    attention,
    attribution,
    behaviour,
    dynamics,
    geometry,
    identifiability,
    probing,
    removal,
    syntax,
)
from bertwright.analysis.analysis import Analysis, Case, Listening, Shown
from bertwright.analysis.conclusions import Conclusion
from bertwright.analysis.findings import Found, holds_found, read_found, write_found
from bertwright.analysis.listening import listen
from bertwright.analysis.texts import digest
from bertwright.axes import did_you_mean
from bertwright.errors import UserError
from bertwright.files import atomic_file

ROOMS = (
    attention,
    attribution,
    behaviour,
    dynamics,
    geometry,
    identifiability,
    probing,
    removal,
    syntax,
)
"""Whose analyses are known when they are imported."""


AGAINST = "against"
"""The folder in which the files of the other model stand."""


@dataclass(frozen=True)
class Answered:
    """What became of an analysis: its conclusions and tables, or why it says nothing of this model;
    and the same of another model where there is one."""

    analysis: Analysis
    conclusions: Sequence[Conclusion] = ()
    lacks: str | None = None
    other: "Answered | None" = None
    tables: Sequence[Shown] = ()

    def as_dict(self) -> dict[str, Any]:
        """What ``analyse --json`` prints of it."""
        told: dict[str, Any] = {"id": self.analysis.number, "question": self.analysis.question}
        if self.lacks is not None:
            return {**told, "not_applicable": self.lacks}
        told["conclusions"] = [each.as_dict() for each in self.conclusions]
        return told if self.other is None else {**told, "against": self.other.as_dict()}

    def beside(self, claim: str) -> Conclusion | None:
        """What is concluded of the same claim for the other model."""
        others = () if self.other is None else self.other.conclusions
        return next((each for each in others if each.claim == claim), None)


def chosen(names: Sequence[str]) -> list[Analysis]:
    """The analyses of these names, numbers or groups; all of them for ``all``.

    Errors: UserError for a name that is none.
    """
    kinds = Analysis.kinds()
    known = {kind: [kind] for kind in kinds} | {"all": list(kinds)}
    for kind, own in kinds.items():
        known.setdefault(own.number.lower(), []).append(kind)
        known.setdefault(own.group, []).append(kind)
    wanted: dict[str, None] = {}
    for name in names or ["all"]:
        if name.lower() not in known:
            groups = sorted({own.group for own in kinds.values()})
            raise UserError(f"no analysis {name!r}{did_you_mean(name, known, [*groups, 'all'])}")
        wanted |= dict.fromkeys(known[name.lower()])
    return [Analysis.choose(kind) for kind in wanted]


def analyse(
    case: Case, analyses: Sequence[Analysis], out: Path, say: Callable[[str], None] = print
) -> list[Answered]:
    """Run analyses, those that listen in one pass, and leave the files of each in ``out``; what
    stands there of the same model, texts and settings is not asked again."""
    lacks = {analysis.own_kind(): analysis.lacks(case) for analysis in analyses}
    asked = [analysis for analysis in analyses if lacks[analysis.own_kind()] is None]
    open_ones = [own for own in asked if not _stands(own, case, out, say)]
    if len(open_ones) < len(asked):
        say(f"{len(asked) - len(open_ones)} of {len(asked)} stand in {out}")
    listening = [analysis for analysis in open_ones if isinstance(analysis, Listening)]
    if listening:
        began = time.monotonic()
        listeners = [analysis.listener(case) for analysis in listening]
        listen(case.subject, case.texts, listeners)
        for analysis, listener in zip(listening, listeners, strict=True):
            _leave(analysis, case, listener.found(), out)
        say(f"{len(listening)} read {len(case.texts)} texts: {time.monotonic() - began:.0f} s")
    for analysis in open_ones:
        if not isinstance(analysis, Listening):
            began = time.monotonic()
            _leave(analysis, case, analysis.run(case), out)
            say(f"{analysis.own_kind()}: {time.monotonic() - began:.0f} s")
    return [_answered(analysis, lacks[analysis.own_kind()], out) for analysis in analyses]


def with_other(answered: Sequence[Answered], others: Sequence[Answered]) -> list[Answered]:
    """What was asked of two models, together."""
    return [replace(own, other=other) for own, other in zip(answered, others, strict=True)]


def standing(
    case: Case,
    asked: Sequence[Analysis],
    out: Path,
    beside: Case | None = None,
    say: Callable[[str], None] = print,
) -> list[Answered]:
    """What stands in ``out`` of the same model, texts and settings beside what was asked now; and
    the same of another model, ``beside`` this one, where there is one."""
    kinds = {analysis.own_kind() for analysis in asked}
    found: list[Answered] = []
    for analysis in (own for own in chosen([]) if own.own_kind() not in kinds):
        if _stands(analysis, case, out, say):
            held = beside is not None and _stands(analysis, beside, out / AGAINST, say)
            other = _answered(analysis, None, out / AGAINST) if held else None
            found.append(replace(_answered(analysis, None, out), other=other))
    return found


def seconds_of_a_pass(case: Case) -> float:
    """How long the model takes to read all texts once, by a few of them."""
    some = case.texts[:8]
    began = time.monotonic()
    with torch.inference_mode():
        listen(case.subject, some, [])
    return (time.monotonic() - began) * len(case.texts) / max(len(some), 1)


def _about(analysis: Analysis, case: Case) -> dict[str, Any]:
    """What an answer hangs on."""
    two = case.other if analysis.of_two else None
    other = {} if two is None else {"against_digest": two.identity}
    return {
        **analysis.about(),
        "settings": analysis.model_dump(mode="json"),
        "model": case.subject.name,
        "model_digest": case.subject.identity,
        **other,
        "texts": len(case.texts),
        "texts_digest": digest(case.texts),
        "seed": case.seed,
        "version": __version__,
    }


def _stands(analysis: Analysis, case: Case, out: Path, say: Callable[[str], None]) -> bool:
    """Whether there is a whole answer to the same question, with its picture."""
    kind = analysis.own_kind()
    if not (_picture(out, kind).is_file() and holds_found(out, kind)):
        return False
    try:
        return read_found(out, kind).about == _about(analysis, case)
    except UserError:
        say(f"{kind} in {out} is damaged or of another version: passed over")
        return False


def _picture(out: Path, kind: str) -> Path:
    return out / f"{kind}.png"


def _leave(analysis: Analysis, case: Case, found: Found, out: Path) -> None:
    kind = analysis.own_kind()
    # Drawn last, so that a run that is stopped between leaves no picture of other numbers.
    _picture(out, kind).unlink(missing_ok=True)
    write_found(out, kind, _about(analysis, case), found)
    figure = Figure(figsize=(10, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    analysis.draw(read_found(out, kind), figure)
    with atomic_file(_picture(out, kind)) as temporary:
        figure.savefig(temporary, dpi=120, format="png")


def _answered(analysis: Analysis, lacks: str | None, out: Path) -> Answered:
    if lacks is not None:
        return Answered(analysis, lacks=lacks)
    stored = read_found(out, analysis.own_kind())
    return Answered(analysis, analysis.conclusions(stored), tables=analysis.tables(stored))
