"""The benefit of pre-training for fine-tuning (Kovaleva et al. 2019, section 4.3)."""

from typing import Any, Literal

import numpy as np
from pydantic import Field

from bertwright.analysis.core.analysis import Analysis, AnalysisInput
from bertwright.analysis.core.claims import Claim
from bertwright.analysis.core.plots import FindingBars
from bertwright.analysis.core.result import AnalysisResult
from bertwright.analysis.dynamics.tagging import (
    FINE_TUNING_SETTINGS,
    NUM_RUNS,
    TaggingData,
    comparison_findings,
    missing_tagging_data,
)
from bertwright.core.significance import FloatArray

NOT_TUNED, FINE_TUNED, RANDOM_INIT, RANDOM_INIT_LONGER = (
    "not fine-tuned",
    "fine-tuned",
    "random weights, fine-tuned",
    "random weights, fine-tuned three times as long",
)
LAST_BLOCK_REINITIALISED, ALL_BLOCKS_REINITIALISED = (
    "last block reinitialised, fine-tuned",
    "all blocks reinitialised, fine-tuned",
)

VARIANTS = (
    NOT_TUNED,
    FINE_TUNED,
    RANDOM_INIT,
    RANDOM_INIT_LONGER,
    LAST_BLOCK_REINITIALISED,
    ALL_BLOCKS_REINITIALISED,
)

COMPARISONS = {
    f"{better} minus {worse}": (better, worse)
    for better, worse in (
        (FINE_TUNED, RANDOM_INIT),
        (FINE_TUNED, RANDOM_INIT_LONGER),
        (RANDOM_INIT, NOT_TUNED),
    )
}


class PretrainingBenefit(Analysis):
    """The part-of-speech accuracy after fine-tuning from different initial weights.

    Weights are pre-trained; random (also trained three times as long); or pre-trained with the last
    block or all blocks reinitialised. Each gets the best of three learning rates. A model that is
    not fine-tuned is a further baseline. Scores are means of ``num_seeds`` runs with their own
    initial weights and order; six are enough to decide. Half of the sentences are the test set, on
    which nothing is selected.
    """

    kind: Literal["pretraining-benefit"] = "pretraining-benefit"
    num_seeds: int = Field(default=NUM_RUNS, ge=1)
    epochs: int = Field(default=FINE_TUNING_SETTINGS["epochs"], ge=1)
    survey_id = "B40"
    title = "What is pre-training worth for fine-tuning?"
    source = "Kovaleva et al. 2019"
    requires = (missing_tagging_data,)
    claims = (
        Claim(
            "a pre-trained model fine-tunes better than random weights",
            "82.3 against 68.3 on MRPC, 78.6 against 61 on MNLI",
            f"{FINE_TUNED} minus {RANDOM_INIT}",
        ),
        Claim(
            "training random weights three times as long does not make up for it",
            "not measured there: as many epochs for both",
            f"{FINE_TUNED} minus {RANDOM_INIT_LONGER}",
        ),
        Claim(
            "fine-tuned random weights beat a pre-trained model without fine-tuning",
            "68.3 against 31.6 on MRPC, but not on STS-B and QNLI",
            f"{RANDOM_INIT} minus {NOT_TUNED}",
        ),
    )
    plots = (FindingBars("part-of-speech accuracy", VARIANTS),)

    def not_applicable(self, inputs: AnalysisInput) -> str | None:
        if inputs.model.text_model.model.recipe.encoder.depth.sharing != "none":
            return "its blocks share their parameters: none can be reinitialised"
        return super().not_applicable(inputs)

    def run(self, inputs: AnalysisInput) -> AnalysisResult:
        tagging = TaggingData.from_inputs(inputs)
        num_correct = {name: self._num_correct(inputs, tagging, name) for name in VARIANTS}
        findings = comparison_findings(num_correct, COMPARISONS, tagging, inputs.seed)
        arrays = {
            "num_correct": np.array(list(num_correct.values())),
            "num_words": tagging.num_words,
        }
        return AnalysisResult(findings, arrays)

    def _num_correct(self, inputs: AnalysisInput, tagging: TaggingData, variant: str) -> FloatArray:
        """Return the number of correct words per run and sentence."""
        model, is_random = inputs.model, variant in (RANDOM_INIT, RANDOM_INIT_LONGER)
        num_blocks = len(model.encoder.blocks)
        epochs = self.epochs * {NOT_TUNED: 0, RANDOM_INIT_LONGER: 3}.get(variant, 1)
        reinitialised = {LAST_BLOCK_REINITIALISED: 1, ALL_BLOCKS_REINITIALISED: num_blocks}
        settings: dict[str, Any] = {
            "epochs": epochs,
            "adaptation": {"kind": "full", "reinitialised_blocks": reinitialised.get(variant, 0)},
        }
        if epochs:
            first = model.with_random_weights(0) if is_random else model
            settings = tagging.with_best_learning_rate(first.text_model, settings)
        models = (
            (model.with_random_weights(seed) if is_random else model).text_model
            for seed in range(self.num_seeds)
        )
        return tagging.num_correct_by_seed(models, **settings)
