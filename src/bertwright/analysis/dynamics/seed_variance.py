"""How much the result of fine-tuning depends on seeds (Dodge et al. 2020)."""

from typing import Literal

import numpy as np
from pydantic import Field

from bertwright.analysis.core.analysis import Analysis, AnalysisInput
from bertwright.analysis.core.claims import Claim
from bertwright.analysis.core.plots import HeatMap, LayerCurves
from bertwright.analysis.core.result import AnalysisResult, BaselineValue, Findings
from bertwright.analysis.dynamics.tagging import (
    FINE_TUNING_SETTINGS,
    TaggingData,
    missing_tagging_data,
)
from bertwright.core.significance import FloatArray
from bertwright.core.statistics import estimate, expected_best
from bertwright.tasks.finetuning.build_run import build_run
from bertwright.tasks.finetuning.config import FineTuningConfig

HEAD_SEEDS, ORDER_SEEDS, INTERACTION = (
    "variance fraction, head and dropout seed",
    "variance fraction, data order seed",
    "variance fraction, interaction",
)

PERMUTATIONS = 2_000


class SeedVariance(Analysis):
    """The variance of part-of-speech accuracy over seeds, and the expected best of several runs.

    ``num_head_seeds`` seeds of head and dropout are crossed with ``num_order_seeds`` seeds of data
    order.
    """

    kind: Literal["seeds"] = "seeds"
    num_head_seeds: int = Field(default=3, ge=2)
    num_order_seeds: int = Field(default=3, ge=2)
    survey_id = "B42"
    title = "How much do seeds differ, and which ones?"
    source = "Dodge et al. 2020"
    requires = (missing_tagging_data,)
    claims = tuple(
        Claim(
            f"{seeds} explain part of the variance",
            "both seeds contribute comparably",
            metric,
            None,
            p_value="p_value",
        )
        for seeds, metric in (
            ("head and dropout seeds", HEAD_SEEDS),
            ("data order seeds", ORDER_SEEDS),
        )
    )
    plots = (
        HeatMap(
            "part-of-speech accuracy",
            lambda r: r.arrays["scores"],
            (None, None),
            "data order seed",
            "head and dropout seed",
            first=(0, 0),
        ),
        LayerCurves(
            "expected score of the best run",
            lambda r: {"best": r.arrays["expected_best_score"]},
            False,
            "runs",
        ),
    )

    def run(self, inputs: AnalysisInput) -> AnalysisResult:
        tagging = TaggingData.from_inputs(inputs)
        scores = self._scores(inputs, tagging)
        runs, best = (
            estimate(scores.ravel().tolist()),
            np.array(expected_best(scores.ravel().tolist())),
        )
        baseline = tagging.majority_baseline
        failed = float((scores <= baseline.value).mean())
        fractions, findings = variance_fractions(scores), Findings(inputs.seed)
        add, number = findings.add_value, scores.size
        interval = (runs.low, runs.high)
        add("accuracy", runs.mean, interval=interval, num_units=number, baseline=baseline)
        add("standard deviation over runs", runs.standard_deviation, num_units=number)
        add("best run minus mean", best[-1] - best[0])
        add(INTERACTION, fractions[INTERACTION], num_units=number)
        add("fraction of failed runs", failed, baseline=BaselineValue("none", 0.0))
        by_chance = permuted_variance_fractions(scores, inputs.seed)
        for name, (mean, p_value) in by_chance.items():
            add(
                name,
                fractions[name],
                num_units=number,
                baseline=BaselineValue("by chance", mean),
                p_value=p_value,
                note=f"{len(scores)} seeds each",
            )
        return AnalysisResult(findings, {"scores": scores, "expected_best_score": best})

    def _scores(self, inputs: AnalysisInput, tagging: TaggingData) -> FloatArray:
        """Return the accuracy by head seed and order seed."""
        config = FineTuningConfig.from_settings(FINE_TUNING_SETTINGS)
        run = build_run(inputs.model.text_model, [tagging.task_data], config)
        scores = np.zeros((self.num_head_seeds, self.num_order_seeds))
        for head, order in np.ndindex(scores.shape):
            tuned = run.run_seed(head, order_seed=order).models[0]
            scores[head, order] = tagging.num_correct(tuned).sum() / tagging.num_words.sum()
        return scores


def variance_fractions(scores: FloatArray) -> dict[str, float]:
    """Return how much of the variance of scores (A, B) is due to each factor and interaction.

    The fractions are 0 if all scores are equal.
    """
    centred = scores - scores.mean()
    total = float((centred**2).sum())
    first = float((centred.mean(1) ** 2).sum()) * scores.shape[1]
    second = float((centred.mean(0) ** 2).sum()) * scores.shape[0]
    squares = {HEAD_SEEDS: first, ORDER_SEEDS: second, INTERACTION: total - first - second}
    return {name: square / total if total > 0 else 0.0 for name, square in squares.items()}


def permuted_variance_fractions(scores: FloatArray, seed: int) -> dict[str, tuple[float, float]]:
    """Return for both factors the mean fraction under permutation, and the p-value.

    Scores are permuted along one factor, within each value of the other.
    """
    generator, fractions = np.random.default_rng(seed), variance_fractions(scores)
    result: dict[str, tuple[float, float]] = {}
    for axis, name in enumerate((HEAD_SEEDS, ORDER_SEEDS)):
        permuted = np.array(
            [
                variance_fractions(generator.permuted(scores, axis=axis))[name]
                for _ in range(PERMUTATIONS)
            ]
        )
        as_large = 1 + int((permuted >= fractions[name] - 1e-12).sum())
        result[name] = float(permuted.mean()), as_large / (1 + PERMUTATIONS)
    return result
