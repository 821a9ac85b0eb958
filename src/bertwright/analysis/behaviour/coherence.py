"""Inter-sentence coherence, and the confidence of masked-token predictions.

Lan et al. (2020, table 5).
"""

import re
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field

from bertwright.analysis.core.activations import activation_batches
from bertwright.analysis.core.analysis import Analysis, AnalysisInput
from bertwright.analysis.core.claims import Claim
from bertwright.analysis.core.plots import FindingBars
from bertwright.analysis.core.prediction_probe import MaskedLMProbe
from bertwright.analysis.core.result import (
    AnalysisResult,
    BaselineValue,
    Findings,
)
from bertwright.analysis.core.texts import encode_texts
from bertwright.core.significance import FloatArray, split_halves
from bertwright.tasks.formats.examples import Example

CONTINUATION, SENTENCE_ORDER = "continuation or another text", "sentence order"

CONTINUATION_MINUS_ORDER = "continuation minus sentence order"

MIN_WORDS = 4
"""Minimum number of words in a half."""


class InterSentenceCoherence(Analysis):
    """How well a linear probe detects the continuation of a text and the order of its halves.

    Texts are split in the middle. The probe distinguishes the second half from another text's
    second half, and the original order from the reversed one. It reads the first hidden state of
    the pair and the mean of its hidden states in the last layer. It is trained on half of the texts
    and tested on the other half. The baseline is the same model with random weights, since words
    alone are informative. Also measured are the accuracy of masked-token predictions, and by how
    much confidence exceeds it.
    """

    kind: Literal["inter-sentence-coherence"] = "inter-sentence-coherence"
    inverse_regularisation: float = Field(default=0.1, gt=0)
    survey_id = "B46"
    title = "What does a model know about the order of texts without having been trained on it?"
    source = "Lan et al. 2020"
    claims = (
        Claim(
            "training makes hidden states tell whether one text continues another",
            "90.5 % if trained on it, 52 % to 79 % if not",
            f"{CONTINUATION}, minus untrained",
        ),
        Claim(
            "training makes hidden states tell which of two texts comes first",
            "86.5 % if trained on it, 52 % to 53 % if not",
            f"{SENTENCE_ORDER}, minus untrained",
        ),
        Claim(
            "continuation is recognised better than order",
            "90.5 % and 52.0 % for a model trained on continuation",
            CONTINUATION_MINUS_ORDER,
        ),
    )
    plots = (
        FindingBars(
            "fraction of pairs recognised",
            tuple(
                f"{name}{end}"
                for name in (CONTINUATION, SENTENCE_ORDER)
                for end in ("", ", untrained")
            ),
        ),
    )

    def not_applicable(self, inputs: AnalysisInput) -> str | None:
        if len(_split_texts(inputs)) < 8:
            return (
                f"it needs eight texts of {2 * MIN_WORDS} words: four to train on, four to test on"
            )
        return None

    def run(self, inputs: AnalysisInput) -> AnalysisResult:
        parts = _split_texts(inputs)
        train, test = split_halves(len(parts), inputs.seed)
        # Within each half, so that a training continuation is not a negative test example.
        others = np.arange(len(parts))
        for half in (train, test):
            others[half] = np.roll(half, 1)
        negatives = {
            CONTINUATION: [
                (first, parts[n][1]) for (first, _), n in zip(parts, others, strict=True)
            ],
            SENTENCE_ORDER: [(second, first) for first, second in parts],
        }
        trained, untrained = (
            {
                name: self._probe_accuracy(
                    pair_vectors(one, parts), pair_vectors(one, pairs), train, test
                )
                for name, pairs in negatives.items()
            }
            for one in (inputs, inputs.untrained())
        )
        chance = BaselineValue("chance", 0.5)
        findings = Findings(inputs.seed)
        for name, scores in trained.items():
            for metric, values in ((name, scores), (f"{name}, untrained", untrained[name])):
                findings.add_ratio(metric, values, baseline=chance)
            findings.add_difference(f"{name}, minus untrained", scores, untrained[name])
        findings.add_difference(
            CONTINUATION_MINUS_ORDER, trained[CONTINUATION], trained[SENTENCE_ORDER]
        )
        if inputs.model.text_model.has_lm_head:
            probe = MaskedLMProbe(inputs.model, inputs.texts, inputs.seed)
            scores = probe.evaluate()
            confidence = probe.confidence_sums(), scores.num_targets
            findings.add_ratio("masked tokens predicted correctly", *scores.accuracy_ratio)
            findings.add_difference("confidence minus accuracy", confidence, scores.accuracy_ratio)
        return AnalysisResult(findings, trained)

    def _probe_accuracy(
        self,
        positives: FloatArray,
        negatives: FloatArray,
        train_indices: NDArray[np.int64],
        test_indices: NDArray[np.int64],
    ) -> FloatArray:
        """Return for each test text which fraction of its pairs the probe classifies right."""
        from sklearn.linear_model import LogisticRegression

        vectors = np.concatenate((positives[train_indices], negatives[train_indices]))
        mean, deviation = vectors.mean(0), np.maximum(vectors.std(0), 1e-8)
        probe: Any = LogisticRegression(C=self.inverse_regularisation, max_iter=500)
        probe.fit((vectors - mean) / deviation, np.repeat([1, 0], len(train_indices)))
        predicted = [
            probe.predict((examples[test_indices] - mean) / deviation)
            for examples in (positives, negatives)
        ]
        return (
            np.asarray(predicted[0] == 1, np.float64) + np.asarray(predicted[1] == 0, np.float64)
        ) / 2


def pair_vectors(inputs: AnalysisInput, pairs: Sequence[tuple[str, str]]) -> FloatArray:
    """Return the first and the mean hidden state of each pair in the last layer, (N, 2 D)."""
    texts = encode_texts(inputs.model, [Example(first, second) for first, second in pairs])
    vectors: list[FloatArray] = [np.empty(0)] * len(texts)
    for batch in activation_batches(inputs.model, texts, ("output",)):
        for index, (number, text) in enumerate(zip(batch.text_indices, batch.texts, strict=True)):
            states = batch.values["output"][index, : len(text)].double()
            vectors[number] = torch.cat((states[0], states.mean(0))).cpu().numpy()
    return np.stack(vectors)


def _split_texts(inputs: AnalysisInput) -> list[tuple[str, str]]:
    """Return the halves of the texts without final punctuation, which would reveal their order."""
    texts = [_strip_final_punctuation(text.words) for text in inputs.texts]
    parts = [
        (_strip_final_punctuation(words[: len(words) // 2]), words[len(words) // 2 :])
        for words in texts
        if len(words) >= 2 * MIN_WORDS
    ]
    return [(" ".join(first), " ".join(second)) for first, second in parts if first]


def _strip_final_punctuation(words: Sequence[str]) -> list[str]:
    return re.sub(r"\W+$", "", " ".join(words)).split()
