"""Objectives that alternate between steps."""

from pathlib import Path

import numpy as np
import pytest

from bertwright.core.errors import UserError
from bertwright.data.shards.dataset import Dataset
from bertwright.models import Model
from bertwright.models.costs import flops_per_token
from bertwright.modules.attention.mask import BidirectionalVisibility, CausalVisibility
from bertwright.objectives.schedule import group_at_step
from bertwright.recipes import Recipe
from bertwright.training.clock import TrainingClock
from bertwright.training.evaluation.held_out import make_held_out_evaluation
from bertwright.training.pretraining.pretrain import pretrain
from bertwright.training.pretraining_batches import PretrainingBatches
from bertwright.training.reporters.metrics_file import read_metrics
from small_recipe import CHANGES

MIXED = ("objectives.masked.fraction=3", "objectives.causal={fraction: 1}")


def mixed(*changes: str) -> Recipe:
    return Recipe.load("modern", *CHANGES, *MIXED, *changes)


def objectives_by_step(recipe: Recipe, seed: int, num_steps: int) -> list[list[str]]:
    groups = recipe.objective_schedule(0)
    return [sorted(group_at_step(groups, seed, step).objectives) for step in range(num_steps)]


def test_each_objective_has_its_fraction_of_the_steps_and_its_visibility() -> None:
    recipe = mixed()
    groups = recipe.objective_schedule(0)
    assert [group.fraction for group in groups] == [0.75, 0.25]
    assert [group.visibility for group in groups] == [BidirectionalVisibility(), CausalVisibility()]
    steps = objectives_by_step(recipe, 0, 2000)
    assert np.mean([names == ["causal"] for names in steps]) == pytest.approx(0.25, abs=0.03)
    assert steps == objectives_by_step(recipe, 0, 2000) != objectives_by_step(recipe, 1, 2000)


def test_an_objective_without_a_fraction_is_in_every_group() -> None:
    changes = ("objectives.masked.fraction=1", "objectives.word-order={fraction: 1}", "phases=[{}]")
    recipe = Recipe.load("bert", *CHANGES, *changes)
    groups = [sorted(group.objectives) for group in recipe.objective_schedule(0)]
    assert groups == [["masked", "next-sentence"], ["next-sentence", "word-order"]]


def test_objectives_of_a_group_must_have_the_same_visibility() -> None:
    with pytest.raises(UserError, match="give each a fraction"):
        Recipe.load("modern", *CHANGES, "objectives.causal={}")
    with pytest.raises(UserError, match="need different visibility"):
        mixed("objectives.span-boundary={}")


def test_a_step_has_one_group_with_any_micro_batches(data: Dataset) -> None:
    recipe = mixed("steps=12")
    one = PretrainingBatches(recipe, data)
    many = PretrainingBatches(mixed("steps=12", "micro_batch_tokens=64"), data)
    for step, expected in enumerate(objectives_by_step(recipe, recipe.seed, recipe.steps)):
        progress = TrainingClock(recipe.steps, [1.0]).progress(step, 8 * step)
        assert sorted(one(progress).loss_counts) == expected
        assert one(progress).loss_counts == many(progress).loss_counts
        assert all(sorted(batch.targets) == expected for batch in many(progress).micro_batches)


def test_evaluation_does_not_mix_the_inputs_of_groups(data: Dataset) -> None:
    recipe = mixed()
    model = Model.build(recipe, data.tokenizer.vocab_size)
    both, masked_only = (
        make_held_out_evaluation(r, 0, data, 512) for r in (recipe, Recipe.load("modern", *CHANGES))
    )
    metrics, expected = (
        e.compute_metrics(model, model.embedding_table.device) for e in (both, masked_only)
    )
    assert metrics["masked_loss"] == expected["masked_loss"]
    causal = [batch for batch in both.batches if "causal" in batch.targets]
    assert causal
    assert not any(
        (batch.token_ids == data.tokenizer.special_tokens.mask).any() for batch in causal
    )


def test_a_run_reports_all_objectives(data: Dataset, tmp_path: Path) -> None:
    result = pretrain(mixed("steps=20"), data, tmp_path / "out")
    assert {"masked_loss", "causal_loss", "bits_per_byte"} <= set(result.metrics)
    lines = [line for line in read_metrics(tmp_path / "out" / "metrics.jsonl") if "loss" in line]
    assert all({"masked_loss", "causal_loss"} <= set(line) for line in lines)


def test_flops_are_weighted_by_the_fractions() -> None:
    masked, causal = (
        flops_per_token(mixed(f"objectives.{other}=null")).vocabulary
        for other in ("causal", "masked")
    )
    assert flops_per_token(mixed()).vocabulary == pytest.approx(0.75 * masked + 0.25 * causal)
