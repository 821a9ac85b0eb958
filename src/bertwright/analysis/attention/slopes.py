"""Whether it matters how much attention separators get (Clark et al. 2019, section 3.2)."""

from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Literal

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor

from bertwright.analysis.analysis import Analysis, Case
from bertwright.analysis.asking import Questions
from bertwright.analysis.attention.shares import halves_of
from bertwright.analysis.conclusions import Conclusion, concluded
from bertwright.analysis.findings import Baseline, Finding, Found, Stored
from bertwright.analysis.questions import lacks_questions, lacks_rows_of_text, questions
from bertwright.analysis.texts import ReadText
from bertwright.model.reading import ReadBatch
from bertwright.significance import of_difference, of_ratios

Floats = NDArray[np.float64]

SITE = "attention.weights"

TARGETS = ("opening", "separator", "words")


class AttentionSlopes(Analysis):
    """By how much the loss in answers changes with the attention that places get: the mean size of
    its slope in the weights of a head, over all rows of a text that may look there, and over the
    columns of the first place, of separators, and of words."""

    kind: Literal["attention-slopes"] = "attention-slopes"
    number = "B3"
    group = "attention"
    question = "Does it matter how much attention separators get?"
    source = "Clark et al. 2019"
    sites = (f"blocks.*.{SITE}",)

    def lacks(self, case: Case) -> str | None:
        lacking = super().lacks(case) or lacks_questions(case.subject)
        return lacking or lacks_rows_of_text(case.subject)

    def run(self, case: Case) -> Found:
        found = slopes(questions(case))
        number, layers, heads, targets = found.shape
        intervals = of_ratios(found.reshape(number, -1), seed=case.seed)
        findings = [
            Finding.over_texts(TARGETS[at[2]], interval, at[0], at[1])
            for at, interval in zip(np.ndindex(layers, heads, targets), intervals, strict=True)
        ]
        ones = np.ones(number)
        for name, half in halves_of(layers).items():
            first, separator, words = (found[:, half, :, n].mean((1, 2)) for n in range(3))
            baseline = Baseline("words", float(words.mean()))
            for target, own in (("opening", first), ("separator", separator)):
                less = of_difference((words, ones), (own, ones), seed=case.seed)
                metric = f"words less {target}, {name}"
                findings.append(Finding.over_texts(metric, less, baseline=baseline))
        return Found(findings, {"slopes": found.mean(0)})

    def conclusions(self, stored: Stored) -> list[Conclusion]:
        return [
            concluded(
                "in the second half the loss depends less on attention to separators than to words",
                "from layer 5 of BERT-base on the slope in attention to separators is very small",
                stored.of_all("words less separator, second half"),
                0.0,
                "alike",
            )
        ]

    def draw(self, stored: Stored, figure: Figure) -> None:
        axes = figure.subplots()
        own = stored.arrays["slopes"]
        layers = np.arange(1, 1 + len(own))
        for number, target in enumerate(TARGETS):
            axes.plot(layers, own[..., number].mean(1), marker="o", label=f"to {target}")
        axes.set_xlabel("layer")
        axes.set_ylabel("size of the slope of the loss in attention, nats")
        axes.legend()


def slopes(asking: Questions) -> Floats:
    """Of every text the mean sizes of the slopes, (N, layers, H, targets)."""
    subject = asking.subject
    shape = (len(asking.texts), subject.num_layers, subject.num_heads, len(TARGETS))
    found = np.zeros(shape)
    added: dict[int, Tensor] = {}
    seen: dict[int, Tensor] = {}

    def moved(layer: int, weights: Tensor) -> Tensor:
        # A place that may not be looked at has no weight, but would have a slope.
        seen[layer] = (weights > 0).to(weights)
        added[layer] = torch.zeros_like(weights).requires_grad_()
        return weights + added[layer]

    @contextmanager
    def within(_: ReadBatch) -> Generator[None]:
        with ExitStack() as stack:
            for layer in range(subject.num_layers):
                name = f"blocks.{layer}.{SITE}"
                stack.enter_context(subject.encoder.replace(name, partial(moved, layer)))
            yield

    with torch.enable_grad():
        for numbers, loss, _, _ in asking.batches(within):
            leaves = [added[layer] for layer in range(subject.num_layers)]
            sizes = [
                slope.abs() * seen[layer]
                for layer, slope in enumerate(torch.autograd.grad(loss.sum(), leaves))
            ]
            for row, number in enumerate(numbers):
                columns = _columns(asking.texts[number]).to(leaves[0])
                of = slice(len(columns))
                for layer, own in enumerate(sizes):
                    summed, count = (
                        each[row, :, of, of].sum(1) @ columns for each in (own, seen[layer])
                    )
                    found[number, layer] = (summed / count.clamp(min=1)).double().cpu().numpy()
    return found


def _columns(text: ReadText) -> Tensor:
    """Which places are of each kind, (T, targets)."""
    marks = text.marks["opening"], text.marks["separator"], text.word >= 0
    return torch.from_numpy(np.stack(marks, 1).astype(np.float64))
