"""Faults of a recipe that the doctor names without running it."""

import pytest
from small_recipe import small

from bertwright.recipes import Recipe
from bertwright.recipes.loading import recipe_names
from bertwright.training.doctor import Finding
from bertwright.training.doctor.optimiser_checks import rise
from bertwright.training.doctor.recipe_checks import check_recipe

SOUND = ("batch_tokens=1024", "steps=300", "optimiser.rate=1e-2")


def by_check(recipe: Recipe) -> dict[str, Finding]:
    return {f.check.removeprefix("recipe."): f for f in check_recipe(recipe)}


WARNED = {
    # A rate for going on from RoBERTa is too low for a beginning.
    "longformer": ["recipe.rate"],
    # Published without a warmup.
    "transformer-xl-enwik8": ["recipe.warmup"],
    "transformer-xl-wikitext": ["recipe.warmup"],
}


@pytest.mark.parametrize("name", recipe_names())
def test_published_recipes_get_no_warning(name: str) -> None:
    warned = [f for f in check_recipe(Recipe.load(name)) if f.verdict not in ("ok", "note")]
    expected = WARNED.get(name, WARNED.get(name.rpartition("-")[0], []))
    assert [f.check for f in warned] == expected


@pytest.mark.parametrize(
    ("system", "changes", "check", "verdict", "said"),
    [
        ("bert", ["schedule=1"], "warmup", "warning", "post-norm"),
        ("modern", ["schedule=1"], "warmup", "note", "pre-norm"),
        ("bert", ["optimiser.rate=3e-3"], "rate", "warning", "post-norm of 2 layers"),
        ("modern", ["optimiser.rate=10"], "rate", "warning", "reaches 10"),
        ("modern", ["optimiser.rate=1e-5"], "rate", "warning", "reaches only 1e-05"),
        ("modern", ["optimiser={kind: muon, matrix_rate: 1}"], "matrix-rate", "warning", "Muon"),
        ("modern", ["batch_tokens=64"], "batch", "warning", "64 tokens and 10 pieces"),
        ("modern", ["batch_tokens=16"], "batch", "warning", "less than one row of 32"),
        ("modern", ["optimiser.beta_2=0.999"], "beta-2", "warning", "1,000 of 300 steps"),
        ("bert", ["schedule=1"], "bias-correction", "warning", "3.2 times"),
        ("modern", ["optimiser.decay=100"], "decay", "warning", "shrinks"),
        ("modern", ["optimiser={kind: adam, decay: 0.01}"], "decay", "note", "L2"),
        ("bert", ["text.tokenizer.size=30522"], "table", "note", "30,522 pieces"),
        ("bert", ["encoder.positions.size=512"], "positions", "note", "the longest row has 128"),
        ("bert", [], "initialisation", "note", "deviation of 0.02"),
        ("modern", ["objectives.masked.selection.rate=0.9"], "masks", "warning", "90%"),
        ("modern", ["objectives.masked.selection.rate=0.4"], "evaluated-rate", "note", "40%"),
        ("modern", ["objectives.masked.shift=1"], "shift", "note", "one place before"),
    ],
)
def test_a_fault_is_named(
    system: str, changes: list[str], check: str, verdict: str, said: str
) -> None:
    if check == "positions":
        changes = [*changes, "phases=[{length: 128}]"]
    finding = by_check(small(system, *SOUND, *changes))[check]
    assert finding.verdict == verdict
    assert said in finding.seen
    assert finding.advice


def test_a_remedy_remedies() -> None:
    """What is advised, done, is no longer complained of."""
    bad = ["batch_tokens=64", "optimiser.rate=10", "optimiser.beta_2=0.999", "schedule=1"]
    recipe = small("modern", *SOUND, *bad)
    changes = [
        word.rstrip(",")
        for finding in by_check(recipe).values()
        if finding.verdict == "warning"
        for word in finding.advice.split()
        if "=" in word
    ]
    assert len(changes) == 4
    mended = by_check(small("modern", *SOUND, *bad, *changes))
    assert {f.verdict for f in mended.values()} <= {"ok", "note"}


def test_the_rise_of_a_rate_is_counted_in_steps() -> None:
    assert rise(small("modern", "steps=1000", "schedule={kind: warmup, warmup: 0.1}")).steps == 95
    assert rise(small("modern", "schedule=2")).absent
    assert rise(small("modern", "schedule=2")).highest == 2


def test_every_number_is_given() -> None:
    assert all(f.figures for f in check_recipe(small()) if f.check != "recipe.shift")
