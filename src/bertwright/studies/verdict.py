"""What a study says of the claim that it was made for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from bertwright.axes import did_you_mean
from bertwright.errors import UserError
from bertwright.statistics import Estimate, estimate
from bertwright.studies.running import Found
from bertwright.studies.study import Expectation, Study

Word = Literal["seen", "not seen", "opposite"]

FEWEST_SEEDS = 3
STANDARD_ERRORS = 2.0
"""By which a mean difference must differ from nothing."""


@dataclass(frozen=True)
class Verdict:
    """An expectation, and how it came out.

    ``lead`` is by how much the expected holds, over the seeds: above 0 where it does. It is *seen*
    where at least three seeds all agree and their mean is more than two standard errors from 0,
    *opposite* where they agree that another arm leads, and else *not seen* at this scale.
    """

    expectation: Expectation
    lead: Estimate
    word: Word

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "expected": str(self.expectation),
            "lead": self.lead.mean,
            "interval": self.lead.interval,
            "seeds": self.lead.count,
            "verdict": self.word,
        }


def verdicts(study: Study, found: Found) -> list[Verdict]:
    """One for every expectation of a study."""
    return [_verdict(expectation, found) for expectation in study.expected]


def which_is_better(found: Found) -> tuple[Expectation, ...]:
    """That the first of two arms names text better than the second, by bits per byte or by the loss
    of the first question that both were asked; nothing where they have no such figure."""
    first, second = found
    figures = [n for n in shared_figures(found) if n.endswith(("bits_per_byte", "_loss"))]
    figures.sort(key=lambda name: not name.endswith("bits_per_byte"))
    return tuple(Expectation(measure=n, arm=first, below=second) for n in figures[:1])


def overall(judged: Sequence[Verdict]) -> Word:
    """Of the whole claim: seen where every part of it is, opposite where any part is."""
    words = {verdict.word for verdict in judged}
    if "opposite" in words:
        return "opposite"
    return "seen" if words == {"seen"} else "not seen"


def figure(found: Found, arm: str, name: str) -> list[float]:
    """A figure of an arm, over the seeds.

    Errors: UserError where the arm has no such figure.
    """
    by_seed = found[arm]
    for figures in by_seed.values():
        if name not in figures:
            raise UserError(f"arm {arm} has no figure {name!r}{did_you_mean(name, figures)}")
    return [by_seed[seed][name] for seed in sorted(by_seed)]


def has_figure(found: Found, arm: str, name: str) -> bool:
    """Whether an arm has been measured so."""
    return all(name in figures for figures in found[arm].values())


def _verdict(expectation: Expectation, found: Found) -> Verdict:
    own = figure(found, expectation.arm, expectation.measure)
    other = _others(expectation, found, len(own))
    sign = 1.0 if expectation.below is None else -1.0
    leads = [sign * (a - b) - expectation.by for a, b in zip(own, other, strict=True)]
    lead = estimate(leads)
    word = _word(leads, lead)
    if word == "opposite" and not _another_leads(expectation, leads):
        word = "not seen"
    return Verdict(expectation, lead, word)


def _another_leads(expectation: Expectation, leads: Sequence[float]) -> bool:
    """Whether another arm is ahead with every seed, and not only less far behind than expected."""
    ahead = all(lead + expectation.by < 0 for lead in leads)
    return ahead and isinstance(expectation.other, str)


def _others(expectation: Expectation, found: Found, count: int) -> list[float]:
    other = expectation.other
    if isinstance(other, str):
        return figure(found, other, expectation.its or expectation.measure)
    return [other] * count


def _word(leads: Sequence[float], lead: Estimate) -> Word:
    if len(leads) < FEWEST_SEEDS:
        return "not seen"
    if abs(lead.mean) <= STANDARD_ERRORS * lead.deviation / len(leads) ** 0.5:
        return "not seen"
    if all(value > 0 for value in leads):
        return "seen"
    return "opposite" if all(value < 0 for value in leads) else "not seen"


def all_figures(found: Mapping[str, Mapping[int, Mapping[str, float]]]) -> list[str]:
    """The figures that some arm has with some seed, in their order."""
    return list(dict.fromkeys(n for by in found.values() for own in by.values() for n in own))


def shared_figures(found: Mapping[str, Mapping[int, Mapping[str, float]]]) -> list[str]:
    """The figures that every arm has with every seed, in their order."""
    all_of_them = [figures for seeds in found.values() for figures in seeds.values()]
    return [name for name in all_of_them[0] if all(name in figures for figures in all_of_them)]
