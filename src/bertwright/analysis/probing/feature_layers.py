"""Which layers make the best features, alone or combined (Devlin et al. 2019, table 7)."""

from collections.abc import Callable
from typing import Literal

import numpy as np
from pydantic import Field

from bertwright.analysis.core.analysis import Analysis, AnalysisInput
from bertwright.analysis.core.claims import Claim
from bertwright.analysis.core.plots import FindingBars
from bertwright.analysis.core.result import AnalysisResult, Findings
from bertwright.analysis.core.word_states import WORD_STATE_TAPS
from bertwright.analysis.probing.layer_probe import (
    ProbeWords,
    missing_tags,
    part_of_speech_tags,
    standardise,
)
from bertwright.core.significance import FloatArray

EMBEDDINGS, LAST_LAYER = "embeddings", "last layer"
LAST_FOUR_LAYERS = "last four layers, concatenated"

FEATURE_SETS: dict[str, Callable[[FloatArray], FloatArray]] = {
    EMBEDDINGS: lambda states: states[0],
    "second to last layer": lambda states: states[-2],
    LAST_LAYER: lambda states: states[-1],
    "sum of the last four layers": lambda states: states[1:][-4:].sum(0),
    LAST_FOUR_LAYERS: lambda states: np.concatenate(list(states[1:][-4:]), axis=1),
    "sum of all layers": lambda states: states[1:].sum(0),
}
"""Functions from states (layers + 1, W, D) to features (W, F), by name."""


class FeatureLayers(Analysis):
    """The part-of-speech accuracy of a linear probe on single layers and combinations of layers.

    The probe is trained on half of the sentences and tested on the other half.
    ``inverse_regularisation`` is C of the logistic regression.
    """

    kind: Literal["feature-layers"] = "feature-layers"
    inverse_regularisation: float = Field(default=1.0, gt=0)
    survey_id = "B37"
    title = "Which layers give the best features?"
    source = "Devlin et al. 2019"
    taps = WORD_STATE_TAPS
    requires = (missing_tags,)
    claims = (
        Claim(
            "the last layer is a better feature than the embeddings",
            "94.9 and 91.0 points of F1 on NER",
            f"{LAST_LAYER} minus {EMBEDDINGS}",
        ),
        Claim(
            "the last four layers, concatenated, are better than the last layer",
            "96.1 and 94.9 points of F1 on NER",
            f"{LAST_FOUR_LAYERS} minus {LAST_LAYER}",
        ),
    )
    plots = (FindingBars("part-of-speech accuracy", tuple(FEATURE_SETS)),)

    def run(self, inputs: AnalysisInput) -> AnalysisResult:
        words, tags = ProbeWords.from_inputs(inputs), part_of_speech_tags(inputs)
        baseline = words.majority_baseline(tags)
        states = np.asarray(words.word_states.states, np.float64)
        sums = {
            name: words.sums_by_text(
                words.tag_scores(
                    standardise(features(states), words.is_train), tags, self.inverse_regularisation
                )
            )
            for name, features in FEATURE_SETS.items()
        }
        findings = Findings(inputs.seed)
        for name, scores in sums.items():
            findings.add_ratio(name, *scores, baseline=baseline)
        for better, worse in ((LAST_LAYER, EMBEDDINGS), (LAST_FOUR_LAYERS, LAST_LAYER)):
            findings.add_difference(f"{better} minus {worse}", sums[better], sums[worse])
        return AnalysisResult(
            findings, {"num_correct": np.array([scores[0] for scores in sums.values()])}
        )
