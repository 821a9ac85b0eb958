"""Where attention goes: to special places, to punctuation, to neighbours (Clark et al. 2019)."""

from typing import Literal, get_args

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor

from bertwright.analysis.analysis import Case, Listening
from bertwright.analysis.conclusions import Conclusion, concluded
from bertwright.analysis.findings import Baseline, Finding, Found, Stored
from bertwright.analysis.listening import Heard
from bertwright.significance import of_ratios

Target = Literal["opening", "separator", "punctuation", "self", "previous", "next"]

TARGETS: tuple[Target, ...] = get_args(Target)

OFFSETS: dict[Target, int] = {"self": 0, "previous": -1, "next": 1}

HALF = 0.5


class AttentionShares(Listening):
    """The share of attention that goes to each kind of place, in the mean over the places of a
    text, then over texts; held against a head that looks alike at all that it may see (section
    3.1)."""

    kind: Literal["attention-shares"] = "attention-shares"
    number = "B2"
    group = "attention"
    question = "How much attention goes to special places, punctuation and neighbours?"
    source = "Clark et al. 2019"
    sites = ("blocks.*.attention.weights",)

    def listener(self, case: Case) -> "SharesHeard":
        return SharesHeard(case)

    def conclusions(self, stored: Stored) -> list[Conclusion]:
        strong = {t: int((stored.grid(t) > HALF).sum()) for t in ("previous", "next")}
        return [
            concluded(
                "separators get more than an even head gives them, in the second half",
                "over half of the attention of layers 6 to 10 of BERT-base",
                stored.of_all("separator, second half"),
            ),
            concluded(
                "the first place gets more than an even head gives it, in the first half",
                "most of layers 1 and 2 of BERT-base",
                stored.of_all("opening, first half"),
            ),
            *(
                Conclusion(
                    f"some heads give over half of their attention to the {target} place",
                    f"{published} of 144 heads",
                    strong[target],
                    None,
                    0,
                    "none",
                    num_units=stored.num_texts,
                )
                for target, published in (("previous", 4), ("next", 5))
            ),
        ]

    def draw(self, stored: Stored, figure: Figure) -> None:
        panels = (TARGETS[:3], TARGETS[3:])
        for axes, targets in zip(figure.subplots(1, 2, sharey=True), panels, strict=True):
            for target in targets:
                shares = stored.grid(target)
                layers = np.arange(1, len(shares) + 1)
                points = axes.scatter(np.repeat(layers, shares.shape[1]), shares.ravel(), s=8)
                color = points.get_facecolor()[0]
                axes.plot(layers, shares.mean(1), color=color, label=f"to {target}")
            axes.set_xlabel("layer")
            axes.set_ylim(0, 1)
            axes.legend()
        figure.supylabel("share of attention")


class SharesHeard:
    """The shares of every text: (N, layers, heads, targets)."""

    sites = AttentionShares.sites

    def __init__(self, case: Case) -> None:
        subject = case.subject
        shape = (len(case.texts), subject.num_layers, subject.num_heads, len(TARGETS))
        self.shares, self.even = np.zeros(shape), np.zeros(shape)
        self.seed = case.seed

    def hear(self, heard: Heard) -> None:
        """Take the means of a batch."""
        chosen = [heard.marked("opening"), heard.marked("separator"), heard.marked("punctuation")]
        columns = torch.stack(chosen, -1).float()
        lengths = heard.lengths
        for layer in range(self.shares.shape[1]):
            self.shares[heard.numbers, layer] = shares(heard.attention(layer), columns, lengths)
            self.even[heard.numbers, layer] = shares(heard.even(layer), columns, lengths)

    def found(self) -> Found:
        """The means over texts, with what even attention would give."""
        number, layers, heads, targets = self.shares.shape
        intervals = of_ratios(self.shares.reshape(number, -1), seed=self.seed)
        even = self.even.mean(0)
        findings = [
            Finding.over_texts(
                TARGETS[at[2]], interval, at[0], at[1], Baseline("even", float(even[at]))
            )
            for at, interval in zip(np.ndindex(layers, heads, targets), intervals, strict=True)
        ]
        for name, half in halves_of(layers).items():
            own, other = (each[:, half].mean((1, 2)) for each in (self.shares, self.even))
            findings += [
                Finding.over_texts(
                    f"{target}, {name}",
                    interval,
                    baseline=Baseline("even", float(other[:, t].mean())),
                )
                for t, (target, interval) in enumerate(
                    zip(TARGETS, of_ratios(own, seed=self.seed), strict=True)
                )
            ]
        return Found(findings, {"shares": self.shares.mean(0), "even": even})


def halves_of(layers: int) -> dict[str, slice]:
    """The layers of the first and of the second half, by name; one in the middle is in both."""
    return {"first half": slice(0, -(-layers // 2)), "second half": slice(layers // 2, layers)}


def shares(weights: Tensor, columns: Tensor, lengths: Tensor) -> NDArray[np.float64]:
    """The shares (B, H, 6) of attention (B, H, L, L), padding 0, that go to the marked ``columns``
    (B, L, 3), to the place itself, to the one before and the one behind."""
    received, columns = weights.sum(2), columns.to(weights)
    marked = torch.einsum("bhl,blm->bhm", received, columns)
    near = [torch.diagonal(weights, OFFSETS[target], -2, -1).sum(-1) for target in TARGETS[3:]]
    found = torch.cat([marked, torch.stack(near, -1)], -1) / lengths[:, None, None]
    return found.double().cpu().numpy()
