"""Effective attention: what of the weights reaches the output (Brunner et al. 2020).

A head writes A T, where T (S, D) is what the value of each place becomes behind the head's part of
the output. T has at most the rank of a value, so that for longer texts A may move within the left
null space of T and nothing changes. Effective attention is A without its part in there.
"""

from typing import Literal

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from bertwright.analysis.analysis import Case, Listening
from bertwright.analysis.attention.shares import TARGETS, shares
from bertwright.analysis.conclusions import Conclusion, concluded
from bertwright.analysis.findings import Baseline, Finding, Found, Stored
from bertwright.analysis.listening import Heard
from bertwright.analysis.subject import Subject
from bertwright.encoder.mixers import AttentionChoice
from bertwright.significance import of_means, of_ratio, of_ratios

BINS = (16, 32, 48, 64, 96, 128, 256, 512)
"""Texts are put together by length: up to so many places."""

FALL = "correlation, short texts less long ones"


class EffectiveAttention(Listening):
    """How alike raw and effective attention are, by the length of the text, and where the latter
    goes. ``constrained`` keeps the sums of rows as well: moves must leave attention a distribution
    (section 3.2)."""

    kind: Literal["effective-attention"] = "effective-attention"
    constrained: bool = False
    number = "B10"
    group = "identifiability"
    question = "How much of attention could be otherwise, and nothing would change?"
    source = "Brunner et al. 2020"
    sites = ("blocks.*.attention.weights", "blocks.*.attention.value")

    def listener(self, case: Case) -> "EffectiveHeard":
        return EffectiveHeard(case, self.constrained)

    def conclusions(self, stored: Stored) -> list[Conclusion]:
        if not any(each["metric"] == FALL for each in stored.findings):
            return []
        return [
            concluded(
                "raw and effective attention are less alike in longer texts",
                "falls with length beyond the 64 numbers of a head of BERT-base",
                stored.of_all(FALL),
                0.0,
                "alike",
            )
        ]

    def draw(self, stored: Stored, figure: Figure) -> None:
        by_length, by_target = figure.subplots(1, 2)
        by_length.scatter(stored.arrays["lengths"], stored.arrays["correlations"].mean((1, 2)), s=8)
        by_length.set_xlabel("places of the text")
        by_length.set_ylabel("correlation of raw and effective attention")
        layers = np.arange(1, 1 + stored.arrays["raw"].shape[0])
        for number, target in enumerate(TARGETS[:3]):
            for name, style in (("raw", "-"), ("effective", ":")):
                means = stored.arrays[name][..., number].mean(1)
                by_target.plot(layers, means, style, color=f"C{number}", label=f"{name}, {target}")
        by_target.set_xlabel("layer")
        by_target.set_ylabel("share of attention")
        by_target.legend()


class EffectiveHeard:
    """Of every text: correlations (N, layers, heads), shares of both kinds of attention, and the
    dimension of the null space."""

    sites = EffectiveAttention.sites

    def __init__(self, case: Case, constrained: bool) -> None:
        self.subject, self.seed, self.constrained = case.subject, case.seed, constrained
        shape = (len(case.texts), case.subject.num_layers, case.subject.num_heads)
        self.correlations, self.free = np.zeros(shape), np.zeros(shape)
        self.raw, self.effective = (np.zeros((*shape, len(TARGETS))) for _ in range(2))
        self.lengths = np.zeros(len(case.texts))
        self.width = head_outputs(case.subject, 0).shape[-1]

    def hear(self, heard: Heard) -> None:
        """Take apart the attention of a batch, text by text."""
        marks = [heard.marked(mark) for mark in ("opening", "separator", "punctuation")]
        columns = torch.stack(marks, -1).double()
        for layer in range(self.correlations.shape[1]):
            parts = head_outputs(self.subject, layer)
            weights, values = heard.attention(layer), heard.of(layer, "attention.value")
            even = heard.even(layer)
            for row, number in enumerate(heard.numbers):
                size = len(heard.texts[row])
                self.lengths[number] = size
                raw = weights[row, :, :size, :size].double()
                seen = even[row, :, :size, :size] > 0
                written = values[row, :, :size].double() @ parts
                found, rank = effective(raw, written, seen, self.constrained)
                self.free[number, layer] = (size - rank).cpu()
                self.correlations[number, layer] = correlation(raw, found, seen).cpu()
                of_text = columns[row : row + 1, :size], raw.new_tensor([float(size)])
                self.raw[number, layer] = shares(raw[None], *of_text)[0]
                self.effective[number, layer] = shares(found[None], *of_text)[0]

    def found(self) -> Found:
        """Correlations by length, shares by layer and head."""
        findings: list[Finding] = []
        below = 0
        for most in BINS:
            inside = (self.lengths > below) & (self.lengths <= most)
            if inside.any():
                mean = self.correlations[inside].mean((1, 2))
                name = f"correlation, texts of {below + 1} to {most} places"
                interval = of_ratio(mean, seed=self.seed)
                findings.append(Finding.over_texts(name, interval))
            below = most
        means = self.correlations.mean((1, 2))
        short, long = means[self.lengths <= self.width], means[self.lengths > 2 * self.width]
        if len(short) and len(long):
            fall = of_means(short, long, seed=self.seed)
            findings.append(Finding.over_texts(FALL, fall))
        number, layers, heads, targets = self.raw.shape
        raw = self.raw.mean(0)
        intervals = of_ratios(self.effective.reshape(number, -1), seed=self.seed)
        findings += [
            Finding.over_texts(
                f"effective, {TARGETS[at[2]]}",
                interval,
                at[0],
                at[1],
                Baseline("raw", float(raw[at])),
            )
            for at, interval in zip(np.ndindex(layers, heads, targets), intervals, strict=True)
        ]
        arrays = {
            "lengths": self.lengths,
            "correlations": self.correlations,
            "null space": self.free,
            "raw": raw,
            "effective": self.effective.mean(0),
        }
        return Found(findings, arrays)


def lacks_head_outputs(subject: Subject) -> str | None:
    """Why what its heads write is not the sum over places of what each brings, in words."""
    encoder = subject.text_model.model.recipe.encoder
    gated = isinstance(encoder.mixer, AttentionChoice) and encoder.mixer.gate is not None
    if gated or encoder.norm.placement == "sub":
        return "what its heads read goes through a gate or a norm before it is written"
    return None


@torch.no_grad()
def head_outputs(subject: Subject, layer: int) -> Tensor:
    """Of every head a square matrix (H, d, d) with the same left singular vectors behind values as
    its part of the output (d, D): the lower factor of that part."""
    output = subject.encoder.blocks[layer].get_submodule("sublayers.attention.output")
    weight = output.get_parameter("weight").double()
    by_head = weight.T.unflatten(0, (subject.num_heads, -1))
    return torch.linalg.qr(by_head.transpose(-1, -2)).R.transpose(-1, -2)


def effective(
    weights: Tensor, written: Tensor, seen: Tensor, constrained: bool = False
) -> tuple[Tensor, Tensor]:
    """Attention (H, S, S) without its part in the left null space of what is ``written`` (H, S, d),
    and the rank of the latter (H,), as a place sees it that sees most.

    ``seen`` (1 or H, S, S) bool: a place keeps to what it may see. With ``constrained`` rows keep
    their sums.
    """
    if constrained:
        written = torch.cat((written, torch.ones_like(written[..., :1])), -1)
    found, ranks = torch.zeros_like(weights), weights.new_zeros(len(weights), dtype=torch.int64)
    for head in range(len(weights)):
        rows = seen[min(head, len(seen) - 1)]
        for support in torch.unique(rows, dim=0):
            of = (rows == support).all(-1)
            basis = _column_space(written[head][support])
            own = weights[head][of][:, support]
            found[head, of.nonzero(), support.nonzero().T] = own @ basis @ basis.T
            ranks[head] = max(int(ranks[head]), basis.shape[1])
    return found, ranks


def correlation(first: Tensor, second: Tensor, seen: Tensor) -> Tensor:
    """Pearson's, of the weights (H, S, S) that may be seen: (H,)."""
    inside = seen.expand_as(first)
    found = [
        torch.corrcoef(torch.stack((a[of], b[of])))[0, 1]
        for a, b, of in zip(first, second, inside, strict=True)
    ]
    return torch.stack(found)


def _column_space(matrix: Tensor) -> Tensor:
    """An orthonormal basis (S, r) of the columns of (S, d)."""
    left, sizes, _ = torch.linalg.svd(matrix, full_matrices=False)
    least = sizes.max() * max(matrix.shape) * torch.finfo(matrix.dtype).eps
    return left[:, sizes > least]
