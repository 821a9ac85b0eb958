"""Universal adversarial triggers: tokens that cause wrong predictions for any text.

Wallace et al. (2019).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from pydantic import Field

from bertwright.analysis.behaviour.triggers.trigger_search import (
    MASKED_TOKENS,
    MIN_TEXTS_PER_CLASS,
    TriggerProbe,
    TriggerSearch,
    TriggerTokens,
    allowed_tokens,
    is_transferable,
    missing_trigger_predictions,
    most_frequent_token,
    probes_by_class,
    token_embedding_matrix,
    truncate_for_trigger,
)
from bertwright.analysis.core.analysis import Analysis, AnalysisInput
from bertwright.analysis.core.claims import Claim
from bertwright.analysis.core.model import AnalysedModel
from bertwright.analysis.core.plots import LayerCurves
from bertwright.analysis.core.prediction_probe import PredictionScores, class_names
from bertwright.analysis.core.result import (
    AnalysisFinding,
    AnalysisResult,
    BaselineValue,
    Findings,
    StoredResult,
    interval_bounds,
    interval_finding,
)
from bertwright.core.rng import stream_key
from bertwright.core.significance import (
    FloatArray,
    bootstrap_difference,
    bootstrap_ratio,
    split_halves,
)

TRIGGERED_ACCURACY = "accuracy with the trigger, "
TRANSFERRED_ACCURACY = "accuracy of the other model with the trigger, "
ACCURACY_DROP = "accuracy, random minus searched triggers"
LOSS_INCREASE = "loss, searched minus random triggers"

MASKED_TOKENS_STREAM = "hidden pieces"
"""Random stream of a language model's search; changing it changes all triggers found."""


class UniversalTriggers(Analysis):
    """The accuracy when ``trigger_length`` tokens precede every text of a class.

    The trigger is searched for on one half of the texts and tested on the other half, in comparison
    with ``num_random_triggers``. In pairs it precedes the first text; in the published code, the
    second. Targets are the labels, or else the original predictions. The
    search starts with the most frequent token and makes ``steps`` passes over the positions, each
    with ``texts_per_step`` random texts and ``num_candidates`` per position. For a language model
    the targets are masked tokens of all texts. The same triggers are also tested on a second model
    with the same classes.
    """

    kind: Literal["triggers"] = "triggers"
    trigger_length: int = Field(default=3, ge=1)
    steps: int = Field(default=3, ge=1)
    num_candidates: int = Field(default=15, ge=1)
    texts_per_step: int = Field(default=32, ge=1)
    num_random_triggers: int = Field(default=20, ge=1)
    survey_id = "B32"
    compares_models = True
    title = "Do a few tokens spoil the prediction for any text?"
    source = "Wallace et al. 2019"
    requires = (missing_trigger_predictions,)
    claims = (
        Claim(
            "triggers found by gradients spoil more predictions than random ones",
            "89.9 % of SNLI entailments are correct, 0.6 % with one word in front",
            ACCURACY_DROP,
        ),
        Claim(
            "they cost more on texts that were not used in the search",
            "universal: searched on some texts, they hold for all",
            LOSS_INCREASE,
        ),
    )
    plots = (
        LayerCurves(
            "test accuracy",
            lambda r: _accuracy_curves(r),
            xlabel="steps of the search; dotted: random triggers",
        ),
    )

    def not_applicable(self, inputs: AnalysisInput) -> str | None:
        if (reason := super().not_applicable(inputs)) is not None:
            return reason
        required = MIN_TEXTS_PER_CLASS * len(class_names(inputs.model) or [MASKED_TOKENS])
        return f"it needs {required} texts or more" if len(inputs.texts) < required else None

    def run(self, inputs: AnalysisInput) -> AnalysisResult:
        model = inputs.model
        texts = truncate_for_trigger(model, inputs.texts, self.trigger_length)
        probes = probes_by_class(model, texts, inputs.seed)
        allowed = allowed_tokens(model, {name.lower() for name in probes})
        search = TriggerSearch(token_embedding_matrix(model), allowed, self.num_candidates)
        results = [
            self._search_class(name, probe, search, inputs.seed) for name, probe in probes.items()
        ]
        findings = [finding for result in results for finding in result.findings(inputs.seed)]
        if inputs.other_model is not None and is_transferable(inputs, inputs.other_model):
            findings += [r.transfer_finding(inputs.other_model, inputs.seed) for r in results]
        searched = concatenate_scores([result.final for result in results])
        random = concatenate_scores([result.random_triggers for result in results])
        totals = Findings(inputs.seed)
        totals.add_difference(ACCURACY_DROP, random.accuracy_ratio, searched.accuracy_ratio)
        totals.add_difference(LOSS_INCREASE, searched.loss_ratio, random.loss_ratio)
        findings += totals
        return AnalysisResult(
            findings,
            {
                "accuracy_by_step": np.array([[s.accuracy for s in r.by_step] for r in results]),
                "random": np.array([result.random_triggers.accuracy for result in results]),
            },
        )

    def _search_class(
        self, class_name: str, probe: TriggerProbe, search: TriggerSearch, seed: int
    ) -> "TriggerResult":
        train_indices, test_indices = split_halves(len(probe.texts), seed)
        train, test = probe.select(train_indices.tolist()), probe.select(test_indices.tolist())
        stream = MASKED_TOKENS_STREAM if class_name == MASKED_TOKENS else class_name
        generator = np.random.default_rng(stream_key(seed, "triggers", stream))
        trigger = (most_frequent_token(train.texts, search),) * self.trigger_length
        steps = [test.evaluate(trigger)]
        for _ in range(self.steps):
            sample = generator.permutation(len(train_indices))[: self.texts_per_step]
            trigger = search.step(train.select(sample.tolist()), trigger)
            steps.append(test.evaluate(trigger))
        random = [
            test.evaluate(search.sample_trigger(self.trigger_length, generator))
            for _ in range(self.num_random_triggers)
        ]
        return TriggerResult(
            class_name, trigger, test, test.evaluate(()), steps, _mean_scores(random)
        )


@dataclass(frozen=True)
class TriggerResult:
    """Test scores of a class: without trigger, after each search step, with random triggers."""

    class_name: str
    trigger: TriggerTokens
    test_probe: TriggerProbe
    without_trigger: PredictionScores
    by_step: Sequence[PredictionScores]
    random_triggers: PredictionScores

    @property
    def final(self) -> PredictionScores:
        """Scores with the final trigger."""
        return self.by_step[-1]

    def findings(self, seed: int) -> list[AnalysisFinding]:
        """Return accuracies and the loss."""
        final, random, findings = self.final, self.random_triggers, Findings(seed)
        difference = bootstrap_difference(final.accuracy_ratio, random.accuracy_ratio, seed=seed)
        tokenizer = self.test_probe.model.tokenizer
        findings.add_ratio(
            f"{TRIGGERED_ACCURACY}{self.class_name}",
            *final.accuracy_ratio,
            baseline=BaselineValue("random triggers", random.accuracy),
            difference_interval=interval_bounds(difference),
            note=" ".join(tokenizer.id_to_token(token) for token in self.trigger),
        )
        findings.add_ratio(
            f"accuracy without a trigger, {self.class_name}", *self.without_trigger.accuracy_ratio
        )
        findings.add_ratio(
            f"loss with the trigger, {self.class_name}",
            *final.loss_ratio,
            baseline=BaselineValue("random triggers", random.mean_loss),
        )
        return findings

    def transfer_finding(self, other_model: AnalysedModel, seed: int) -> AnalysisFinding:
        """Return the finding for another model's accuracy with the same trigger."""
        trigger, probe = self.test_probe.transfer(self.trigger, other_model)
        triggered, without = probe.evaluate(trigger), probe.evaluate(())
        difference = bootstrap_difference(
            triggered.accuracy_ratio, without.accuracy_ratio, seed=seed
        )
        return interval_finding(
            f"{TRANSFERRED_ACCURACY}{self.class_name}",
            bootstrap_ratio(*triggered.accuracy_ratio, seed=seed),
            baseline=BaselineValue("without a trigger", without.accuracy),
            difference_interval=interval_bounds(difference),
            note=other_model.name,
        )


def _accuracy_curves(result: StoredResult) -> dict[str, FloatArray]:
    """Return the accuracy by step of each class, and with random triggers."""
    curves: dict[str, FloatArray] = {}
    findings = [f for f in result.findings if f["metric"].startswith(TRIGGERED_ACCURACY)]
    arrays = (result.arrays["accuracy_by_step"], result.arrays["random"])
    for finding, by_step, random in zip(findings, *arrays, strict=True):
        name = finding["metric"].removeprefix(TRIGGERED_ACCURACY)
        curves |= {f"{name}: {finding['note']}": by_step, f"{name}, random": random}
    return curves


def concatenate_scores(scores: Sequence[PredictionScores]) -> PredictionScores:
    """Concatenate the scores of several sets of texts."""
    return PredictionScores(*np.concatenate([_values(one) for one in scores], 1))


def _mean_scores(scores: Sequence[PredictionScores]) -> PredictionScores:
    return PredictionScores(*np.mean([_values(one) for one in scores], 0))


def _values(scores: PredictionScores) -> tuple[np.ndarray, ...]:
    return scores.loss, scores.num_correct, scores.num_targets
