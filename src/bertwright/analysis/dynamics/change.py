"""What further training has changed in a model, and in which layers (Kovaleva et al. 2019,
section 4.3)."""

from typing import Any, Literal

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray

from bertwright.analysis.analysis import Analysis, Case
from bertwright.analysis.conclusions import Conclusion, concluded
from bertwright.analysis.findings import Finding, Found, Stored
from bertwright.analysis.geometry.contextuality import unit
from bertwright.analysis.listening import heard_batches
from bertwright.analysis.removal.layers import likeness
from bertwright.analysis.subject import Subject
from bertwright.analysis.texts import incomparable
from bertwright.analysis.word_states import SITES, word_states
from bertwright.significance import of_difference, of_ratio, of_ratios

WEIGHTS = ("blocks.*.attention.weights",)

LAST = 2
"""Layers that are held against the others."""

MORE = "change of attention, last two layers less others"
STATES = "cosine of states, layer 0 before the blocks"


FARTHER = "change of parameters, upper layers less lower"


class Change(Analysis):
    """This model against another of the same making, such as the one that it was fine-tuned from:
    the cosine of what every head looks at, text by text; that of the states of words, and their
    likeness (CKA); how far the parameters of a layer have gone, over their length."""

    kind: Literal["change"] = "change"
    number = "B39"
    of_two = True
    group = "dynamics"
    question = "What has training changed, and in which layers?"
    source = "Kovaleva et al. 2019"
    sites = SITES

    def lacks(self, case: Case) -> str | None:
        if case.other is None:
            return "it needs a second model: give one with --against"
        why = super().lacks(case) or incomparable(case.subject, case.other, case.texts)
        if why is None and _shapes(case.subject) != _shapes(case.other):
            return f"blocks of {case.other.name} are of other sizes: compare models of one size"
        return why

    def run(self, case: Case) -> Found:
        other, seed = case.other, case.seed
        assert other is not None
        findings: list[Finding] = []
        arrays: dict[str, NDArray[Any]] = {"parameters": gone(case.subject, other)}
        for layer, value in enumerate(arrays["parameters"]):
            findings.append(Finding("change of parameters, over their length", float(value), layer))
        kinds = gone_by_kind(case.subject, other)
        if kinds is not None:
            half = len(kinds) // 2
            farther = of_ratio(kinds[half:].mean(0) - kinds[:half].mean(0), seed=seed)
            findings.append(Finding.over_texts(FARTHER, farther))
        states = [word_states(case), word_states(Case(other, case.texts, cache=case.cache))]
        text = states[0].text
        arrays["likeness"] = np.zeros(states[0].num_layers)
        for layer, (own, others) in enumerate(zip(*(of.states for of in states), strict=True)):
            cosines = (unit(own) * unit(others)).sum(1)
            sums, counts = np.bincount(text, cosines), np.bincount(text)
            inside = counts > 0
            interval = of_ratio(sums[inside], counts[inside], seed=seed)
            findings.append(
                Finding.over_texts(
                    "cosine of states, layer 0 before blocks", interval, layer, of_states=True
                )
            )
            arrays["likeness"][layer] = likeness(own, others)
            findings.append(
                Finding(
                    "likeness of states", float(arrays["likeness"][layer]), layer, of_states=True
                )
            )
        if case.subject.lacks(*WEIGHTS) is None:
            cosines = attention_cosines(case, other)
            number, layers, heads = cosines.shape
            intervals = of_ratios(cosines.reshape(number, -1), seed=seed)
            for at, interval in zip(np.ndindex(layers, heads), intervals, strict=True):
                findings.append(Finding.over_texts("cosine of attention", interval, *at))
            arrays["attention"] = cosines.mean(0)
            if layers > LAST:
                ones = np.ones(number)
                last, before = (
                    ((1 - cosines[:, of]).mean((1, 2)), ones)
                    for of in (slice(-LAST, None), slice(-LAST))
                )
                most = of_difference(last, before, seed=seed)
                findings.append(Finding.over_texts(MORE, most))
        return Found(findings, arrays)

    def conclusions(self, stored: Stored) -> list[Conclusion]:
        found = [
            concluded(
                "parameters of upper layers have gone farther than those of lower ones",
                "in BERT, fine-tuned",
                stored.of_all(FARTHER),
                0.0,
                "as far, over kinds of parameters",
            )
            for each in stored.findings
            if each["metric"] == FARTHER
        ]
        if "attention" in stored.arrays and len(stored.arrays["attention"]) > LAST:
            found.append(
                concluded(
                    "attention has changed most in the last two layers",
                    "in BERT-base, for six of seven tasks",
                    stored.of_all(MORE),
                    0.0,
                    "alike",
                )
            )
        return found

    def draw(self, stored: Stored, figure: Figure) -> None:
        by_layer, by_head = figure.subplots(1, 2)
        by_layer.plot(stored.arrays["likeness"], marker="o", label="likeness of states")
        gone = stored.arrays["parameters"]
        by_layer.plot(np.arange(1, 1 + len(gone)), gone, marker="o", label="change of parameters")
        by_layer.set_xlabel("layer, 0 before the blocks")
        by_layer.legend()
        if "attention" in stored.arrays:
            picture = by_head.imshow(stored.arrays["attention"], vmax=1)
            figure.colorbar(picture, ax=by_head, label="cosine of attention")
            by_head.set_xlabel("head")
            by_head.set_ylabel("layer")


def gone(subject: Subject, other: Subject) -> NDArray[np.float64]:
    """How far the parameters of every layer are from those of the other model, over the length of
    the latter."""
    found = np.zeros(subject.num_layers)
    for layer in range(subject.num_layers):
        pairs = zip(
            subject.encoder.blocks[layer].parameters(),
            other.encoder.blocks[layer].parameters(),
            strict=True,
        )
        squares = [
            (float((a - b).double().square().sum()), float(b.double().square().sum()))
            for a, b in ((a.detach(), b.detach()) for a, b in pairs)
        ]
        far, length = np.sum(squares, axis=0)
        found[layer] = (far / max(length, 1e-300)) ** 0.5
    return found


def gone_by_kind(subject: Subject, other: Subject) -> NDArray[np.float64] | None:
    """The same of each kind of parameter by itself, (layers, kinds); None where layers share their
    parameters, or are not of the same kinds."""
    blocks = [dict(block.named_parameters()) for block in subject.encoder.blocks]
    owners = {id(parameter) for block in blocks for parameter in block.values()}
    alike = all(block.keys() == blocks[0].keys() for block in blocks)
    if len(blocks) < 2 or not alike or len(owners) < sum(map(len, blocks)):
        return None
    found = np.zeros((len(blocks), len(blocks[0])))
    for layer, (block, others) in enumerate(zip(blocks, other.encoder.blocks, strict=True)):
        known = dict(others.named_parameters())
        for kind, name in enumerate(block):
            far = (block[name].detach() - known[name].detach()).double().norm()
            found[layer, kind] = float(far / known[name].detach().double().norm().clamp(min=1e-30))
    return found


def _shapes(subject: Subject) -> list[torch.Size]:
    return [parameter.shape for parameter in subject.encoder.blocks.parameters()]


def attention_cosines(case: Case, other: Subject) -> NDArray[np.float64]:
    """Of what every head of both models looks at in a text, without padding: (N, layers, H)."""
    subject = case.subject
    found = np.zeros((len(case.texts), subject.num_layers, subject.num_heads))
    for own, others in zip(
        heard_batches(subject, case.texts, WEIGHTS),
        heard_batches(other, case.texts, WEIGHTS),
        strict=True,
    ):
        for layer in range(subject.num_layers):
            cosine = torch.cosine_similarity(
                own.attention(layer).double().flatten(2),
                others.attention(layer).double().flatten(2),
                dim=-1,
            )
            found[own.numbers, layer] = cosine.cpu().numpy()
    return found
