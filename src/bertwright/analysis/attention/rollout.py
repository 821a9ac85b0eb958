"""Attention through all layers: where a state comes from if each layer mixes what it attends to
with what it had (Abnar and Zuidema 2020)."""

from typing import Literal

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from bertwright.analysis.analysis import Case, Listening
from bertwright.analysis.conclusions import Conclusion, concluded
from bertwright.analysis.findings import Baseline, Finding, Found, Stored
from bertwright.analysis.listening import Heard
from bertwright.significance import of_difference, of_ratio

PLACES = ("itself", "opening", "separator")


class AttentionRollout(Listening):
    """The product of (A + 1) / 2 over layers, A the mean of the heads: how much of it goes to the
    place itself, to the one that opens a text and to separators, by layer."""

    kind: Literal["attention-rollout"] = "attention-rollout"
    number = "B13"
    group = "attention"
    question = "Which inputs does attention lead back to?"
    source = "Abnar and Zuidema 2020"
    sites = ("blocks.*.attention.weights",)

    def listener(self, case: Case) -> "RolloutHeard":
        return RolloutHeard(case)

    def conclusions(self, stored: Stored) -> list[Conclusion]:
        return [
            concluded(
                "from layer to layer less leads back to the place itself",
                "rollout spreads with depth",
                stored.of_all("itself, first layer less last"),
                0.0,
                "alike",
            )
        ]

    def draw(self, stored: Stored, figure: Figure) -> None:
        shares, first = figure.subplots(1, 2)
        layers = np.arange(1, 1 + len(stored.arrays["shares"]))
        for number, name in enumerate(PLACES):
            shares.plot(layers, stored.arrays["shares"][:, number], marker="o", label=name)
        shares.set_xlabel("layer")
        shares.set_ylabel("share of rollout")
        shares.legend()
        picture = first.imshow(stored.arrays["first"])
        figure.colorbar(picture, ax=first)
        first.set_xlabel("input place")
        first.set_ylabel("place of the first text, last layer")


class RolloutHeard:
    """Of every text the shares (N, layers, places), and the whole rollout of the first."""

    sites = AttentionRollout.sites

    def __init__(self, case: Case) -> None:
        self.shares = np.zeros((len(case.texts), case.subject.num_layers, len(PLACES)))
        self.first = np.zeros((1, 1))
        self.seed = case.seed

    def hear(self, heard: Heard) -> None:
        """Roll out the attention of a batch."""
        num_layers = self.shares.shape[1]
        steps = rollout([heard.attention(layer).mean(1) for layer in range(num_layers)])
        marks = torch.stack([heard.marked("opening"), heard.marked("separator")], -1)
        for layer, rolled in enumerate(steps):
            real = rolled * heard.real[..., None]
            itself = torch.diagonal(real, dim1=-2, dim2=-1).sum(-1, keepdim=True)
            marked = (real.sum(1)[:, None] @ marks.to(real))[:, 0]
            found = torch.cat((itself, marked), -1) / heard.lengths[:, None]
            self.shares[heard.numbers, layer] = found.double().cpu().numpy()
        if 0 in heard.numbers:
            row = heard.numbers.index(0)
            size = len(heard.texts[row])
            self.first = steps[-1][row, :size, :size].double().cpu().numpy()

    def found(self) -> Found:
        """Means over texts."""
        findings = [
            Finding.over_texts(
                name,
                of_ratio(self.shares[:, layer, number], seed=self.seed),
                layer,
                baseline=Baseline("first layer", float(self.shares[:, 0, number].mean())),
            )
            for layer in range(self.shares.shape[1])
            for number, name in enumerate(PLACES)
        ]
        ones = np.ones(len(self.shares))
        fall = of_difference(
            (self.shares[:, 0, 0], ones), (self.shares[:, -1, 0], ones), seed=self.seed
        )
        findings.append(Finding.over_texts("itself, first layer less last", fall))
        return Found(findings, {"shares": self.shares.mean(0), "first": self.first})


def rollout(layers: list[Tensor]) -> list[Tensor]:
    """What leads back to each input behind every layer, of attention (B, L, L) averaged over heads;
    rows of padding, whose attention is 0, are left with half of themselves."""
    found: list[Tensor] = []
    for attention in layers:
        own = (attention + torch.eye(attention.shape[-1]).to(attention)) / 2
        found.append(own if not found else own @ found[-1])
    return found
