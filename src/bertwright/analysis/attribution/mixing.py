"""How far the states of a place still come from its own piece (Brunner et al. 2020, section 5)."""

from typing import Literal

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from bertwright.analysis.analysis import Analysis, Case
from bertwright.analysis.attribution.entering import ENTRY, entered, entering
from bertwright.analysis.conclusions import Conclusion, concluded
from bertwright.analysis.findings import Finding, Found, Stored
from bertwright.analysis.rows import row_of
from bertwright.analysis.subject import Subject
from bertwright.analysis.texts import ReadText
from bertwright.randomness import key
from bertwright.significance import of_difference, of_ratios

FALL = "own share, last layer less first"

NEAR = 10
"""Distances that are told apart."""


class TokenMixing(Analysis):
    """The share of each input in a state, by the length of its gradient: estimated by ``probes``
    random directions of the state, whose mean square is that of the whole Jacobian. Texts of more
    than ``longest`` places are left out."""

    kind: Literal["token-mixing"] = "token-mixing"
    probes: int = Field(default=8, ge=1)
    longest: int = Field(default=32, ge=2)
    number = "B12"
    group = "identifiability"
    question = "How much of a state comes from its own place?"
    source = "Brunner et al. 2020"
    sites = (ENTRY, "blocks.*.residual")

    def lacks(self, case: Case) -> str | None:
        if not any(len(text) <= self.longest for text in case.texts):
            return f"no text is as short as {self.longest} places"
        return super().lacks(case)

    def run(self, case: Case) -> Found:
        texts = [text for text in case.texts if len(text) <= self.longest]
        own = np.zeros((len(texts), case.subject.num_layers))
        by_distance = np.zeros((len(texts), case.subject.num_layers, NEAR + 1))
        for number, text in enumerate(texts):
            found = contributions(case.subject, text, self.probes, key(case.seed, "mixing", number))
            for layer, shares in enumerate(found):
                own[number, layer] = np.diag(shares).mean()
                by_distance[number, layer] = _by_distance(shares)
        findings = [
            Finding.over_texts("own share", interval, layer)
            for layer, interval in enumerate(of_ratios(own, seed=case.seed))
        ]
        ones = np.ones(len(texts))
        fall = of_difference((own[:, -1], ones), (own[:, 0], ones), seed=case.seed)
        findings.append(Finding.over_texts(FALL, fall))
        return Found(findings, {"own": own, "by distance": by_distance.mean(0)})

    def conclusions(self, stored: Stored) -> list[Conclusion]:
        return [
            concluded(
                "the own share falls from the first block to the last",
                "falls with depth in BERT-base, and stays the largest",
                stored.of_all(FALL),
                0.0,
                "as much",
                "below",
            )
        ]

    def draw(self, stored: Stored, figure: Figure) -> None:
        own, far = figure.subplots(1, 2)
        layers = range(1, 1 + stored.arrays["own"].shape[1])
        own.boxplot(stored.arrays["own"], tick_labels=list(layers))
        own.set_xlabel("layer")
        own.set_ylabel("own share")
        for layer in layers:
            far.plot(stored.arrays["by distance"][layer - 1], label=f"layer {layer}")
        far.set_yscale("log")
        far.set_xlabel(f"distance in places ({NEAR}: that or more)")
        far.set_ylabel("share")
        far.legend()


def contributions(
    subject: Subject, text: ReadText, probes: int, seed: int
) -> list[NDArray[np.float64]]:
    """Of every layer the shares (T, T) of each input in the state of each place."""
    pieces, coordinates = row_of(subject, text)
    vectors = entered(subject, pieces, coordinates).requires_grad_()
    names = [f"blocks.{layer}.residual" for layer in range(subject.num_layers)]
    with (
        torch.enable_grad(),
        entering(subject, vectors),
        subject.encoder.record(*names, gradients=True) as values,
    ):
        subject.encoder(pieces, coordinates)
    return [_shares(values[name], vectors, probes, seed) for name in names]


def _shares(states: Tensor, vectors: Tensor, probes: int, seed: int) -> NDArray[np.float64]:
    _, length, width = states.shape
    generator = torch.Generator(states.device).manual_seed(seed % 2**63)
    squares = states.new_zeros(length, length)
    for _ in range(probes):
        direction = torch.randn(width, generator=generator, device=states.device).to(states)
        asked = states.new_zeros(length, 1, length, width)
        asked[range(length), 0, range(length)] = direction
        (gradient,) = torch.autograd.grad(
            states, vectors, asked, retain_graph=True, is_grads_batched=True
        )
        squares += gradient[:, 0].square().sum(-1)
    lengths = squares.sqrt()
    return (lengths / lengths.sum(1, keepdim=True)).double().cpu().numpy()


def _by_distance(shares: NDArray[np.float64]) -> NDArray[np.float64]:
    """The mean share of an input at each distance."""
    place = np.arange(len(shares))
    distance = np.minimum(abs(place[:, None] - place), NEAR).ravel()
    sums = np.bincount(distance, shares.ravel(), NEAR + 1)
    return sums / np.maximum(np.bincount(distance, minlength=NEAR + 1), 1)
