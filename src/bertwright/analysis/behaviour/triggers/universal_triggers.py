"""Universal adversarial triggers: tokens that spoil the prediction for any text.

Wallace et al. (2019).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from matplotlib.figure import Figure
from pydantic import Field

from bertwright.analysis.behaviour.triggers.trigger_probe import (
    MASKED_TOKENS,
    MIN_TEXTS_PER_CLASS,
    TriggerProbe,
    TriggerTokens,
    class_names,
    is_transferable,
    missing_trigger_predictions,
    probes_by_class,
    truncate_for_trigger,
)
from bertwright.analysis.behaviour.triggers.trigger_search import (
    TriggerSearch,
    allowed_tokens,
    most_frequent_token,
    token_embedding_matrix,
)
from bertwright.analysis.core.analysis import Analysis, AnalysisInput
from bertwright.analysis.core.claims import Claim
from bertwright.analysis.core.model import AnalysedModel
from bertwright.analysis.core.prediction_probe import PredictionScores
from bertwright.analysis.core.result import (
    AnalysisFinding,
    AnalysisResult,
    BaselineValue,
    StoredResult,
    interval_bounds,
    interval_finding,
    ratio_finding,
)
from bertwright.core.rng import stream_key
from bertwright.core.significance import (
    ConfidenceInterval,
    bootstrap_difference,
    bootstrap_ratio,
    split_halves,
)

TRIGGERED_ACCURACY = "accuracy with the trigger, "
TRANSFERRED_ACCURACY = "accuracy of the other model with the trigger, "
ACCURACY_DROP = "accuracy, random minus searched triggers"
LOSS_INCREASE = "loss, searched minus random triggers"

MASKED_TOKENS_STREAM = "hidden pieces"
"""Random stream of a language model's search; a change would change all its triggers."""


class UniversalTriggers(Analysis):
    """The accuracy with ``trigger_length`` tokens in front of every text of a class.

    The trigger is searched on one half of the texts and tested on the other, compared with
    ``num_random_triggers``. Targets are labels, or else the original predictions. The search starts
    with the most frequent token and passes ``steps`` times over the positions, each time with
    ``texts_per_step`` random texts and ``num_candidates`` per position. For a language model the
    targets are masked tokens of all texts. A second model with the same classes is tested with the
    same triggers.
    """

    kind: Literal["triggers"] = "triggers"
    trigger_length: int = Field(default=3, ge=1)
    steps: int = Field(default=3, ge=1)
    num_candidates: int = Field(default=15, ge=1)
    texts_per_step: int = Field(default=32, ge=1)
    num_random_triggers: int = Field(default=20, ge=1)
    survey_id = "B32"
    compares_models = True
    group = "behaviour"
    title = "Do a few tokens spoil the prediction for any text?"
    source = "Wallace et al. 2019"
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

    def not_applicable(self, inputs: AnalysisInput) -> str | None:
        if (reason := missing_trigger_predictions(inputs.model)) is not None:
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
        if inputs.other_model is not None and is_transferable(model, inputs.other_model):
            findings += [r.transfer_finding(inputs.other_model, inputs.seed) for r in results]
        searched = concatenate_scores([result.final for result in results])
        random = concatenate_scores([result.random_triggers for result in results])
        drop = accuracy_difference(random, searched, inputs.seed)
        increase = loss_difference(searched, random, inputs.seed)
        findings += [
            interval_finding(ACCURACY_DROP, drop),
            interval_finding(LOSS_INCREASE, increase),
        ]
        return AnalysisResult(
            findings,
            {
                "accuracy_by_step": np.array([[s.accuracy for s in r.by_step] for r in results]),
                "random": np.array([result.random_triggers.accuracy for result in results]),
            },
        )

    def plot(self, result: StoredResult, figure: Figure) -> None:
        axes = figure.subplots()
        findings = [f for f in result.findings if f["metric"].startswith(TRIGGERED_ACCURACY)]
        by_step = result.arrays["accuracy_by_step"]
        curves = zip(findings, by_step, result.arrays["random"], strict=True)
        for number, (finding, steps, random) in enumerate(curves):
            name = f"{finding['metric'].removeprefix(TRIGGERED_ACCURACY)}: {finding['note']}"
            axes.plot(steps, f"C{number}o-", label=name.replace("$", r"\$"))
            axes.axhline(random, color=f"C{number}", linestyle=":")
        axes.set_ylim(0, 1.02)
        axes.set_xticks(range(by_step.shape[1]))
        axes.set_xlabel("steps of the search; dotted: random triggers")
        axes.set_ylabel("test accuracy")
        axes.legend()

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
    """Test scores of a class: without a trigger, after each search step, with random triggers."""

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
        final, random = self.final, self.random_triggers
        difference = accuracy_difference(final, random, seed)
        tokenizer = self.test_probe.model.tokenizer
        note = " ".join(tokenizer.id_to_token(token) for token in self.trigger)
        accuracy, without = (
            bootstrap_ratio(scores.num_correct, scores.num_targets, seed=seed)
            for scores in (final, self.without_trigger)
        )
        triggered = interval_finding(
            f"{TRIGGERED_ACCURACY}{self.class_name}",
            accuracy,
            baseline=BaselineValue("random triggers", random.accuracy),
        )
        return [
            replace(triggered, note=note, difference_interval=interval_bounds(difference)),
            interval_finding(f"accuracy without a trigger, {self.class_name}", without),
            ratio_finding(
                f"loss with the trigger, {self.class_name}",
                final.loss,
                final.num_targets,
                seed=seed,
                baseline=BaselineValue("random triggers", random.mean_loss),
            ),
        ]

    def transfer_finding(self, other_model: AnalysedModel, seed: int) -> AnalysisFinding:
        """Return the accuracy of another model with the same trigger."""
        trigger, probe = self.test_probe.transfer(self.trigger, other_model)
        triggered, without = probe.evaluate(trigger), probe.evaluate(())
        difference = accuracy_difference(triggered, without, seed)
        finding = ratio_finding(
            f"{TRANSFERRED_ACCURACY}{self.class_name}",
            triggered.num_correct,
            triggered.num_targets,
            seed=seed,
            baseline=BaselineValue("without a trigger", without.accuracy),
        )
        bounds = interval_bounds(difference)
        return replace(finding, difference_interval=bounds, note=other_model.name)


def concatenate_scores(scores: Sequence[PredictionScores]) -> PredictionScores:
    """Concatenate the scores of several sets of texts."""
    return PredictionScores(*np.concatenate([_values(one) for one in scores], 1))


def accuracy_difference(
    first: PredictionScores, second: PredictionScores, seed: int
) -> ConfidenceInterval:
    """Return the accuracy of the first minus that of the second."""
    return bootstrap_difference(first.accuracy_ratio, second.accuracy_ratio, seed=seed)


def loss_difference(
    first: PredictionScores, second: PredictionScores, seed: int
) -> ConfidenceInterval:
    """Return the loss of the first minus that of the second."""
    return bootstrap_difference(first.loss_ratio, second.loss_ratio, seed=seed)


def _mean_scores(scores: Sequence[PredictionScores]) -> PredictionScores:
    return PredictionScores(*np.mean([_values(one) for one in scores], 0))


def _values(scores: PredictionScores) -> tuple[np.ndarray, ...]:
    return scores.loss, scores.num_correct, scores.num_targets
