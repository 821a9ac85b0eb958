"""Analyses that fine-tune taggers: splits, runs and masks, with scores instead of training."""

from collections import Counter
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bertwright.analysis.core.analysis import AnalysisInput
from bertwright.analysis.core.result import BaselineValue
from bertwright.analysis.core.texts import encode_texts
from bertwright.analysis.dynamics import head_pruning
from bertwright.analysis.dynamics.feature_extraction import FeatureExtraction
from bertwright.analysis.dynamics.head_pruning import PruningMask, prune_least_important
from bertwright.analysis.dynamics.pretraining_benefit import VARIANTS, PretrainingBenefit
from bertwright.analysis.dynamics.seed_variance import (
    HEAD_SEEDS,
    INTERACTION,
    ORDER_SEEDS,
    SeedVariance,
)
from bertwright.analysis.dynamics.tagging import (
    TaggingData,
    comparison_findings,
    missing_tagging_data,
)
from bertwright.core.significance import split_halves
from experiments.analyses.models import small_model
from experiments.analyses.trees import random_trees


def tagged_inputs(num_trees: int = 23, seed: int = 1) -> AnalysisInput:
    model = small_model()
    return AnalysisInput(model, encode_texts(model, random_trees(num_trees)), seed=seed)


def test_sentences_are_split_in_halves_and_a_fifth_of_one_selects() -> None:
    inputs = tagged_inputs()
    tagging, (train, test) = TaggingData.from_inputs(inputs), split_halves(23, 1)
    selecting = [train[0], train[5], train[10]]
    parts = {"train": set(train) - set(selecting), "validation": selecting, "test": test}
    for name, numbers in parts.items():
        expected = [(inputs.texts[n].words, inputs.texts[n].tags) for n in sorted(numbers)]
        assert [(s.words, s.tags) for s in getattr(tagging, name)] == expected, name
    assert tagging.num_words.tolist() == [8.0] * 12
    tags = {name: [tag for s in getattr(tagging, name) for tag in s.tags] for name in parts}
    ((majority, _), *_) = Counter(sorted(tags["train"])).most_common()
    fraction = tags["test"].count(majority) / len(tags["test"])
    assert tagging.majority_baseline == BaselineValue(f"always {majority}", fraction)
    most = max(Counter(tags["validation"]).values())
    assert tagging.validation_majority_fraction == most / len(tags["validation"])
    assert missing_tagging_data(tagged_inputs(10)) is None
    assert "10 sentences" in str(missing_tagging_data(tagged_inputs(9)))


def test_accuracies_are_fractions_of_words_with_their_spread_over_runs() -> None:
    tagging = TaggingData.from_inputs(tagged_inputs(20))
    generator = np.random.default_rng(0)
    counts = {name: generator.integers(0, 9, (3, 10)).astype(float) for name in ("a", "b")}
    first, second, difference = comparison_findings(counts, {"a - b": ("a", "b")}, tagging, 0)
    runs = {name: of_run.sum(1) / 80 for name, of_run in counts.items()}
    assert (first.metric, second.metric, difference.metric) == ("a", "b", "a - b")
    assert first.value == pytest.approx(runs["a"].mean())
    assert difference.value == pytest.approx((runs["a"] - runs["b"]).mean())
    assert (first.baseline, difference.baseline) == (tagging.majority_baseline, None)
    assert first.num_units == 3
    deviation = np.sqrt(((runs["b"] - runs["b"].mean()) ** 2).sum() / 2)
    low, high = sorted(runs["b"])[0], sorted(runs["b"])[-1]
    assert second.note == f"sd {deviation:.4f} over 3 runs, {low:.4f} to {high:.4f}"
    (single,) = comparison_findings({"a": counts["a"][:1]}, {}, tagging, 0)
    assert single.note is None


def test_random_masks_keep_as_many_parts_and_bad_ones_the_removed_first() -> None:
    generator = np.random.default_rng(0)
    heads = np.array([[True, False, True, True], [True, True, False, False]])
    mask = PruningMask(heads, np.array([True, False]))
    assert mask.kept_head_fraction == 5 / 8
    samples = {
        removed: [mask.sample_like(generator, prefer_removed=removed) for _ in range(200)]
        for removed in (False, True)
    }
    for sample in samples[False] + samples[True]:
        assert (sample.heads.sum(), sample.feed_forwards.sum()) == (5, 1)
    frequencies = np.mean([sample.heads for sample in samples[False]], axis=0)
    assert frequencies.ravel().tolist() == pytest.approx([5 / 8] * 8, abs=0.15)
    for sample in samples[True]:
        assert sample.heads[~heads].all()
        assert sample.feed_forwards.tolist() == [False, True]
    frequencies = np.mean([sample.heads for sample in samples[True]], axis=0)
    assert frequencies[heads].tolist() == pytest.approx([2 / 5] * 5, abs=0.15)


@pytest.mark.parametrize(
    ("scores", "majority", "num_kept"),
    # The score of the full model, then after each step; nine tenths of 1 are needed.
    [([1, 0.95, 0.91, 0.89], 0.5, 6), ([1, 0.9, 0.5], 0.5, 7), ([1, 0.95, 0.93], 0.93, 7)],
)
def test_least_important_parts_are_pruned_while_the_score_is_high_enough(
    scores: list[float], majority: float, num_kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prasanna et al. 2020, section 3.2: a tenth of the heads and a layer at a time."""
    model, remaining = small_model(), iter(scores)
    importances = np.array([[0.5, 0.1, 0.7, 0.8], [0.6, 0.9, 0.2, 0.4]]), np.array([0.3, 0.2])
    monkeypatch.setattr(head_pruning, "part_importances", lambda *_: importances)
    monkeypatch.setattr(head_pruning, "_accuracy", lambda *_: next(remaining))
    tuned = SimpleNamespace(task_model=SimpleNamespace(encoder=model.encoder))
    tagging = SimpleNamespace(train=[], validation=[], validation_majority_fraction=majority)
    mask = prune_least_important(model, tuned, tagging)  # type: ignore[arg-type]
    order = np.argsort(importances[0], axis=None)
    assert mask.heads.ravel()[order].tolist() == [False] * (8 - num_kept) + [True] * num_kept
    assert mask.feed_forwards.tolist() == [num_kept > 6, False]


def test_a_model_that_keeps_its_score_is_pruned_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    model = small_model()
    monkeypatch.setattr(head_pruning, "part_importances", lambda *_: (np.ones((2, 4)), np.ones(2)))
    monkeypatch.setattr(head_pruning, "_accuracy", lambda *_: 0.8)
    tuned = SimpleNamespace(task_model=SimpleNamespace(encoder=model.encoder))
    tagging = SimpleNamespace(train=[], validation=[], validation_majority_fraction=0.79)
    mask = prune_least_important(model, tuned, tagging)  # type: ignore[arg-type]
    assert not mask.heads.any()
    assert not mask.feed_forwards.any()


def test_at_least_one_of_few_heads_is_pruned_in_every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenth of four heads is none."""
    model = small_model("bert", "encoder.depth.layers=1")
    scores = iter([1.0, 0.99, 0.98, 0.97, 0.5])
    importances = np.array([[0.3, 0.1, 0.4, 0.2]]), np.array([0.5])
    monkeypatch.setattr(head_pruning, "part_importances", lambda *_: importances)
    monkeypatch.setattr(head_pruning, "_accuracy", lambda *_: next(scores))
    tuned = SimpleNamespace(task_model=SimpleNamespace(encoder=model.encoder))
    tagging = SimpleNamespace(train=[], validation=[], validation_majority_fraction=0.4)
    mask = prune_least_important(model, tuned, tagging)  # type: ignore[arg-type]
    assert mask.heads.tolist() == [[False, False, True, False]]


def test_variants_differ_in_weights_and_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every variant that trains has the best of the learning rates for its first weights."""
    inputs, runs = tagged_inputs(12), list[tuple[list[bool], dict[str, Any]]]()
    trained = inputs.model.encoder.embeddings.table

    def best_rate(_: TaggingData, model: Any, settings: dict[str, Any]) -> dict[str, Any]:
        return {**settings, "learning_rate": model.model.encoder.embeddings.table is trained}

    def num_correct(tagging: TaggingData, models: Any, **settings: Any) -> np.ndarray:
        tables = [model.model.encoder.embeddings.table for model in models]
        assert len({id(table) for table in tables if table is not trained}) in (0, 2)
        runs.append(([table is trained for table in tables], settings))
        return np.full((len(tables), len(tagging.test)), float(len(runs)))

    monkeypatch.setattr(TaggingData, "with_best_learning_rate", best_rate)
    monkeypatch.setattr(TaggingData, "num_correct_by_seed", num_correct)
    result = PretrainingBenefit(num_seeds=2, epochs=5).run(inputs)
    expected = zip((0, 5, 5, 15, 5, 5), (0, 0, 0, 0, 1, 2), (1, 1, 0, 0, 1, 1), strict=True)
    for (is_trained, settings), (epochs, blocks, starts_trained) in zip(
        runs, expected, strict=True
    ):
        assert is_trained == [bool(starts_trained)] * 2
        adaptation = {"kind": "full", "reinitialised_blocks": blocks}
        rate = {"learning_rate": bool(starts_trained)} if epochs else {}
        assert settings == {"epochs": epochs, "adaptation": adaptation, **rate}
    values = {finding.metric: finding.value for finding in result.findings}
    assert [values[name] for name in VARIANTS] == pytest.approx([n / 8 for n in range(1, 7)])
    assert values["fine-tuned minus random weights, fine-tuned"] == pytest.approx(-1 / 8)
    assert values["random weights, fine-tuned minus not fine-tuned"] == pytest.approx(2 / 8)
    runs.clear()
    FeatureExtraction(num_seeds=3, epochs=2).run(inputs)
    epochs = {settings["adaptation"]: settings["epochs"] for _, settings in runs}
    assert {len(is_trained) for is_trained, _ in runs} == {3}
    assert epochs["frozen"] == 4 * epochs["full"] == 8


def test_variance_of_seeds_follows_from_the_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = tagged_inputs(12)
    majority = TaggingData.from_inputs(inputs).majority_baseline
    scores = majority.value + np.array([[0.1, 0.2, 0.3], [0.2, 0.3, 0.4], [0.0, -0.1, 0.2]])
    monkeypatch.setattr(SeedVariance, "_scores", lambda *_: scores)
    result = SeedVariance().run(inputs)
    by_metric = {finding.metric: finding for finding in result.findings}
    deviations = scores - scores.mean()
    total = (deviations**2).sum()
    rows, columns = (3 * (deviations.mean(axis) ** 2).sum() / total for axis in (1, 0))
    maxima = [max(scores.flat[list(draw)]) for draw in np.ndindex(9, 9)]
    assert result.arrays["expected_best_score"][:2] == pytest.approx(
        [scores.mean(), np.mean(maxima)]
    )
    expected = {
        "accuracy": scores.mean(),
        "standard deviation over runs": scores.std(ddof=1),
        "best run minus mean": result.arrays["expected_best_score"][-1] - scores.mean(),
        INTERACTION: 1 - rows - columns,
        "fraction of failed runs": 2 / 9,
        HEAD_SEEDS: rows,
        ORDER_SEEDS: columns,
    }
    assert {metric: one.value for metric, one in by_metric.items()} == pytest.approx(expected)
    assert by_metric["accuracy"].baseline == majority
    assert by_metric["accuracy"].num_units == 9
    assert by_metric[HEAD_SEEDS].note == "3 seeds each"
    baseline = by_metric[HEAD_SEEDS].baseline
    assert baseline is not None
    assert 0 < baseline.value < rows
