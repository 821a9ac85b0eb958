"""Several analyses of one model: which they are, how long they take, and their files."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

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
from bertwright.analysis.analysis import Analysis, Case, Listening
from bertwright.analysis.conclusions import Conclusion
from bertwright.analysis.findings import Found, read_found, write_found
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
    """What became of an analysis: its conclusions, or why it says nothing of this model; and the
    same of another model where there is one."""

    analysis: Analysis
    conclusions: Sequence[Conclusion] = ()
    lacks: str | None = None
    other: "Answered | None" = None

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
    """Run analyses, those that listen in one pass, and leave the files of each in ``out``."""
    lacks = {analysis.own_kind(): analysis.lacks(case) for analysis in analyses}
    able = [analysis for analysis in analyses if lacks[analysis.own_kind()] is None]
    listening = [analysis for analysis in able if isinstance(analysis, Listening)]
    began = time.monotonic()
    found: dict[str, Found] = {}
    if listening:
        listeners = [analysis.listener(case) for analysis in listening]
        listen(case.subject, case.texts, listeners)
        for analysis, listener in zip(listening, listeners, strict=True):
            found[analysis.own_kind()] = listener.found()
        say(f"{len(listening)} read {len(case.texts)} texts: {time.monotonic() - began:.0f} s")
    answered: list[Answered] = []
    for analysis in analyses:
        kind, began = analysis.own_kind(), time.monotonic()
        if lacks[kind] is None and kind not in found:
            found[kind] = analysis.run(case)
            say(f"{kind}: {time.monotonic() - began:.0f} s")
        answered.append(_answered(analysis, case, found, lacks, out))
    return answered


def with_other(answered: Sequence[Answered], others: Sequence[Answered]) -> list[Answered]:
    """What was asked of two models, together."""
    return [replace(own, other=other) for own, other in zip(answered, others, strict=True)]


def seconds_of_a_pass(case: Case) -> float:
    """How long the model takes to read all texts once, by a few of them."""
    some = case.texts[:8]
    began = time.monotonic()
    with torch.inference_mode():
        listen(case.subject, some, [])
    return (time.monotonic() - began) * len(case.texts) / max(len(some), 1)


def _answered(
    analysis: Analysis,
    case: Case,
    found: Mapping[str, Found],
    lacks: Mapping[str, str | None],
    out: Path,
) -> Answered:
    kind = analysis.own_kind()
    if lacks[kind] is not None:
        return Answered(analysis, lacks=lacks[kind])
    about = {
        **analysis.about(),
        "settings": analysis.model_dump(mode="json"),
        "model": case.subject.name,
        "model_digest": case.subject.digest,
        "texts": len(case.texts),
        "texts_digest": digest(case.texts),
        "seed": case.seed,
    }
    write_found(out, kind, about, found[kind])
    stored = read_found(out, kind)
    figure = Figure(figsize=(10, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    analysis.draw(stored, figure)
    with atomic_file(out / f"{kind}.png") as temporary:
        figure.savefig(temporary, dpi=120, format="png")
    return Answered(analysis, analysis.conclusions(stored))
