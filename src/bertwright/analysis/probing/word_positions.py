"""Where hidden states encode word order (Lin, Tan and Frank 2019, section 3)."""

from typing import Literal

import numpy as np
from pydantic import Field

from bertwright.analysis.core.analysis import Analysis, AnalysisInput
from bertwright.analysis.core.claims import Claim
from bertwright.analysis.core.plots import LayerCurves
from bertwright.analysis.core.requirements import missing_halves
from bertwright.analysis.core.result import AnalysisResult, BaselineValue, Findings
from bertwright.analysis.core.word_states import WORD_STATE_TAPS
from bertwright.analysis.probing.layer_probe import ProbeWords, ridge_predictions

RIDGE_PENALTIES = (1.0, 10.0, 100.0, 1000.0)
"""Candidate ridge penalties for the selection by cross-validation."""

POSITION_ERROR = "position error in words"
POSITION_ERROR_INCREASE = "position error, last layer minus embeddings"


class WordPositions(Analysis):
    """The error of a linear probe for the position of a word in its text, by layer.

    The probe is trained on half of the texts and tested on the other half, with the first
    ``max_position`` words of each text.
    """

    kind: Literal["word-positions"] = "word-positions"
    max_position: int = Field(default=40, ge=2)
    survey_id = "B48"
    title = "Where do hidden states encode the position of a word?"
    source = "Lin, Tan and Frank 2019"
    taps = WORD_STATE_TAPS
    requires = (missing_halves(),)
    claims = (
        Claim(
            "the embeddings tell the position of a word",
            "nearly always, in the lowest layers of BERT",
            POSITION_ERROR,
            None,
            direction="below",
            layer="first",
        ),
        Claim("the last layer tells it less well", "falls with depth", POSITION_ERROR_INCREASE),
    )
    plots = (LayerCurves("position error, words"),)

    def run(self, inputs: AnalysisInput) -> AnalysisResult:
        words = ProbeWords.from_inputs(inputs)
        positions = words.word_states.positions.astype(np.float64)
        words = words.only(positions < self.max_position)
        is_train, is_test, targets = words.is_train, words.is_test, positions[words.is_test]
        mean_error = np.abs(targets - positions[is_train].mean()).mean()
        baseline = BaselineValue("always the mean position", float(mean_error))
        predictions = (
            ridge_predictions(states, positions, is_train, is_test, RIDGE_PENALTIES)
            for states in words.word_states.states
        )
        errors = [words.sums_by_text(np.abs(predicted - targets)) for predicted in predictions]
        findings = Findings(inputs.seed, includes_embeddings=True)
        for layer, sums in enumerate(errors):
            findings.add_ratio(POSITION_ERROR, *sums, layer=layer, baseline=baseline)
        findings.add_difference(POSITION_ERROR_INCREASE, errors[-1], errors[0])
        by_layer = np.array([finding.value for finding in findings[:-1]])
        return AnalysisResult(findings, {"position_error": by_layer})
