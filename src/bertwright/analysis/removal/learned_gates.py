"""Gates of heads that learn whether they are open (Louizos et al. 2018; Voita et al. 2019)."""

from contextlib import AbstractContextManager
from itertools import chain, count, islice
from typing import Literal

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from bertwright.analysis.analysis import Analysis, Case
from bertwright.analysis.asking import Asked, Questions
from bertwright.analysis.conclusions import Conclusion, concluded
from bertwright.analysis.findings import Baseline, Finding, Found, Stored
from bertwright.analysis.hard_concrete import HardConcrete
from bertwright.analysis.questions import in_halves, lacks_questions
from bertwright.analysis.removal.gates import SITE, gated, open_gates
from bertwright.analysis.removal.importance import by_layer, importances
from bertwright.analysis.texts import lacks_halves
from bertwright.model.reading import ReadBatch
from bertwright.randomness import key, uniform
from bertwright.significance import of_difference

GATE = HardConcrete(temperature=1 / 3, low=-0.1, high=1.1)

OPEN_AT_FIRST = 2.0
"""The logit of every gate before it learns."""


class LearnedGates(Analysis):
    """The weights stay as they are; every head has a gate that is drawn anew in every step, and
    learns how likely it is to be open: the loss in answers, and ``penalty`` nats times the share of
    heads that are open, are to be small together. A head may so go where it is worth less than its
    part of the penalty. Gates learn by one half of the texts, and are judged, closed or open, by
    the other; beside them as many heads by the gradient of their gates on the same half."""

    kind: Literal["learned-gates"] = "learned-gates"
    penalties: tuple[float, ...] = Field(default=(0.3, 1.0), min_length=1)
    steps: int = Field(default=40, ge=1)
    rate: float = Field(default=0.2, gt=0)
    number = "B18"
    group = "heads"
    question = "Which heads can go together, if gates may learn it?"
    source = "Voita et al. 2019"
    sites = (f"blocks.*.{SITE}",)

    def lacks(self, case: Case) -> str | None:
        lacking = lacks_halves(case.texts, "learn by") or super().lacks(case)
        return lacking or lacks_questions(case.subject)

    def run(self, case: Case) -> Found:
        learning, judging = in_halves(case)
        by_gradient, whole = by_layer(importances(learning)), judging.asked()
        rank = np.argsort(np.argsort(-by_gradient, axis=None)).reshape(by_gradient.shape)
        findings: list[Finding] = []
        chances: list[NDArray[np.float64]] = []
        for penalty in self.penalties:
            logits = self.learned(learning, penalty)
            chances.append(GATE.open_chance(logits).double().cpu().numpy())
            kept = GATE.gates(logits) > 0.5
            others = _judged(judging, torch.from_numpy(rank < int(kept.sum())))
            own = _judged(judging, kept)
            findings += [
                _closed(penalty, kept),
                _more(f"loss more, penalty {penalty:g}", own, whole, case.seed),
                _more(f"loss more by importance, penalty {penalty:g}", others, whole, case.seed),
                _more(f"less than by importance, penalty {penalty:g}", others, own, case.seed),
            ]
        arrays = {"penalties": np.array(self.penalties), "chances": np.array(chances)}
        return Found(findings, arrays)

    def conclusions(self, stored: Stored) -> list[Conclusion]:
        penalty = f"penalty {stored.arrays['penalties'].min():g}"
        published = "38 of 48 heads of an encoder for 0.15 BLEU"
        closed = stored.of_all(f"share of heads closed, {penalty}")
        found = [
            concluded("gates close heads at the lowest penalty", published, closed, 0.0, "none")
        ]
        if not closed["value"]:
            return found
        return [
            *found,
            concluded(
                "all of these heads go for less than a tenth of a nat",
                published,
                stored.of_all(f"loss more, {penalty}"),
                0.1,
                "a tenth of a nat",
                "below",
            ),
            concluded(
                "heads that are closed together cost less than as many by their importance alone",
                "gates learn what heads do together",
                stored.of_all(f"less than by importance, {penalty}"),
                0.0,
                "alike",
            ),
        ]

    def draw(self, stored: Stored, figure: Figure) -> None:
        penalties, chances = stored.arrays["penalties"], stored.arrays["chances"]
        panels = figure.subplots(1, len(penalties), squeeze=False)[0]
        picture = None
        for axes, penalty, own in zip(panels, penalties, chances, strict=True):
            picture = axes.imshow(own, vmin=0, vmax=1)
            axes.set_title(f"penalty {penalty:g}")
            axes.set_xlabel("head")
        panels[0].set_ylabel("layer")
        if picture is not None:
            figure.colorbar(picture, ax=panels[-1], label="chance to be open")

    def learned(self, asking: Questions, penalty: float) -> Tensor:
        """The logits of the gates (layers, H) after all steps."""
        logits = torch.full_like(open_gates(asking.subject), OPEN_AT_FIRST).requires_grad_()
        update = torch.optim.Adam([logits], self.rate)
        places, of = np.arange(logits.numel()).reshape(logits.shape), key(asking.seed, "gates")
        noise = (torch.from_numpy(uniform(of, step, places)).to(logits) for step in count())

        def within(_: ReadBatch) -> AbstractContextManager[None]:
            return gated(asking.subject, GATE.gates(logits, next(noise)))

        with torch.enable_grad():
            again_and_again = chain.from_iterable(asking.batches(within) for _ in count())
            for _, loss, _, total in islice(again_and_again, self.steps):
                worth = loss.sum() / total.sum() + penalty * GATE.open_chance(logits).mean()
                (logits.grad,) = torch.autograd.grad(worth, [logits])
                update.step()
        return logits.detach()


def _judged(asking: Questions, kept: Tensor) -> Asked:
    with gated(asking.subject, kept.to(open_gates(asking.subject))):
        return asking.asked()


def _closed(penalty: float, kept: Tensor) -> Finding:
    closed = 1 - float(kept.double().mean())
    return Finding(f"share of heads closed, penalty {penalty:g}", closed, num_units=kept.numel())


def _more(metric: str, first: Asked, second: Asked, seed: int) -> Finding:
    """By how much the loss of the first is above that of the second."""
    lead = of_difference((first.loss, first.total), (second.loss, second.total), seed=seed)
    return Finding.over_texts(metric, lead, baseline=Baseline("loss of the other", second.mean))
