"""Whether hidden states encode the value of a number (Wallace, Wang et al. 2019)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from bertwright.analysis.core.analysis import Analysis, AnalysisInput
from bertwright.analysis.core.claims import Claim
from bertwright.analysis.core.plots import LayerCurves
from bertwright.analysis.core.result import AnalysisResult, BaselineValue, Findings
from bertwright.analysis.core.texts import (
    SentenceWords,
)
from bertwright.analysis.core.word_states import (
    WORD_STATE_TAPS,
    sentence_states,
)
from bertwright.analysis.probing.layer_probe import ridge_predictions
from bertwright.core.rng import generator, stream_key
from bertwright.core.significance import FloatArray, bootstrap_mean_difference

ErrorSums = tuple[FloatArray, FloatArray]

RIDGE_PENALTIES = np.logspace(0, 5, 11)
"""Candidate ridge penalties for the selection by cross-validation."""


INTERPOLATION, EXTRAPOLATION = "value, interpolated", "value, extrapolated"
GAIN_BY_TRAINING = "untrained minus trained, last layer"
EXTRAPOLATION_LOSS = "extrapolated minus interpolated, last layer"


class Numeracy(Analysis):
    """The error of a linear probe for the value of a number, or the sum of two numbers.

    Numbers below ``max_value`` occur in sentences such as "there were 27 of them" and "27 and 54".
    The probe is trained on a random half (interpolation) or on the lower half (extrapolation), and
    tested on the rest. Errors are relative to the squared error of predicting the mean; the
    baseline is the same model with random weights.
    """

    kind: Literal["numbers"] = "numbers"
    max_value: int = Field(default=1000, ge=20)
    num_values: int = Field(default=300, ge=20)
    survey_id = "B30"
    title = "Do hidden states encode how large a number is?"
    source = "Wallace et al. 2019"
    taps = WORD_STATE_TAPS
    claims = (
        Claim(
            "training makes hidden states encode the value of a number better",
            "all tested word vectors encode it, random ones do not",
            GAIN_BY_TRAINING,
        ),
        Claim(
            "a probe predicts numbers outside its training range worse",
            "probes do not extrapolate",
            EXTRAPOLATION_LOSS,
            0.0,
            "as well",
        ),
    )
    plots = (LayerCurves("remaining fraction of the squared error"),)

    def built_in_sentences(self, seed: int) -> list[SentenceWords]:
        return [words for task in self.numeracy_tasks(seed) for words in task.sentences]

    def run(self, inputs: AnalysisInput) -> AnalysisResult:
        findings = Findings(inputs.seed, includes_embeddings=True)
        remaining: dict[str, FloatArray] = {}
        last: dict[str, tuple[ErrorSums, ErrorSums]] = {}
        for task in self.numeracy_tasks(inputs.seed):
            trained_errors, untrained_errors = (
                task.errors_by_layer(one) for one in (inputs, inputs.untrained())
            )
            by_layer = zip(trained_errors, untrained_errors, strict=True)
            for layer, (errors, others) in enumerate(by_layer):
                baseline = BaselineValue("untrained", float(others[0].sum() / others[1].sum()))
                findings.add_ratio(task.name, *errors, layer=layer, baseline=baseline)
            remaining[task.name] = np.array([e.sum() / v.sum() for e, v in trained_errors])
            last[task.name] = trained_errors[-1], untrained_errors[-1]
        errors, others = last[INTERPOLATION]
        difference = bootstrap_mean_difference(
            *(
                e / variance
                for e, variance in (last[name][0] for name in (EXTRAPOLATION, INTERPOLATION))
            ),
            seed=inputs.seed,
        )
        findings.add_difference(GAIN_BY_TRAINING, others, errors)
        findings.add_interval(EXTRAPOLATION_LOSS, difference)
        return AnalysisResult(findings, remaining)

    def numeracy_tasks(self, seed: int) -> "list[NumeracyTask]":
        """Return the tasks, with numbers drawn with the seed."""
        drawn = generator(stream_key(seed, "numbers"))
        first, second = (drawn.permutation(self.max_value)[: self.num_values] for _ in range(2))
        alone = [("there", "were", str(number), "of", "them", ".") for number in first]
        pairs = [(str(a), "and", str(b), ".") for a, b in zip(first, second, strict=True)]
        half = np.arange(len(first)) < len(first) // 2
        return [
            NumeracyTask(INTERPOLATION, alone, (2,), first, half),
            NumeracyTask(EXTRAPOLATION, alone, (2,), first, first < np.median(first)),
            NumeracyTask("sum, interpolated", pairs, (0, 2), first + second, half),
        ]


@dataclass(frozen=True)
class NumeracyTask:
    """Sentences with numbers at ``word_indices`` and target values (N,).

    ``is_train`` (N,) selects the training sentences.
    """

    name: str
    sentences: Sequence[tuple[str, ...]]
    word_indices: tuple[int, ...]
    values: NDArray[np.int64]
    is_train: NDArray[np.bool_]

    def errors_by_layer(self, inputs: AnalysisInput) -> list[ErrorSums]:
        """Return the squared test errors, and the variance of all values, by layer."""
        word_states = sentence_states(inputs, self.sentences)
        indices = word_states.starts[:, None] + np.array(self.word_indices)
        shape = (word_states.num_layers, len(indices), -1)
        states = word_states.states[:, indices].reshape(shape)
        return [self.squared_errors(np.asarray(layer, np.float64)) for layer in states]

    def squared_errors(self, states: FloatArray) -> ErrorSums:
        """Return the squared test errors for states (N, D), and the variance of all values."""
        test = ~self.is_train
        predicted = ridge_predictions(states, self.values, self.is_train, test, RIDGE_PENALTIES)
        targets = self.values[test]
        errors = (predicted - targets) ** 2
        return errors, np.full(len(targets), self.values.var())
