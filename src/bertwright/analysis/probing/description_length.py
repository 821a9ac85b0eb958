"""How short a probe makes what is asked (Voita and Titov 2020): minimum description length."""

from itertools import pairwise
from typing import Any, Literal

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from pydantic import Field

from bertwright.analysis.analysis import Analysis, Case
from bertwright.analysis.conclusions import Conclusion
from bertwright.analysis.findings import Baseline, Finding, Found, Stored
from bertwright.analysis.probing.linear import control_tags, lacks_kinds, standardised, tags_of
from bertwright.analysis.texts import lacks_trees
from bertwright.analysis.word_states import SITES, word_states
from bertwright.randomness import key

PORTIONS = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.0625, 0.125, 0.25, 0.5, 1.0)
"""Of the words: what is known when the next are told (section 2.2)."""

ORDERS = 3
"""In which sentences come."""


class DescriptionLength(Analysis):
    """Parts of speech are told word by word to one who sees the states of a layer: the first ones
    evenly, the others by a linear map that is learned from all that were told before, again at each
    of eleven portions. Compression is the length of an even code over that of this one; beside it
    stands that of a tag drawn for each word. ``regularisation`` is C of the logistic regression."""

    kind: Literal["description-length"] = "description-length"
    regularisation: float = Field(default=1.0, gt=0)
    number = "B24"
    group = "probing"
    question = "In which layer are parts of speech told shortest?"
    source = "Voita and Titov 2020"
    sites = SITES

    def lacks(self, case: Case) -> str | None:
        return lacks_trees(case.texts) or lacks_kinds(case) or super().lacks(case)

    def run(self, case: Case) -> Found:
        own = word_states(case)
        tags = tags_of(case)
        control = control_tags(own.words, tags, case.seed)
        everything = np.ones(len(tags), np.bool_)
        orders = [_order(own.text, case.seed, number) for number in range(ORDERS)]
        compression = np.zeros((own.num_layers, 2, ORDERS))
        for layer in range(own.num_layers):
            states = standardised(own, layer, everything)
            for which, target in enumerate((tags, control)):
                for number, order in enumerate(orders):
                    length = code_length(states[order], target[order], self.regularisation)
                    even = len(target) * np.log2(len(np.unique(target)))
                    # Tags of the control can all be drawn alike: then there is nothing to tell.
                    compression[layer, which, number] = even / length if length else 1.0
        findings: list[Finding] = []
        for layer, (of_tags, of_control) in enumerate(compression):
            note = f"deviation over {ORDERS} orders {of_tags.std(ddof=1):.2g}"
            baseline = Baseline("of control", float(of_control.mean()))
            mean = float(of_tags.mean())
            findings.append(Finding("compression", mean, layer, baseline=baseline, note=note))
        return Found(findings, {"compression": compression})

    def conclusions(self, stored: Stored) -> list[Conclusion]:
        of_tags, of_control = stored.arrays["compression"].mean(-1).T
        best = int(of_tags[1:].argmax()) + 1
        return [
            Conclusion(
                "what is known of words in context is told shorter than what is known by heart",
                "of ELMo, whatever the probe",
                float(of_tags[best]),
                None,
                float(of_control[best]),
                f"of control, in layer {best}",
                num_units=stored.num_texts,
            ),
            Conclusion(
                "behind some block it is told shorter than before the blocks",
                "of ELMo: shortest behind the first of two",
                float(of_tags[best]),
                None,
                float(of_tags[0]),
                "before the blocks",
                num_units=stored.num_texts,
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


def code_length(states: NDArray[Any], target: NDArray[Any], regularisation: float) -> float:
    """Bits of the online code of ``target`` (N,) for one who sees ``states`` (N, D)."""
    from sklearn.linear_model import LogisticRegression

    names, labels = np.unique(target, return_inverse=True)
    ends = sorted({max(1, round(portion * len(labels))) for portion in PORTIONS})
    bits = ends[0] * np.log2(len(names))
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
        bits -= np.log2(likely[np.arange(end - known), labels[known:end]]).sum()
    return float(bits)


def _order(text: NDArray[np.int64], seed: int, number: int) -> NDArray[np.int64]:
    """Words, sentence by sentence, in an order that is drawn."""
    drawn = np.random.default_rng(key(seed, f"order {number}")).permutation(int(text.max()) + 1)
    return np.argsort(drawn[text], kind="stable")
