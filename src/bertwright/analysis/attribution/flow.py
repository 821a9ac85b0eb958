"""What attention tells of where an answer comes from: as it is in the last layer, multiplied
through all layers, or as the most that can flow (Abnar and Zuidema 2020)."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from pydantic import Field
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_flow
from scipy.stats import spearmanr
from torch import Tensor

from bertwright.analysis.analysis import Analysis, Case
from bertwright.analysis.attention.rollout import rollout
from bertwright.analysis.attribution.answers import Answer
from bertwright.analysis.conclusions import Conclusion, concluded
from bertwright.analysis.findings import Finding, Found, Stored
from bertwright.analysis.questions import lacks_hidden_places
from bertwright.significance import of_ratio

Floats = NDArray[np.float64]

VIEWS = ("last layer", "rollout", "flow")

WHOLE = 2**20
"""As which integer a capacity of 1 is given to the library."""


class AttentionFlow(Analysis):
    """In every short text one piece is hidden and named. How far the score of the right one moves
    when another piece is hidden, too, is held against what attention says of that piece: the last
    layer, the product of (A + 1) / 2 over layers, or the greatest flow to it through edges of these
    capacities; A is the mean of the heads. Of texts with up to ``longest`` places the first
    ``most`` are read: a flow takes long."""

    kind: Literal["attention-flow"] = "attention-flow"
    longest: int = Field(default=24, ge=6)
    most: int = Field(default=30, ge=2)
    number = "B13"
    group = "attribution"
    question = "Does attention, followed through the layers, tell what an answer comes from?"
    source = "Abnar and Zuidema 2020"
    sites = ("blocks.*.attention.weights",)

    def lacks(self, case: Case) -> str | None:
        if lacking := lacks_hidden_places(case.subject):
            return lacking
        if not self._chosen(case):
            return f"it needs texts of five to {self.longest} places"
        return super().lacks(case)

    def run(self, case: Case) -> Found:
        answers = [
            Answer.of(case.subject, case.texts[number], case.seed, number)
            for number in self._chosen(case)
        ]
        told = np.array([self._correlations(own) for own in answers])
        findings = [
            Finding.over_texts(f"correlation, {view}", of_ratio(own, seed=case.seed))
            for view, own in zip(VIEWS, told.T, strict=True)
        ]
        for view, own in zip(VIEWS[1:], told.T[1:], strict=True):
            lead = of_ratio(own - told[:, 0], seed=case.seed)
            findings.append(Finding.over_texts(f"lead of {view}", lead))
        return Found(findings, {"correlations": told})

    def conclusions(self, stored: Stored) -> list[Conclusion]:
        return [
            concluded(
                f"{view} tells more of what an answer comes from than the last layer",
                "rollout and flow agree better with what happens without a piece",
                stored.of_all(f"lead of {view}"),
                0.0,
                "alike",
            )
            for view in VIEWS[1:]
        ]

    def draw(self, stored: Stored, figure: Figure) -> None:
        axes = figure.subplots()
        axes.boxplot(stored.arrays["correlations"], showmeans=True)
        axes.set_xticks(range(1, 1 + len(VIEWS)), VIEWS)
        axes.axhline(0, color="grey")
        axes.set_ylabel("rank correlation with the change of the score")

    def _chosen(self, case: Case) -> list[int]:
        short = [
            number
            for number, text in enumerate(case.texts)
            if len(text) <= self.longest and (text.word >= 0).sum() > 3
        ]
        return short[: self.most]

    def _correlations(self, answer: Answer) -> list[float]:
        """Of each view with how far the score moves, over the other pieces."""
        attention, changes = attended(answer), changes_without(answer)
        rolled = rollout([torch.from_numpy(own)[None] for own in attention])[-1][0].numpy()
        others = np.flatnonzero(answer.text.word >= 0)
        others = others[others != answer.place]
        flows = greatest_flows(attention, answer.place)
        views = (attention[-1][answer.place], rolled[answer.place], flows)
        return [_correlation(view[others], changes[others]) for view in views]


def _correlation(view: Floats, changes: Floats) -> float:
    if not (np.ptp(view) and np.ptp(changes)):
        return 0.0  # What is the same everywhere tells nothing.
    found: Any = spearmanr(view, changes)
    return float(found.statistic)


@torch.no_grad()
def attended(answer: Answer) -> list[Floats]:
    """The weights of every layer, the mean of its heads, (T, T)."""
    subject = answer.subject
    with subject.encoder.record(*AttentionFlow.sites) as values:
        subject.text_model.model(answer.pieces, answer.coordinates)
    layers = (values[f"blocks.{n}.attention.weights"] for n in range(subject.num_layers))
    return [own[0].mean(0).double().cpu().numpy() for own in layers]


@torch.no_grad()
def changes_without(answer: Answer) -> Floats:
    """How far the score moves, either way, with each place hidden, (T,)."""
    hidden = answer.pieces.repeat(len(answer.text), 1)
    hidden.fill_diagonal_(answer.subject.tokenizer.specials.mask)
    rows: Tensor = torch.cat((answer.pieces, hidden))
    scores = answer.scores(answer.entered(rows)).double().cpu().numpy()
    return np.abs(scores[1:] - scores[0])


def greatest_flows(attention: Sequence[Floats], place: int) -> Floats:
    """From a place behind the last layer to each input, (T,): every layer has an edge from place i
    to place j with the capacity (A + 1)_ij / 2."""
    length, depth = len(attention[0]), len(attention)
    edges = np.zeros(((depth + 1) * length,) * 2, np.int32)
    for layer, own in enumerate(attention, start=1):
        behind, before = (slice(n * length, (n + 1) * length) for n in (layer, layer - 1))
        edges[behind, before] = np.round((own + np.eye(length)) / 2 * WHOLE)
    graph, source = csr_array(edges), depth * length + place
    flows = [maximum_flow(graph, source, sink).flow_value for sink in range(length)]
    return np.array(flows, np.float64) / WHOLE
