"""Minimum description length of labels given hidden states (Voita and Titov 2020)."""

from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from bertwright.analysis.core.analysis import Analysis, AnalysisInput
from bertwright.analysis.core.claims import Claim
from bertwright.analysis.core.plots import LayerCurves
from bertwright.analysis.core.requirements import missing_halves, missing_trees
from bertwright.analysis.core.result import AnalysisResult, BaselineValue, Findings
from bertwright.analysis.core.word_states import WORD_STATE_TAPS, compute_word_states
from bertwright.analysis.probing.layer_probe import (
    missing_tag_variety,
    part_of_speech_tags,
    standardise,
)
from bertwright.analysis.probing.linear_probe import control_tags
from bertwright.core.rng import stream_key
from bertwright.core.significance import FloatArray, split_halves

PORTIONS = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.0625, 0.125, 0.25, 0.5, 1.0)
"""The probe is retrained after each of these fractions of the words (section 2.2)."""

CONTROL_MINUS_TAGS = "fraction of a uniform code, control minus tags"
EMBEDDINGS_MINUS_BEST = "fraction of a uniform code, embeddings minus best layer"

NUM_ORDERS = 3
"""Number of random orders of the sentences."""


class DescriptionLength(Analysis):
    """The compression of part-of-speech tags by an online code, for every layer.

    The first tags have a uniform code. All others have the code of a logistic regression trained on
    all earlier words, retrained after each of eleven portions. Compression is the length of the
    uniform code divided by the length of the online code; the control is a random tag for each
    word. The best layer is selected on half of the texts and compared on the other half.
    ``inverse_regularisation`` is C of the regression. Portions are of words; the published code
    has portions of sentences.
    """

    kind: Literal["description-length"] = "description-length"
    inverse_regularisation: float = Field(default=1.0, gt=0)
    survey_id = "B24"
    title = "In which layer are parts of speech described in the fewest bits?"
    source = "Voita and Titov 2020"
    taps = WORD_STATE_TAPS
    requires = (missing_trees, missing_tag_variety, missing_halves("choose by"))
    claims = (
        Claim(
            "tags in context take fewer bits than memorised control tags",
            "for ELMo, whatever the probe",
            CONTROL_MINUS_TAGS,
            0.0,
            "no difference, in layer {layer}",
            layer="any",
        ),
        Claim(
            "after some block, tags take fewer bits than in the embeddings",
            "for ELMo: fewest after the first of two layers",
            EMBEDDINGS_MINUS_BEST,
            0.0,
            "no difference, in layer {layer}",
            layer="any",
        ),
    )
    plots = (
        LayerCurves(
            "compression; dots: orders",
            lambda r: dict(
                zip(
                    ("part of speech", "control"),
                    r.arrays["compression"].swapaxes(0, 1),
                    strict=True,
                )
            ),
        ),
    )

    def run(self, inputs: AnalysisInput) -> AnalysisResult:
        word_states = compute_word_states(inputs)
        tags = part_of_speech_tags(inputs)
        # A separate control for each order, since some are easier to memorise than others.
        controls = [
            control_tags(word_states.words, tags, inputs.seed, order) for order in range(NUM_ORDERS)
        ]
        all_words = np.ones(len(tags), np.bool_)
        orders = [
            _sentence_order(word_states.text_ids, inputs.seed, number)
            for number in range(NUM_ORDERS)
        ]
        compression = np.zeros((word_states.num_layers, 2, NUM_ORDERS))
        # Bits per text as fractions of the uniform code, averaged over orders.
        fractions = np.zeros((word_states.num_layers, 2, len(inputs.texts)))
        for layer in range(word_states.num_layers):
            states = standardise(word_states.states[layer], all_words)
            for which, targets in enumerate(([tags] * NUM_ORDERS, controls)):
                for number, (order, target) in enumerate(zip(orders, targets, strict=True)):
                    bits = online_code_lengths(
                        states[order], target[order], self.inverse_regularisation
                    )
                    uniform = np.log2(len(np.unique(target)))
                    # If all control tags are the same, there are no bits to save.
                    fraction = bits / uniform if uniform else np.ones_like(bits)
                    compression[layer, which, number] = len(fraction) / fraction.sum()
                    text_ids = word_states.text_ids[order]
                    np.add.at(fractions[layer, which], text_ids, fraction / NUM_ORDERS)
        findings = Findings(inputs.seed, includes_embeddings=True)
        for layer, (of_tags, of_control) in enumerate(compression):
            findings.add_value(
                "compression",
                of_tags.mean(),
                layer=layer,
                baseline=BaselineValue("control tags", float(of_control.mean())),
                note=f"standard deviation over {NUM_ORDERS} orders {of_tags.std(ddof=1):.2g}",
            )
        num_words = np.bincount(word_states.text_ids, minlength=len(inputs.texts)).astype(float)
        train, test = split_halves(len(inputs.texts), inputs.seed)
        best = int(fractions[1:, 0][:, train].sum(1).argmin()) + 1
        best_sums = (fractions[best, 0, test], num_words[test])
        for metric, other in (
            (CONTROL_MINUS_TAGS, fractions[best, 1]),
            (EMBEDDINGS_MINUS_BEST, fractions[0, 0]),
        ):
            findings.add_difference(metric, (other[test], num_words[test]), best_sums, layer=best)
        return AnalysisResult(findings, {"compression": compression})


def online_code_lengths(
    features: NDArray[Any], labels: NDArray[Any], inverse_regularisation: float
) -> FloatArray:
    """Return the bits (N,) of an online code for ``labels`` (N,) given ``features`` (N, D)."""
    from sklearn.linear_model import LogisticRegression

    names, label_ids = np.unique(labels, return_inverse=True)
    ends = sorted({max(1, round(portion * len(label_ids))) for portion in PORTIONS})
    bits = np.full(len(label_ids), np.log2(len(names)))
    for start, end in pairwise(ends):
        # An unseen label needs a finite code length: count every label once more.
        probabilities = np.full((end - start, len(names)), 1 / (start + len(names)))
        seen = np.unique(label_ids[:start])
        if len(seen) > 1:
            probe: Any = LogisticRegression(C=inverse_regularisation, max_iter=200)
            probe.fit(features[:start], label_ids[:start])
            predicted = probe.predict_proba(features[start:end])
        else:
            predicted = np.ones((end - start, 1))
        probabilities[:, seen] += predicted * start / (start + len(names))
        bits[start:end] = -np.log2(probabilities[np.arange(end - start), label_ids[start:end]])
    return bits


def _sentence_order(text_ids: NDArray[np.int64], seed: int, order_index: int) -> NDArray[np.int64]:
    """Return word indices sentence by sentence, with the sentences in random order."""
    drawn = np.random.default_rng(stream_key(seed, f"order {order_index}")).permutation(
        int(text_ids.max()) + 1
    )
    return np.argsort(drawn[text_ids], kind="stable")
