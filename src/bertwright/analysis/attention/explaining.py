"""Whether attention explains what a model says (Jain and Wallace 2019; Wiegreffe and Pinter 2019;
Serrano and Smith 2019)."""

import math
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from bertwright.analysis.analysis import Analysis, Case
from bertwright.analysis.attention.saying import Saying
from bertwright.analysis.conclusions import Conclusion, concluded
from bertwright.analysis.findings import Finding, Found, Stored
from bertwright.analysis.texts import is_told_apart, lacks_longer
from bertwright.randomness import key
from bertwright.significance import of_difference, of_ratio
from bertwright.tasks.fine_tuned import FineTuned

Floats = NDArray[np.float64]

PERMUTED, EVEN = "permuted", "even"
WITHOUT_TOP, WITHOUT_ANY = "without the place attended to most", "without any other place"

PRECISION = 0.1
"""To which share of itself the part is found that the answer bears."""

Change = Callable[[Tensor], Tensor]


class AttentionExplains(Analysis):
    """How far the answer to a text moves (total variation, 0 to 1) where the attention of one layer
    is changed: every row permuted, every row even, and without the place that gets most of it in
    the mean over heads and rows, or without another that is drawn. And how far attention can move
    (Jensen-Shannon, 0 to 0.69 nats a row, of the rows that reach the answer) with an answer that
    moves by no more than ``bound``: by ``steps`` of a search along the gradient, from all layers at
    once, which finds no more than there is, and maybe less. The answer is the class of a text, or
    what stands in a hidden place. Changed weights are changed in all heads; permutations are drawn
    ``draws`` times."""

    kind: Literal["attention-explains"] = "attention-explains"
    draws: int = Field(default=5, ge=1)
    steps: int = Field(default=12, ge=1)
    rate: float = Field(default=1.0, gt=0)
    bound: float = Field(default=0.05, gt=0, lt=1)
    most: int = Field(default=60, ge=1)
    number = "B50"
    group = "attention"
    question = "Does attention explain what is said?"
    source = "Jain and Wallace 2019"
    sites = ("blocks.*.attention.weights", "blocks.*.attention.scores")

    def lacks(self, case: Case) -> str | None:
        lacking = Saying.lacks(case.subject) or lacks_longer(case.texts[: self.most])
        return lacking or super().lacks(case)

    def run(self, case: Case) -> Found:
        asked = [
            Saying.of(case.subject, text, case.seed, number)
            for number, text in enumerate(case.texts[: self.most])
            if is_told_apart(text)
        ]
        moved: dict[str, list[Floats]] = {
            name: [] for name in (PERMUTED, EVEN, WITHOUT_TOP, WITHOUT_ANY)
        }
        adversary: list[tuple[float, float]] = []
        for number, own in enumerate(asked):
            generator = torch.Generator().manual_seed(key(case.seed, "permuted", number) >> 1)
            layers = [self._moved(own, layer, generator) for layer in range(own.num_layers)]
            for name, found in moved.items():
                found.append(np.array([each[name] for each in layers]))
            adversary.append(self._adversary(own))
        table = {name: np.array(found) for name, found in moved.items()}
        findings = [
            Finding.over_texts(f"answer moves, {name}", of_ratio(own, seed=case.seed), layer)
            for name, by_layer in table.items()
            for layer, own in enumerate(by_layer.T)
        ]
        ones = np.ones(len(asked))
        top, other = (table[name].mean(1) for name in (WITHOUT_TOP, WITHOUT_ANY))
        lead = of_difference((top, ones), (other, ones), seed=case.seed)
        turned = np.array([own for own, _ in adversary])
        findings += [
            Finding.over_texts("answer moves, top less any other", lead),
            Finding.over_texts("attention moved, answer kept", of_ratio(turned, seed=case.seed)),
            Finding("answer moved by that, most", max(answer for _, answer in adversary)),
        ]
        return Found(findings, {**table, "adversary": np.array(adversary)})

    def conclusions(self, stored: Stored) -> list[Conclusion]:
        turned = dict(stored.of_all("attention moved, answer kept"))
        if "interval" in turned:
            # Another search may find more, up to all that is possible: that it finds little does
            # not say that there is little.
            turned["interval"] = turned["interval"][0], math.log(2)
        return [
            concluded(
                "to lose the place attended to most moves the answer more than to lose another",
                "often, though not always",
                stored.of_all("answer moves, top less any other"),
                0.0,
                "alike",
            ),
            concluded(
                "with other attention the answer can be the same",
                "near the most that is possible, 0.69, in many tasks",
                turned,
                0.1,
                "a tenth of a nat",
            ),
        ]

    def draw(self, stored: Stored, figure: Figure) -> None:
        moves, adversary = figure.subplots(1, 2)
        layers = np.arange(1, 1 + stored.arrays[EVEN].shape[1])
        for name in (PERMUTED, EVEN, WITHOUT_TOP, WITHOUT_ANY):
            moves.plot(layers, stored.arrays[name].mean(0), marker="o", label=name)
        moves.set_xlabel("layer whose attention is changed")
        moves.set_ylabel("answer moves, total variation")
        moves.legend()
        adversary.scatter(*stored.arrays["adversary"].T, s=8)
        adversary.axvline(math.log(2), linestyle=":", color="grey")
        adversary.set_xlabel("attention moved, nats a row")
        adversary.set_ylabel("answer moved")

    @torch.no_grad()
    def _moved(self, own: Saying, layer: int, generator: torch.Generator) -> dict[str, float]:
        def moved(change: Change) -> float:
            with own.changed(layer, change):
                return total_variation(own.answer, own.said())

        mass = own.attention[layer].mean((0, 1, 2))
        places = torch.randperm(len(mass), generator=generator).tolist()
        top = int(mass.argmax())
        other = next(place for place in places if place != top)
        drawn = [moved(permuted(generator)) for _ in range(self.draws)]
        return {
            PERMUTED: sum(drawn) / self.draws,
            EVEN: moved(even),
            WITHOUT_TOP: moved(without(top)),
            WITHOUT_ANY: moved(without(other)),
        }

    def _adversary(self, own: Saying) -> tuple[float, float]:
        """How far attention could be moved, the answer within the bound; and how far that moved."""
        rows = rows_that_reach(own.attention, places_read(own))
        generator = torch.Generator().manual_seed(0)
        added: list[Tensor] = []
        for each, reach in zip(own.attention, rows, strict=True):
            drawn = 0.1 * torch.randn(each.shape, generator=generator).to(each)
            added.append((drawn * reach[:, None]).requires_grad_())

        def moved(by: float) -> tuple[Tensor, Tensor]:
            weights, said = own.with_scores([by * each for each in added])
            both = ([w[:, :, n] for w, n in zip(a, rows, strict=True)] for a in (first, weights))
            return divergence(*both), 0.5 * (said - own.answer).abs().sum()

        first, update, best = own.attention, torch.optim.Adam(added, self.rate), (0.0, 0.0)
        for _ in range(self.steps):
            with torch.enable_grad():
                apart, answer = moved(1.0)
                loss = 10 * torch.relu(answer - self.bound / 2) - apart
                gradients = torch.autograd.grad(loss, added)
            if float(apart.detach()) > best[0]:
                best = max(best, self._within(moved))
            for each, gradient in zip(added, gradients, strict=True):
                each.grad = gradient
            update.step()
        return best

    @torch.no_grad()
    def _within(self, moved: Callable[[float], tuple[Tensor, Tensor]]) -> tuple[float, float]:
        """The same for the largest part of what is added that leaves the answer within the bound:
        nothing always does."""
        low, high, best = 0.0, 2.0, (0.0, 0.0)
        while high - low > PRECISION * high:
            by = (low + high) / 2
            turned, answer = map(float, moved(by))
            if answer <= self.bound:
                low, best = by, (turned, answer)
                if by == 1:
                    return best
            else:
                high = by
        return best


def places_read(own: Saying) -> Tensor:
    """(T,) bool: the places whose last states the answer is made of."""
    model, length = own.subject.text_model, own.pieces.shape[1]
    if own.place is not None:
        wanted: Tensor | None = torch.tensor([own.place])
    else:
        assert isinstance(model, FineTuned)
        wanted = model.net.head.places(own.pieces, own.coordinates.document)
    if wanted is None:
        wanted = torch.arange(length)
    read = torch.zeros(length, dtype=torch.bool, device=own.pieces.device)
    read[wanted] = True
    return read


def rows_that_reach(attention: Sequence[Tensor], read: Tensor) -> list[Tensor]:
    """Of every layer (1, H, T, T) the rows (T,) bool that states which are ``read`` hang on: those
    places, and below whatever they look at. Others can be moved at no cost."""
    found: list[Tensor] = []
    for weights in reversed(attention):
        found.append(read)
        read = read | (weights[0, :, read] > 0).flatten(0, 1).any(0)
    return found[::-1]


def permuted(generator: torch.Generator) -> Change:
    """Every row of attention among the places that it looks at, in an order that is drawn."""

    def change(weights: Tensor) -> Tensor:
        drawn = torch.rand(weights.shape, generator=generator).to(weights.device)
        drawn = drawn.masked_fill(weights == 0, 2.0)
        # The n-th place that is looked at gets what the place has whose number is the n-th drawn.
        order, seen = drawn.argsort(-1), (weights == 0).to(drawn).argsort(stable=True, dim=-1)
        return torch.zeros_like(weights).scatter(-1, seen, weights.gather(-1, order))

    return change


def even(weights: Tensor) -> Tensor:
    """As much for every place that is looked at."""
    seen = (weights > 0).to(weights)
    return seen / seen.sum(-1, keepdim=True).clamp(min=1)


def without(place: int) -> Change:
    """Nothing for a place; the others get what it had, each in proportion. A row that looks nowhere
    else stays as it is."""

    def change(weights: Tensor) -> Tensor:
        left = weights.clone()
        left[..., place] = 0
        sums = left.sum(-1, keepdim=True)
        return torch.where(sums > 0, left / sums.clamp(min=1e-12), weights)

    return change


def total_variation(first: Tensor, second: Tensor) -> float:
    """How far two distributions (K,) are apart, 0 to 1."""
    return float(0.5 * (first - second).abs().sum())


def divergence(first: Sequence[Tensor], second: Sequence[Tensor]) -> Tensor:
    """The Jensen-Shannon divergence of rows of attention, in nats, in the mean over layers, heads
    and rows."""

    def entropy(rows: Tensor) -> Tensor:
        return -(rows * rows.clamp(min=1e-12).log()).sum(-1)

    apart = [
        (entropy((a + b) / 2) - (entropy(a) + entropy(b)) / 2).mean()
        for a, b in zip(first, second, strict=True)
    ]
    return torch.stack(apart).mean()
