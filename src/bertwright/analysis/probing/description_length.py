"""How short a probe makes what is asked (Voita and Titov 2020): minimum description length."""

from itertools import pairwise
from typing import Any, Literal

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from pydantic import Field

from bertwright.analysis.analysis import Analysis, Case
from bertwright.analysis.conclusions import Conclusion, concluded
from bertwright.analysis.findings import Baseline, Finding, Found, Stored
from bertwright.analysis.probing.linear import control_tags, lacks_kinds, standardised, tags_of
from bertwright.analysis.texts import lacks_halves, lacks_trees
from bertwright.analysis.word_states import SITES, word_states
from bertwright.randomness import key
from bertwright.significance import halves, of_difference

PORTIONS = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.0625, 0.125, 0.25, 0.5, 1.0)
"""Of the words: what is known when the next are told (section 2.2)."""

OF_CONTROL = "share of an even code, of control less of tags"
BEFORE = "share of an even code, before the blocks less behind the best"

ORDERS = 3
"""In which sentences come."""


class DescriptionLength(Analysis):
    """Parts of speech are told word by word to one who sees the states of a layer: the first ones
    evenly, the others by a linear map that is learned from all that were told before, again at each
    of eleven portions. Compression is the length of an even code over that of this one; beside it
    stands that of a tag drawn for each word. The best layer is chosen on half of the texts, and its
    bits are held against others on the other half. ``regularisation`` is C of the logistic
    regression."""

    kind: Literal["description-length"] = "description-length"
    regularisation: float = Field(default=1.0, gt=0)
    number = "B24"
    group = "probing"
    question = "In which layer are parts of speech told shortest?"
    source = "Voita and Titov 2020"
    sites = SITES

    def lacks(self, case: Case) -> str | None:
        lacking = lacks_trees(case.texts) or lacks_kinds(case)
        return lacking or lacks_halves(case.texts, "choose by") or super().lacks(case)

    def run(self, case: Case) -> Found:
        own = word_states(case)
        tags = tags_of(case)
        # Each order has a control of its own: one may be easier to know by heart than another.
        controls = [control_tags(own.words, tags, case.seed, draw) for draw in range(ORDERS)]
        everything = np.ones(len(tags), np.bool_)
        orders = [_order(own.text, case.seed, number) for number in range(ORDERS)]
        compression = np.zeros((own.num_layers, 2, ORDERS))
        # Of every text, over the orders: bits, each as a share of those of an even code.
        shares = np.zeros((own.num_layers, 2, len(case.texts)))
        for layer in range(own.num_layers):
            states = standardised(own, layer, everything)
            for which, targets in enumerate(([tags] * ORDERS, controls)):
                for number, (order, target) in enumerate(zip(orders, targets, strict=True)):
                    bits = code_lengths(states[order], target[order], self.regularisation)
                    even = np.log2(len(np.unique(target)))
                    # Tags of the control can all be drawn alike: then there is nothing to tell.
                    share = bits / even if even else np.ones_like(bits)
                    compression[layer, which, number] = len(share) / share.sum()
                    np.add.at(shares[layer, which], own.text[order], share / ORDERS)
        findings: list[Finding] = []
        for layer, (of_tags, of_control) in enumerate(compression):
            note = f"deviation over {ORDERS} orders {of_tags.std(ddof=1):.2g}"
            baseline = Baseline("of control", float(of_control.mean()))
            mean = float(of_tags.mean())
            findings.append(
                Finding("compression", mean, layer, baseline=baseline, note=note, of_states=True)
            )
        words = np.bincount(own.text, minlength=len(case.texts)).astype(np.float64)
        choosing, judging = halves(len(case.texts), case.seed)
        best = int(shares[1:, 0][:, choosing].sum(1).argmin()) + 1
        told = (shares[best, 0, judging], words[judging])
        for metric, other in ((OF_CONTROL, shares[best, 1]), (BEFORE, shares[0, 0])):
            lead = of_difference((other[judging], words[judging]), told, seed=case.seed)
            findings.append(Finding.over_texts(metric, lead, best, of_states=True))
        return Found(findings, {"compression": compression})

    def conclusions(self, stored: Stored) -> list[Conclusion]:
        of_control, before = (
            next(own for own in stored.findings if own["metric"] == metric)
            for metric in (OF_CONTROL, BEFORE)
        )
        return [
            concluded(
                "what is known of words in context is told shorter than what is known by heart",
                "of ELMo, whatever the probe",
                of_control,
                0.0,
                f"as long, in layer {of_control['layer']}",
            ),
            concluded(
                "behind some block it is told shorter than before the blocks",
                "of ELMo: shortest behind the first of two",
                before,
                0.0,
                f"as long, in layer {before['layer']}",
            ),
        ]

    def draw(self, stored: Stored, figure: Figure) -> None:
        axes = figure.subplots()
        mean, spread = (f(stored.arrays["compression"], -1) for f in (np.mean, np.std))
        for number, name in enumerate(("part of speech", "control")):
            axes.errorbar(
                np.arange(len(mean)), mean[:, number], spread[:, number], marker="o", label=name
            )
        axes.set_xlabel("layer, 0 before the blocks")
        axes.set_ylabel("compression")
        axes.legend()


def code_lengths(
    states: NDArray[Any], target: NDArray[Any], regularisation: float
) -> NDArray[np.float64]:
    """Bits (N,) of the online code of ``target`` (N,) for one who sees ``states`` (N, D)."""
    from sklearn.linear_model import LogisticRegression

    names, labels = np.unique(target, return_inverse=True)
    ends = sorted({max(1, round(portion * len(labels))) for portion in PORTIONS})
    bits = np.full(len(labels), np.log2(len(names)))
    for known, end in pairwise(ends):
        # A label that was not seen yet must cost something: as if each had been seen once more.
        likely = np.full((end - known, len(names)), 1 / (known + len(names)))
        seen = np.unique(labels[:known])
        if len(seen) > 1:
            probe: Any = LogisticRegression(C=regularisation, max_iter=200)
            probe.fit(states[:known], labels[:known])
            said = probe.predict_proba(states[known:end])
        else:
            said = np.ones((end - known, 1))
        likely[:, seen] += said * known / (known + len(names))
        bits[known:end] = -np.log2(likely[np.arange(end - known), labels[known:end]])
    return bits


def _order(text: NDArray[np.int64], seed: int, number: int) -> NDArray[np.int64]:
    """Words, sentence by sentence, in an order that is drawn."""
    drawn = np.random.default_rng(key(seed, f"order {number}")).permutation(int(text.max()) + 1)
    return np.argsort(drawn[text], kind="stable")
