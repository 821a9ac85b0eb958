"""Questions that take turns: which step asks what, and that each sees the text in its own way."""

from pathlib import Path

import numpy as np
import pytest
from small_recipe import CHANGES

from bertwright.encoder.visibility import Bidirectional, Causal
from bertwright.errors import UserError
from bertwright.model import Model
from bertwright.model.counting import arithmetic
from bertwright.objectives.turns import turn_at
from bertwright.recipes import Recipe
from bertwright.text.shards import Data
from bertwright.training.clock import Clock
from bertwright.training.evaluation import held_out
from bertwright.training.metrics_file import read_metrics
from bertwright.training.pretraining import pretrain
from bertwright.training.recipe_batches import RecipeBatches

MIXED = ("objectives.masked.share=3", "objectives.causal={share: 1}")


def mixed(*changes: str) -> Recipe:
    return Recipe.load("modern", *CHANGES, *MIXED, *changes)


def asked_in(recipe: Recipe, seed: int, num_steps: int) -> list[list[str]]:
    turns = recipe.turns_of(0)
    return [sorted(turn_at(turns, seed, step).objectives) for step in range(num_steps)]


def test_each_question_has_its_share_of_the_steps_and_its_own_view() -> None:
    recipe = mixed()
    turns = recipe.turns_of(0)
    assert [turn.share for turn in turns] == [0.75, 0.25]
    assert [turn.visibility for turn in turns] == [Bidirectional(), Causal()]
    drawn = asked_in(recipe, 0, 2000)
    assert np.mean([asked == ["causal"] for asked in drawn]) == pytest.approx(0.25, abs=0.03)
    assert drawn == asked_in(recipe, 0, 2000) != asked_in(recipe, 1, 2000)


def test_what_has_no_share_is_asked_beside_each() -> None:
    shares = ("objectives.masked.share=1", "objectives.word-order={share: 1}", "phases=[{}]")
    recipe = Recipe.load("bert", *CHANGES, *shares)
    asked = [sorted(turn.objectives) for turn in recipe.turns_of(0)]
    assert asked == [["masked", "next-sentence"], ["next-sentence", "word-order"]]


def test_questions_of_one_turn_must_see_alike() -> None:
    with pytest.raises(UserError, match="give each a share"):
        Recipe.load("modern", *CHANGES, "objectives.causal={}")
    with pytest.raises(UserError, match="see the text differently"):
        mixed("objectives.span-boundary={}")


def test_a_step_asks_one_turn_whatever_the_micro_batches(data: Data) -> None:
    recipe = mixed("steps=12")
    one = RecipeBatches(recipe, data)
    cut = RecipeBatches(mixed("steps=12", "micro_batch_tokens=64"), data)
    for step, expected in enumerate(asked_in(recipe, recipe.seed, recipe.steps)):
        place = Clock(recipe.steps, [1.0]).place(step, 8 * step)
        assert sorted(one(place).counts) == expected
        assert one(place).counts == cut(place).counts
        assert all(sorted(batch.questions) == expected for batch in cut(place).micro_batches)


def test_evaluation_asks_every_turn_of_text_that_no_other_has_altered(data: Data) -> None:
    recipe = mixed()
    model = Model.build(recipe, data.tokenizer.size)
    found, alone = (held_out(r, 0, data, 512) for r in (recipe, Recipe.load("modern", *CHANGES)))
    figures, expected = (h.figures(model, model.embedding.device) for h in (found, alone))
    assert figures["masked_loss"] == expected["masked_loss"]
    causal = [batch for batch in found.batches if "causal" in batch.questions]
    assert causal
    assert not any((batch.pieces == data.tokenizer.specials.mask).any() for batch in causal)


def test_a_run_reports_both(data: Data, tmp_path: Path) -> None:
    result = pretrain(mixed("steps=20"), data, tmp_path / "out")
    assert {"masked_loss", "causal_loss", "bits_per_byte"} <= set(result.figures)
    lines = [line for line in read_metrics(tmp_path / "out" / "metrics.jsonl") if "loss" in line]
    assert all({"masked_loss", "causal_loss"} <= set(line) for line in lines)


def test_arithmetic_counts_each_question_by_its_share() -> None:
    masked, causal = (
        arithmetic(mixed(f"objectives.{other}=null")).vocabulary for other in ("causal", "masked")
    )
    assert arithmetic(mixed()).vocabulary == pytest.approx(0.75 * masked + 0.25 * causal)
