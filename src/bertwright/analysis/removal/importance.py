"""How much heads matter by the gradient of their gates, and what is left when the least go first
(Michel et al. 2019, section 4)."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
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
from bertwright.analysis.findings import Finding, Found, Stored
from bertwright.analysis.questions import in_halves, lacks_questions
from bertwright.analysis.removal.gates import SITE, gated, open_gates
from bertwright.analysis.subject import Subject
from bertwright.analysis.texts import lacks_halves
from bertwright.model.reading import ReadBatch
from bertwright.randomness import key, uniform
from bertwright.significance import of_difference

Importances = NDArray[np.float64]


class HeadImportance(Analysis):
    """Heads are removed a few at a time, those of the least importance first, and the loss in
    naming pieces is measured; beside it what happens by the loss without each head alone (the
    oracle), and in random orders. What matters is found on half of the texts, and what is lost is
    measured on the other half.

    Attributes:
        step: the share of heads that goes at a time.
        orders: random ones.
    """

    kind: Literal["head-importance"] = "head-importance"
    step: float = Field(default=0.1, gt=0, le=1)
    orders: int = Field(default=5, ge=1)
    number = "B17"
    group = "heads"
    question = "How many heads can go, and does the gradient of a gate know which?"
    source = "Michel et al. 2019"
    sites = (f"blocks.*.{SITE}",)

    def lacks(self, case: Case) -> str | None:
        lacking = lacks_halves(case.texts, "choose by") or super().lacks(case)
        return lacking or lacks_questions(case.subject)

    def run(self, case: Case) -> Found:
        subject = case.subject
        choosing, asking = in_halves(case)
        own, alone = by_layer(importances(choosing)), losses_alone(choosing)
        drawn = [
            uniform(key(case.seed, "order of heads"), number, np.arange(own.size)).reshape(
                own.shape
            )
            for number in range(self.orders)
        ]
        shares = [*np.arange(0, 1, self.step), 1.0]
        curves = {
            "importance": self._curve(asking, subject, own, shares),
            "oracle": self._curve(asking, subject, alone, shares),
        }
        random = [self._curve(asking, subject, order, shares) for order in drawn]
        findings = [
            Finding("importance, over the length of those of its layer", float(value), *at)
            for at, value in np.ndenumerate(own)
        ]
        for name, curve in curves.items():
            findings += [
                Finding(f"loss by {name}, {share:.0%} removed", each.mean)
                for share, each in zip(shares, curve, strict=True)
            ]
        whole, many = curves["importance"][0], curves["importance"][_at(shares, 0.2)]
        cost = of_difference((many.loss, many.total), (whole.loss, whole.total), seed=case.seed)
        findings.append(Finding.over_texts("loss with a fifth removed, less that of all", cost))
        half = _at(shares, 0.5)
        any_order = np.mean([curve[half].loss for curve in random], axis=0)
        by_own = curves["importance"][half]
        lead = of_difference((any_order, by_own.total), (by_own.loss, by_own.total), seed=case.seed)
        findings.append(Finding.over_texts("half removed, random orders less importance", lead))
        arrays = {
            "shares": np.array(shares),
            "importances": own,
            **{name: np.array([c.mean for c in curve]) for name, curve in curves.items()},
            "random": np.array([[c.mean for c in curve] for curve in random]),
        }
        return Found(findings, arrays)

    def conclusions(self, stored: Stored) -> list[Conclusion]:
        return [
            concluded(
                "a fifth of the heads can go for less than a tenth of a nat",
                "20 % (translation) to 40 % (BERT) without a loss that shows",
                stored.of_all("loss with a fifth removed, less that of all"),
                0.1,
                "a tenth of a nat",
                "below",
            ),
            concluded(
                "with half of them gone, less is lost by importance than in random orders",
                "the gradient of a gate stands in for the oracle",
                stored.of_all("half removed, random orders less importance"),
                0.0,
                "alike",
            ),
        ]

    def draw(self, stored: Stored, figure: Figure) -> None:
        axes = figure.subplots()
        shares, random = stored.arrays["shares"], stored.arrays["random"]
        axes.plot(shares, stored.arrays["importance"], label="by importance")
        axes.plot(shares, stored.arrays["oracle"], "--", label="oracle")
        axes.plot(shares, random.mean(0), ":", label="random")
        axes.fill_between(shares, random.min(0), random.max(0), alpha=0.2)
        axes.set_xlabel("share of heads removed")
        axes.set_ylabel("loss, nats")
        axes.legend()

    def _curve(
        self, asking: Questions, subject: Subject, order: Importances, shares: Sequence[float]
    ) -> list[Asked]:
        """What is left when heads go in this order."""
        rank = np.argsort(np.argsort(order, axis=None)).reshape(order.shape)
        found: list[Asked] = []
        for share in shares:
            kept = torch.from_numpy(rank >= round(share * order.size))
            gates = open_gates(subject) * kept.to(subject.text_model.device)
            with gated(subject, gates):
                found.append(asking.asked())
        return found


def importances(asking: Questions) -> Importances:
    """The mean over texts of the absolute gradient of the loss of a text with respect to the gate
    of each head, (layers, H): equation 2, with a gate for every text."""
    subject, held = asking.subject, list[Tensor]()
    total = torch.zeros_like(open_gates(subject))

    def within(batch: ReadBatch) -> AbstractContextManager[None]:
        gates = open_gates(subject)[:, None].repeat(1, len(batch.numbers), 1).requires_grad_()
        held[:] = [gates]
        return gated(subject, gates)

    with torch.enable_grad():
        for _, loss, _, _ in asking.batches(within):
            (gradient,) = torch.autograd.grad(loss.sum(), held)
            total += gradient.abs().sum(1)
    return (total / len(asking.texts)).double().cpu().numpy()


def by_layer(found: Importances) -> Importances:
    """Importances (layers, H) over their length in each layer."""
    return found / np.maximum(np.linalg.norm(found, axis=1, keepdims=True), 1e-30)


def losses_alone(asking: Questions) -> Importances:
    """The loss without each head alone, (layers, H)."""
    gates = open_gates(asking.subject)
    found = np.zeros(gates.shape)
    for at in np.ndindex(*gates.shape):
        gates[at] = 0
        with gated(asking.subject, gates):
            found[at] = asking.asked().mean
        gates[at] = 1
    return found


def _at(shares: Sequence[float], share: float) -> int:
    return int(np.argmin(np.abs(np.asarray(shares) - share)))
