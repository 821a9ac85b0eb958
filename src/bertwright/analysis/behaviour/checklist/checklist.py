"""Behavioural tests of a classifier (CheckList, Ribeiro et al. 2020)."""

from collections import Counter
from collections.abc import Sequence
from typing import Literal

import numpy as np
from pydantic import Field

from bertwright.analysis.behaviour.checklist.invariance_suites import (
    SWAPPED_LETTERS_SUITE,
    invariance_suites,
)
from bertwright.analysis.behaviour.checklist.sentiment_suites import (
    PLAIN_SENTIMENT,
    SentimentLabels,
    sentiment_labels,
    sentiment_suites,
)
from bertwright.analysis.behaviour.checklist.suite import (
    SHUFFLED_BASELINE,
    BehaviouralSuite,
    SuiteResult,
    run_suite,
)
from bertwright.analysis.behaviour.classification import split_parts
from bertwright.analysis.core.analysis import Analysis, AnalysisInput
from bertwright.analysis.core.claims import Claim
from bertwright.analysis.core.model import AnalysedModel
from bertwright.analysis.core.plots import FindingBars
from bertwright.analysis.core.prediction_probe import class_names
from bertwright.analysis.core.requirements import missing_classes
from bertwright.analysis.core.result import (
    AnalysisFinding,
    AnalysisResult,
    BaselineValue,
    Findings,
    adjust_p_values,
)
from bertwright.core.config import did_you_mean
from bertwright.core.significance import holm, permutation_test
from bertwright.tasks.fine_tuned_model import FineTunedModel

SUITE_FAILURES, CAPABILITY_FAILURES, FAILURES_ABOVE_PLAIN = (
    "failures, ",
    "failures, all of ",
    "failures minus plain words, ",
)

HARD_CAPABILITIES = {
    "negation": ("negation", "in some of its forms nearly all tests fail"),
    "time": ("past and present opinion", "11 % to 42 % fail"),
    "whose opinion": ("opinions of others", "30 % to 68 % fail"),
}
"""Capabilities harder than simple sentences, with published failures."""


class CheckListSuites(Analysis):
    """How often a classifier fails suites of ``items_per_suite`` tests.

    There are sentences with an obvious class, texts whose class must not change with a typo or
    another name, and texts whose class must not become less likely when a sentence is appended. The
    first and last kinds are for sentiment models, whose labels are ``positive_label`` and
    ``negative_label`` or have well-known names. ``custom_suites`` are added. The baseline is the
    failure rate with the predictions for other texts of the suite; hard capabilities are compared
    with simple sentences.
    """

    kind: Literal["suites"] = "suites"
    items_per_suite: int = Field(default=100, ge=1)
    positive_label: str | None = None
    negative_label: str | None = None
    custom_suites: tuple[BehaviouralSuite, ...] = ()
    survey_id = "B34"
    title = "Does a classifier pass behavioural tests?"
    source = "Ribeiro et al. 2020"
    requires = (missing_classes,)
    claims = (
        Claim(
            "simple positive and negative sentences are distinguished",
            "few such tests fail",
            f"{SUITE_FAILURES}{PLAIN_SENTIMENT.name}",
            None,
            direction="below",
            is_optional=True,
        ),
        *(
            Claim(
                f"{name} is harder than simple sentences",
                published,
                f"{FAILURES_ABOVE_PLAIN}{capability}",
                baseline_name="simple sentences",
                p_value="adjusted_p_value",
                is_optional=True,
            )
            for capability, (name, published) in HARD_CAPABILITIES.items()
        ),
        Claim(
            "swapping two letters changes some predictions",
            "4 % to 10 % of them",
            f"{SUITE_FAILURES}{SWAPPED_LETTERS_SUITE}",
            baseline_name="none",
            is_optional=True,
        ),
    )
    plots = (FindingBars("fraction of failed tests", SUITE_FAILURES),)

    def not_applicable(self, inputs: AnalysisInput) -> str | None:
        if (reason := super().not_applicable(inputs)) is not None:
            return reason
        known = class_names(inputs.model)
        labels = {item.label for suite in self.custom_suites for item in suite.items}
        labels |= {self.positive_label, self.negative_label}
        for label in sorted(label for label in labels if label not in (None, *known)):
            return f"the model has no class {label!r}{did_you_mean(label, known)}"
        return None if self._build_suites(inputs) else "its texts have no words to change"

    def run(self, inputs: AnalysisInput) -> AnalysisResult:
        suites = self._build_suites(inputs)
        results = [run_suite(inputs.model, suite, inputs.seed) for suite in suites]
        findings = [suite.finding(f"{SUITE_FAILURES}{suite.suite.name}") for suite in results]
        findings += [
            *_capability_findings(results, inputs.seed),
            *_difficulty_findings(results, inputs.seed),
        ]
        return AnalysisResult(findings, {suite.suite.name: suite.has_failed for suite in results})

    def _build_suites(self, inputs: AnalysisInput) -> list[BehaviouralSuite]:
        text_parts = [split_parts(text) for text in inputs.texts]
        labels = self._sentiment_labels(inputs.model)
        limits = self.items_per_suite, inputs.seed
        return [
            *([] if labels is None else sentiment_suites(labels, text_parts, *limits)),
            *invariance_suites(inputs.texts, text_parts, *limits),
            *self.custom_suites,
        ]

    def _sentiment_labels(self, model: AnalysedModel) -> SentimentLabels | None:
        if self.positive_label is not None and self.negative_label is not None:
            return SentimentLabels(self.positive_label, self.negative_label)
        assert isinstance(model.text_model, FineTunedModel)
        task = model.text_model.task
        return sentiment_labels(task.name, task.labels)


def _capability_findings(suite_results: Sequence[SuiteResult], seed: int) -> list[AnalysisFinding]:
    """Return the failure rates of capabilities with several suites; units are original texts."""
    names = Counter(result.suite.capability for result in suite_results)
    findings = Findings(seed)
    for name in (name for name, number in names.items() if number > 1):
        results = [result for result in suite_results if result.suite.capability == name]
        originals = [str(item.original) for result in results for item in result.suite.items]
        _, unit = np.unique(originals, return_inverse=True)
        has_failed = np.concatenate([result.has_failed for result in results])
        shuffled = np.concatenate([result.has_failed_shuffled for result in results])
        findings.add_ratio(
            f"{CAPABILITY_FAILURES}{name}",
            np.bincount(unit, has_failed),
            np.bincount(unit),
            baseline=BaselineValue(SHUFFLED_BASELINE, float(shuffled.mean())),
        )
    return findings


def _difficulty_findings(suite_results: Sequence[SuiteResult], seed: int) -> list[AnalysisFinding]:
    """Return how much more often hard capabilities fail than simple sentences, if both are run."""
    failures = {result.suite.name: result.has_failed for result in suite_results}
    plain = failures.get(PLAIN_SENTIMENT.name)
    if plain is None:
        return []
    hard = {
        capability: np.concatenate([result.has_failed for result in results])
        for capability in HARD_CAPABILITIES
        if (results := [r for r in suite_results if r.suite.capability == capability])
    }
    findings = [
        AnalysisFinding(
            f"{FAILURES_ABOVE_PLAIN}{capability}",
            float(has_failed.mean() - plain.mean()),
            p_value=permutation_test(has_failed, plain, seed=seed),
        )
        for capability, has_failed in hard.items()
    ]
    return adjust_p_values(findings, holm)
