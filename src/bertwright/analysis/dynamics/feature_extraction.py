"""Frozen features or fine-tuning (Peters, Ruder and Smith 2019)."""

from typing import Any, Literal

from pydantic import Field

from bertwright.analysis.core.analysis import Analysis, AnalysisInput
from bertwright.analysis.core.claims import Claim
from bertwright.analysis.core.plots import FindingBars
from bertwright.analysis.core.result import AnalysisResult
from bertwright.analysis.dynamics.tagging import (
    FINE_TUNING_SETTINGS,
    NUM_RUNS,
    FloatArray,
    TaggingData,
    comparison_findings,
    missing_tagging_data,
)
from bertwright.models.text_model import TextModel

VARIANTS: dict[str, dict[str, Any]] = {
    "fine-tuned": {"adaptation": "full"},
    "frozen": {
        "adaptation": "frozen",
        "head": {"kind": "bilstm", "width": 128, "depth": 1, "layers": "all", "mix": "learned"},
    },
}
"""Frozen features pass through a learned mix of all layers into an LSTM. Its epochs are cheap, so
there are ``EPOCH_FACTOR`` times as many."""

EPOCH_FACTOR = 4

FINE_TUNED_MINUS_FROZEN = "fine-tuned minus frozen"


class FeatureExtraction(Analysis):
    """The part-of-speech accuracy of a fine-tuned model and of an LSTM on frozen features.

    Both use the best of three learning rates. Scores are means of ``num_seeds`` runs; six are
    enough to decide. Half of the sentences are the test set, on which nothing is selected.
    """

    kind: Literal["frozen-or-tuned"] = "frozen-or-tuned"
    num_seeds: int = Field(default=NUM_RUNS, ge=1)
    epochs: int = Field(default=FINE_TUNING_SETTINGS["epochs"], ge=1)
    survey_id = "B43"
    title = "Does fine-tuning beat frozen features?"
    source = "Peters, Ruder and Smith 2019"
    requires = (missing_tagging_data,)
    claims = (
        Claim(
            "fine-tuning beats frozen features",
            "by 0.2 points of F1 on NER, 0.0 to 6.7 on other tasks, for BERT-base",
            FINE_TUNED_MINUS_FROZEN,
        ),
    )
    plots = (FindingBars("part-of-speech accuracy", tuple(VARIANTS)),)

    def not_applicable(self, inputs: AnalysisInput) -> str | None:
        if len(set(inputs.model.text_model.model.recipe.encoder.hidden_widths)) > 1:
            return "its layers differ in width and cannot be mixed"
        return super().not_applicable(inputs)

    def run(self, inputs: AnalysisInput) -> AnalysisResult:
        tagging = TaggingData.from_inputs(inputs)
        model, num_words = inputs.model.text_model, tagging.num_words
        num_correct = {name: self._num_correct(tagging, model, name) for name in VARIANTS}
        comparisons = {FINE_TUNED_MINUS_FROZEN: ("fine-tuned", "frozen")}
        findings = comparison_findings(num_correct, comparisons, tagging, inputs.seed)
        return AnalysisResult(findings, {**num_correct, "num_words": num_words})

    def _num_correct(self, tagging: TaggingData, model: TextModel, variant: str) -> FloatArray:
        """Return the number of correct words per run and sentence."""
        epochs = self.epochs * (EPOCH_FACTOR if variant == "frozen" else 1)
        settings = tagging.with_best_learning_rate(model, {**VARIANTS[variant], "epochs": epochs})
        return tagging.num_correct_by_seed([model] * self.num_seeds, **settings)
