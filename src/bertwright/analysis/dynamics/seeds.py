"""How much of a fine-tuned model is luck, and whose (Dodge et al. 2020)."""

from typing import Literal

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from pydantic import Field

from bertwright.analysis.analysis import Analysis, Case
from bertwright.analysis.conclusions import Conclusion
from bertwright.analysis.dynamics.tagging import SETTINGS, Tagging, lacks_tagging
from bertwright.analysis.findings import Baseline, Finding, Found, Stored
from bertwright.statistics import estimate
from bertwright.tasks.assembling import prepare_training
from bertwright.tasks.finetuning_settings import FineTuning
from bertwright.tasks.parts import Turns, plans_of
from bertwright.tasks.task_training import unwatched

Floats = NDArray[np.float64]

HEADS, ORDERS, REST = "share of the variance, heads and dropout", "orders", "both together"


PERMUTATIONS = 2_000


class Seeds(Analysis):
    """Words whose part of speech is named right, of ``heads`` seeds that draw head and dropout
    crossed with ``orders`` seeds that draw the order of the examples: what share of the variance
    either has, and what the best of several runs is expected to score."""

    kind: Literal["seeds"] = "seeds"
    heads: int = Field(default=3, ge=2)
    orders: int = Field(default=3, ge=2)
    number = "B42"
    group = "dynamics"
    question = "How far do seeds differ, and which of them?"
    source = "Dodge et al. 2020"

    def lacks(self, case: Case) -> str | None:
        return lacks_tagging(case)

    def run(self, case: Case) -> Found:
        tagging = Tagging.of(case)
        scores = self._scores(case, tagging)
        runs, best = estimate(scores.ravel().tolist()), expected_best(scores.ravel())
        always = tagging.majority
        failed = float((scores <= always.value).mean())
        shares, by_chance = variance_shares(scores), shares_by_chance(scores, case.seed)
        findings = [
            Finding("right", runs.mean, None, None, (runs.low, runs.high), runs.count, always),
            Finding("deviation of runs", runs.deviation, num_units=runs.count),
            Finding("best of all runs, less their mean", float(best[-1] - best[0])),
            Finding(REST, shares[REST], num_units=scores.size),
            Finding("share of runs that failed", failed, baseline=Baseline("none", 0.0)),
            *(
                Finding(
                    name,
                    shares[name],
                    num_units=scores.size,
                    baseline=Baseline("by chance", mean),
                    chance=chance,
                    note=f"{len(scores)} seeds each",
                )
                for name, (mean, chance) in by_chance.items()
            ),
        ]
        return Found(findings, {"scores": scores, "expected best": best})

    def conclusions(self, stored: Stored) -> list[Conclusion]:
        found: list[Conclusion] = []
        for name, claim in (
            (HEADS, "heads draw part of what runs differ by"),
            (ORDERS, "orders do"),
        ):
            own = stored.of_all(name)
            found.append(
                Conclusion(
                    claim,
                    "both seeds contribute comparably",
                    own["value"],
                    None,
                    own["baseline"]["value"],
                    own["baseline"]["name"],
                    chance=own["chance"],
                    num_units=own["num_units"],
                )
            )
        return found

    def draw(self, stored: Stored, figure: Figure) -> None:
        runs, best = figure.subplots(1, 2)
        scores = stored.arrays["scores"]
        for number, own in enumerate(scores):
            runs.scatter(np.full(len(own), number + 1), own)
        runs.set_xlabel("seed of heads and dropout; a dot an order")
        runs.set_ylabel("right")
        runs.set_xticks(range(1, 1 + len(scores)))
        best.plot(range(1, 1 + scores.size), stored.arrays["expected best"], marker="o")
        best.set_xlabel("runs")
        best.set_ylabel("expected score of the best of them")

    def _scores(self, case: Case, tagging: Tagging) -> Floats:
        """(heads, orders)."""
        chosen = FineTuning.of(SETTINGS)
        training = prepare_training(
            case.subject.text_model, [tagging.given], chosen, unwatched, None
        )
        scores = np.zeros((self.heads, self.orders))
        for order in range(self.orders):
            plans = plans_of(training.parts, chosen.batch, order)
            for head in range(self.heads):
                turns = Turns.of(plans, chosen.share_power, head)
                tuned = training.run(plans, turns, compiled=False).models[0]
                scores[head, order] = tagging.right(tuned).sum() / tagging.total.sum()
        return scores


def variance_shares(scores: Floats) -> dict[str, float]:
    """Of scores (A, B), what share of their squares around the mean goes with the first, with the
    second, and with neither alone; nothing where all are alike."""
    centred = scores - scores.mean()
    whole = float((centred**2).sum())
    first = float((centred.mean(1) ** 2).sum()) * scores.shape[1]
    second = float((centred.mean(0) ** 2).sum()) * scores.shape[0]
    squares = {HEADS: first, ORDERS: second, REST: whole - first - second}
    return {name: own / whole if whole > 0 else 0.0 for name, own in squares.items()}


def shares_by_chance(scores: Floats, seed: int) -> dict[str, tuple[float, float]]:
    """What each share is in the mean where scores do not go with that seed, and how often it is as
    large: exchanged among its values, within each value of the other."""
    generator, shares = np.random.default_rng(seed), variance_shares(scores)
    found: dict[str, tuple[float, float]] = {}
    for axis, name in enumerate((HEADS, ORDERS)):
        drawn = np.array(
            [
                variance_shares(generator.permuted(scores, axis=axis))[name]
                for _ in range(PERMUTATIONS)
            ]
        )
        as_large = 1 + int((drawn >= shares[name] - 1e-12).sum())
        found[name] = float(drawn.mean()), as_large / (1 + PERMUTATIONS)
    return found


def expected_best(scores: Floats) -> Floats:
    """What the best of 1, 2, ... N runs is expected to score, drawn from these N with putting back
    (section 3, equation 4)."""
    ordered = np.sort(scores)
    upto = np.arange(len(ordered) + 1) / len(ordered)
    return np.array([(ordered * np.diff(upto**n)).sum() for n in range(1, 1 + len(ordered))])
