"""Whether heads could look along fixed patterns (Raganato, Scherrer and Tiedemann 2020)."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor

from bertwright.analysis.analysis import Analysis, Case
from bertwright.analysis.asking import Asked, Questions
from bertwright.analysis.conclusions import Conclusion, concluded
from bertwright.analysis.findings import Baseline, Finding, Found, Stored
from bertwright.analysis.listening import Heard, listen
from bertwright.analysis.questions import lacks_questions, lacks_rows_of_text, questions
from bertwright.analysis.removal.gates import gated, open_gates
from bertwright.analysis.texts import lacks_halves
from bertwright.significance import halves, of_difference

PATTERNS = ("itself", "previous", "next", "left", "right", "first", "last")
"""The place itself, the one before and behind it, all before it, the more the nearer, all behind
it, the first place of the text, the last."""

WEIGHTS = "attention.weights"

ONE_LEARNED = "all layers, all heads fixed but one"


class FixedHeads(Analysis):
    """Each head has the fixed pattern that its attention overlaps with most, on half of the texts.
    On the other half: the loss in answers with all heads of a layer looking along theirs, and with
    the layer reading nothing; and with all heads of all layers fixed but one a layer, the one that
    is least like its pattern. Nothing learns anew."""

    kind: Literal["fixed-heads"] = "fixed-heads"
    number = "B9"
    group = "heads"
    question = "Could heads look along fixed patterns?"
    source = "Raganato, Scherrer and Tiedemann 2020"
    sites = (f"blocks.*.{WEIGHTS}",)

    def lacks(self, case: Case) -> str | None:
        lacking = lacks_halves(case.texts, "choose by") or super().lacks(case)
        return lacking or lacks_questions(case.subject) or lacks_rows_of_text(case.subject)

    def run(self, case: Case) -> Found:
        subject, (choosing, judging) = case.subject, halves(len(case.texts), case.seed)
        heard = Overlaps(subject.num_layers, subject.num_heads)
        listen(subject, [case.texts[n] for n in choosing], [heard])
        overlap = heard.sums / heard.total
        best = overlap.argmax(-1)
        asking = questions(replace(case, texts=[case.texts[n] for n in judging]))
        whole = asking.asked()
        findings = [_more("loss of all as they are", whole, whole, None, case.seed)]
        for layer in range(subject.num_layers):
            with fixed(asking, best, [(layer, head) for head in range(subject.num_heads)]):
                along = asking.asked()
            gates = open_gates(subject)
            gates[layer] = 0
            with gated(subject, gates):
                nothing = asking.asked()
            findings += [
                _more("fixed, less as it is", along, whole, layer, case.seed),
                _more("reading nothing, less fixed", nothing, along, layer, case.seed),
            ]
        learned = overlap.max(-1).argmin(-1)
        others = [at for at in np.ndindex(best.shape) if at[1] != learned[at[0]]]
        with fixed(asking, best, others):
            along = asking.asked()
        gates = torch.zeros_like(open_gates(subject))
        gates[torch.arange(len(learned)), torch.from_numpy(learned)] = 1
        with gated(subject, gates):
            nothing = asking.asked()
        findings += [
            _more(f"{ONE_LEARNED}, less as they are", along, whole, None, case.seed),
            _more(f"{ONE_LEARNED}: without them, less fixed", nothing, along, None, case.seed),
        ]
        return Found(findings, {"overlap": overlap, "pattern": best})

    def conclusions(self, stored: Stored) -> list[Conclusion]:
        return [
            concluded(
                "heads that look along fixed patterns are of more use than none",
                "translation is as good with seven fixed heads of eight, trained so",
                stored.of_all(f"{ONE_LEARNED}: without them, less fixed"),
                0.0,
                "alike",
            ),
            concluded(
                "with all heads but one a layer fixed hardly anything is lost",
                "translation is as good with seven fixed heads of eight, trained so",
                stored.of_all(f"{ONE_LEARNED}, less as they are"),
                0.1,
                "a tenth of a nat",
                "below",
            ),
        ]

    def draw(self, stored: Stored, figure: Figure) -> None:
        like, losses = figure.subplots(1, 2)
        picture = like.imshow(stored.arrays["overlap"].max(-1), vmin=0, vmax=1)
        for (layer, head), number in np.ndenumerate(stored.arrays["pattern"]):
            like.text(head, layer, PATTERNS[number][:2], ha="center", va="center", fontsize=6)
        figure.colorbar(picture, ax=like, label="overlap with its pattern")
        like.set_xlabel("head")
        like.set_ylabel("layer")
        own = [f for f in stored.findings if f["metric"] == "fixed, less as it is"]
        losses.plot([f["layer_from_1"] for f in own], [f["value"] for f in own], marker="o")
        losses.axhline(0, linestyle=":", color="grey")
        losses.set_xlabel("layer whose heads are fixed")
        losses.set_ylabel("nats more")


@dataclass
class Overlaps:
    """Of every head the overlap of its attention with every pattern, summed over rows: (layers, H,
    patterns)."""

    num_layers: int
    num_heads: int
    total: float = 0.0

    sites = FixedHeads.sites

    def __post_init__(self) -> None:
        self.sums = np.zeros((self.num_layers, self.num_heads, len(PATTERNS)))

    def hear(self, heard: Heard) -> None:
        """Add a batch."""
        for layer in range(self.num_layers):
            weights = heard.attention(layer)
            made = patterns(heard.even(layer) > 0, heard.real)
            for number, own in enumerate(made):
                shared = torch.minimum(weights, own.to(weights)).sum(-1) * heard.real[:, None]
                self.sums[layer, :, number] += shared.sum((0, 2)).double().cpu().numpy()
        self.total += float(heard.lengths.sum())

    def found(self) -> Found:
        """Nothing but the sums."""
        return Found([])


def patterns(seen: Tensor, real: Tensor) -> list[Tensor]:
    """The patterns (B, H or 1, L, L) among places that are ``seen``, as far as these go in ``real``
    rows (B, L): where a place sees nothing of a pattern, it looks at itself."""
    length = seen.shape[-1]
    place = torch.arange(length, device=seen.device)
    distance = place[None] - place[:, None]
    size = real.sum(1)[:, None, None]
    last = real.sum(1) - 1
    shapes = {
        "itself": (distance == 0).double()[None],
        "previous": (distance == -1).double()[None],
        "next": (distance == 1).double()[None],
        "left": ((place + 1).double() ** 3 * (distance < 0))[None],
        "right": ((size - place).clamp(min=0).double() ** 3 * (distance > 0)),
        "first": (place == 0).double().expand(1, length, length),
        "last": (place[None] == last[:, None]).double()[:, None].expand(-1, length, -1),
    }
    found: list[Tensor] = []
    for name in PATTERNS:
        own = shapes[name][:, None] * (seen & real[:, None, None])
        sums = own.sum(-1, keepdim=True)
        itself = (distance == 0).double()
        found.append(torch.where(sums > 0, own / sums.clamp(min=1e-12), itself))
    return found


def fixed(asking: Questions, best: NDArray[np.int64], heads: list[tuple[int, int]]) -> ExitStack:
    """These heads look along their patterns while the context is open."""
    subject, stack = asking.subject, ExitStack()
    for layer in {layer for layer, _ in heads}:
        own = [head for of, head in heads if of == layer]
        change = _along([int(best[layer, head]) for head in own], own)
        stack.enter_context(subject.encoder.replace(f"blocks.{layer}.{WEIGHTS}", change))
    return stack


def _along(numbers: list[int], heads: list[int]) -> Callable[[Tensor], Tensor]:
    def change(weights: Tensor) -> Tensor:
        seen = weights.amax(1, keepdim=True) > 0
        real = seen.any(2)[:, 0]
        made = patterns(seen, real)
        changed = weights.clone()
        for number, head in zip(numbers, heads, strict=True):
            changed[:, head] = made[number][:, 0].to(weights)
        return changed

    return change


def _more(metric: str, first: Asked, second: Asked, layer: int | None, seed: int) -> Finding:
    lead = of_difference((first.loss, first.total), (second.loss, second.total), seed=seed)
    baseline = Baseline("loss of the other", second.mean)
    return Finding.over_texts(metric, lead, layer, baseline=baseline)
