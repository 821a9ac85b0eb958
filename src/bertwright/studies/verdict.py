"""What a study says of the claim that it was made for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from bertwright.axes import did_you_mean
from bertwright.errors import UserError
from bertwright.statistics import Estimate, estimate
from bertwright.studies.running import Found
from bertwright.studies.study import Expectation

Word = Literal["seen", "not seen", "opposite"]

FEWEST_SEEDS = 3


@dataclass(frozen=True)
class Verdict:
    """An expectation, and how it came out.

    ``lead`` is by how much the expected holds, over the seeds: above 0 where it does. It is *seen*
    where its 95 % interval over three seeds or more lies above 0, *opposite* where that of the
    difference shows that another arm leads, and else *not seen* at this scale.
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


def verdicts(expected: Sequence[Expectation], found: Found) -> list[Verdict]:
    """One for every expectation."""
    return [_verdict(expectation, found) for expectation in expected]


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
    differences = [sign * (a - b) for a, b in zip(own, other, strict=True)]
    lead = estimate([difference - expectation.by for difference in differences])
    return Verdict(expectation, lead, _word(expectation, lead, estimate(differences)))


def _others(expectation: Expectation, found: Found, count: int) -> list[float]:
    other = expectation.other
    if isinstance(other, str):
        return figure(found, other, expectation.its or expectation.measure)
    return [other] * count


def _word(expectation: Expectation, lead: Estimate, difference: Estimate) -> Word:
    if lead.count < FEWEST_SEEDS:
        return "not seen"
    if lead.low > 0:
        return "seen"
    # Another arm leads, and is not only less far behind than expected; a number cannot lead.
    another_leads = difference.high < 0 and isinstance(expectation.other, str)
    return "opposite" if another_leads and lead.high < 0 else "not seen"


def all_figures(found: Mapping[str, Mapping[int, Mapping[str, float]]]) -> list[str]:
    """The figures that some arm has with some seed, in their order."""
    return list(dict.fromkeys(n for by in found.values() for own in by.values() for n in own))


def shared_figures(found: Mapping[str, Mapping[int, Mapping[str, float]]]) -> list[str]:
    """The figures that every arm has with every seed, in their order."""
    all_of_them = [figures for seeds in found.values() for figures in seeds.values()]
    return [name for name in all_of_them[0] if all(name in figures for figures in all_of_them)]
