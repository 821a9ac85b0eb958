"""Texts as vectors of which those are near that belong together: a bi-encoder.

Every text is a row of its own, and what the head reads of it the answer; no layer stands behind it.
So the vectors are those of ``embed`` where the head reads the mean of the last layer or its first
state, by that pooling.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal, cast

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from bertwright.errors import UserError
from bertwright.tasks import metrics
from bertwright.tasks.answers.answer import (
    Answer,
    Answering,
    Floats,
    Metric,
    Prediction,
    by_example,
    by_order,
    told,
)
from bertwright.tasks.answers.partners import Partners
from bertwright.tasks.encoding import RowMaker, TaskRow
from bertwright.tasks.formats.examples import Example, Examples
from bertwright.tasks.formats.labels import finite_number
from bertwright.tasks.rankings import RANKINGS, Ranked


class ClosenessAnswer(Answer):
    """How near two texts are: the cosine of their vectors.

    Attributes:
        loss: ``cosine``, the squared distance of the cosine from the label over ``highest``
            (Reimers and Gurevych 2019); ``in-batch``, cross-entropy over all second texts of a step
            and its ``others``, of which the own one is right (Henderson et al. 2017), without those
            that stand beside the same first text in any example;
            ``triplet``, by how much another text is nearer than the second, or less than ``margin``
            further. The last two learn from pairs that belong together, which those are whose label
            is half of ``highest`` or more, or that have none.
        highest: the label of two texts that say the same.
        sharpness: by what the cosines of ``in-batch`` are divided.
        widths: further widths at which the first numbers of a vector are trained to serve alone
            (Kusupati et al. 2022).
    """

    kind: Literal["closeness"] = "closeness"
    loss: Literal["cosine", "in-batch", "triplet"] = "cosine"
    highest: float = Field(default=1.0, gt=0)
    sharpness: float = Field(default=0.05, gt=0)
    margin: float = Field(default=0.3, gt=0)
    widths: tuple[Annotated[int, Field(ge=1, le=65_536)], ...] = ()
    together: ClassVar[bool] = True
    metrics: ClassVar[Mapping[str, Metric]] = {
        "spearman": metrics.spearman,
        "pearson": metrics.pearson,
        **dict.fromkeys(RANKINGS, by_order),
    }
    usual_metrics: ClassVar[tuple[str, ...]] = ("spearman", "pearson")

    @property
    def whole_steps(self) -> bool:
        return self.loss == "in-batch"

    def shapes(self) -> tuple[type, ...]:
        return (Example,)

    def build(self, labels: Sequence[str], temperature: float = 1.0) -> "ClosenessAnswering":
        return ClosenessAnswering(self)

    def checked(self, examples: Examples) -> None:
        super().checked(examples)
        for example in cast(Sequence[Example], examples):
            if example.second is None:
                raise UserError(f"{told(example)}: a second text is needed: name its column (pair)")
            if self.loss == "triplet" and not example.others:
                raise UserError(
                    f"{told(example)}: the loss triplet needs a third text, which is further from "
                    f"the first: name its column (other)"
                )
            label = None if example.label is None else finite_number(told(example), example.label)
            if self.loss == "cosine" and label is not None and not 0 <= label <= self.highest:
                raise UserError(
                    f"{told(example)}: the label {label:g} is not from 0 to {self.highest:g}: "
                    f"state that of two texts that say the same as answer.highest"
                )

    def taught_by(self, examples: Examples) -> Examples:
        """Without pairs that do not belong together, where all that are seen are taken to."""
        if self.loss == "cosine":
            self._require_near(cast(Sequence[Example], examples))
            return examples
        found = [e for e in cast(Sequence[Example], examples) if self._together(e)]
        if not found:
            raise UserError(
                f"the loss {self.loss} learns from pairs whose label is {self.highest / 2:g} or "
                f"more, half of answer.highest, and there is none: choose the loss cosine"
            )
        return found

    def _require_near(self, examples: Sequence[Example]) -> None:
        """Refuse labels of another scale: to learn from them would draw no texts together."""
        nearest = max(float(cast(float, example.label)) for example in examples)
        if nearest < self.highest / 2:
            raise UserError(
                f"the highest label is {nearest:g}, and answer.highest, that of two texts that say "
                f"the same, is {self.highest:g}: state yours as answer.highest"
            )

    def _together(self, example: Example) -> bool:
        right = self.reference(example)
        return right is None or right >= self.highest / 2

    def reference(self, example: Example) -> float | None:
        """A pair without a number is one that belongs together, but for ``cosine``."""
        if example.label is None:
            return None if self.loss == "cosine" else self.highest
        return float(cast(float, example.label))

    def score(
        self, metrics: Sequence[str], examples: Examples, predictions: Sequence[Prediction]
    ) -> dict[str, float]:
        ranked = [name for name in metrics if name in RANKINGS]
        plain = super().score([n for n in metrics if n not in ranked], examples, predictions)
        queries = self.queries(examples, predictions) if ranked else []
        return {n: RANKINGS[n](queries) if n in ranked else plain[n] for n in metrics}

    def queries(self, examples: Examples, predictions: Sequence[Prediction]) -> list[Ranked]:
        """Return every first text, for which all texts that stand second are ranked."""
        firsts: dict[str, Floats] = {}
        seconds: dict[str, Floats] = {}
        relevant: dict[str, dict[str, float]] = {}
        pairs = cast(Sequence[Example], examples)
        for example, prediction in zip(pairs, predictions, strict=True):
            vectors, second = prediction.vectors, example.second
            assert vectors is not None
            assert second is not None
            firsts[example.first] = vectors[0]
            for text, vector in zip((second, *example.others), vectors[1:], strict=True):
                seconds[text] = vector
            right = self.reference(example)
            of = relevant.setdefault(example.first, {})
            of[second] = max(of.get(second, 0.0), 0.0 if right is None else right)
        texts = list(seconds)
        pool = _unit(np.stack([seconds[text] for text in texts])).T
        return [
            Ranked(
                np.array([relevant[query].get(text, 0.0) for text in texts]),
                (_unit(vector[None])[0] @ pool).astype(np.float64),
            )
            for query, vector in firsts.items()
        ]


@dataclass(frozen=True)
class ClosenessAnswering(Answering):
    """Of :class:`ClosenessAnswer`."""

    choice: ClosenessAnswer
    num_outputs: int = 0
    partners: Partners | None = None

    def fitted(self, examples: Examples) -> "ClosenessAnswering":
        if self.choice.loss != "in-batch":
            return self
        return replace(self, partners=Partners.of(cast(Sequence[Example], examples)))

    def rows(self, maker: RowMaker, examples: Examples) -> list[TaskRow]:
        texts: list[Example] = []
        owner: list[int] = []
        for number, example in enumerate(cast(Sequence[Example], examples)):
            own = [example.first, *([] if example.second is None else [example.second])]
            own += example.others
            texts += [Example(text) for text in own]
            owner += [number] * len(own)
        return maker.rows(texts, owner=owner)

    def targets(self, rows: Sequence[TaskRow], example: Example) -> list[float] | list[int]:
        """How near the two texts are; of ``in-batch`` the number of the example, by which those
        are known that belong together."""
        if self.choice.loss == "in-batch":
            return [rows[0].example]
        right = self.choice.reference(example)
        assert right is not None, "what is trained on has a label"
        return [right / self.choice.highest]

    def loss(self, outputs: Tensor, sizes: Sequence[int], targets: Tensor) -> tuple[Tensor, Tensor]:
        whole = outputs.shape[1]
        if wrong := next((width for width in self.choice.widths if width > whole), None):
            raise UserError(
                f"answer.widths: {wrong} is more than a vector has, {whole}: choose less"
            )
        widths = [whole, *self.choice.widths]
        losses = [self._at(outputs[:, :width], sizes, targets) for width in widths]
        total = torch.stack([loss for loss, _ in losses]).mean()
        return total, losses[0][1]

    def logits(self, outputs: Tensor, sizes: Sequence[int]) -> None:
        return None

    def numbers(self, outputs: Tensor, sizes: Sequence[int]) -> Tensor:
        """How near the first text of an item is to each of the others, vectors of any width."""
        items = (F.normalize(item, dim=1) for item in outputs.split(list(sizes)))
        return torch.cat([item[1:] @ item[0] for item in items]).unsqueeze(1)

    def _at(self, outputs: Tensor, sizes: Sequence[int], targets: Tensor) -> tuple[Tensor, Tensor]:
        unit = F.normalize(outputs, dim=1)
        begin = torch.tensor([0, *np.cumsum(sizes)[:-1].tolist()], device=outputs.device)
        first, second = unit[begin], unit[begin + 1]
        near = (first * second).sum(1)
        if self.choice.loss == "cosine":
            return (near - targets).square().sum(), near.new_zeros(())
        others = torch.ones(len(unit), dtype=torch.bool, device=outputs.device)
        others[begin] = others[begin + 1] = False
        if self.choice.loss == "in-batch":
            candidates = torch.cat((second, unit[others]))
            right = torch.arange(len(first), device=unit.device)
            assert self.partners is not None, "what is trained is fitted to its examples"
            known = self.partners.belong(targets)
            known[right, right] = False
            scores = (first @ candidates.T / self.choice.sharpness).masked_fill(known, -torch.inf)
            loss = F.cross_entropy(scores, right, reduction="sum")
            return loss, (scores.argmax(1) == right).sum()
        repeats = torch.tensor([size - 2 for size in sizes], device=outputs.device)
        owner = torch.repeat_interleave(torch.arange(len(sizes), device=outputs.device), repeats)
        far = (first[owner] * unit[others]).sum(1)
        losses = F.relu(self.choice.margin + far - near[owner]) / repeats[owner]
        return losses.sum(), (far < near[owner]).sum()

    def predictions(
        self, rows: Sequence[TaskRow], outputs: Sequence[Floats], examples: Examples
    ) -> list[Prediction]:
        found: list[Prediction] = []
        for parts in by_example(rows, outputs, len(examples)):
            vectors = np.concatenate([output for _, output in parts])
            if len(vectors) < 2:
                raise UserError("closeness is asked of two texts: give a pair")
            unit = _unit(vectors[:2])
            found.append(Prediction(float(unit[0] @ unit[1]), vectors=vectors))
        return found


def _unit(vectors: Floats) -> Floats:
    """Of length 1, (N, D)."""
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
