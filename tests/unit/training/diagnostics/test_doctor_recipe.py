"""The doctor detects faulty settings of a recipe."""

import pytest

from bertwright.recipes import Recipe
from bertwright.recipes.loading import recipe_names
from bertwright.training.diagnostics.doctor import Diagnostic
from bertwright.training.diagnostics.doctor.optimiser_checks import warmup_shape
from bertwright.training.diagnostics.doctor.recipe_checks import check_recipe
from full_suite import full_except
from small_recipe import small

SOUND = ("batch_tokens=1024", "steps=300", "optimiser.learning_rate=1e-2")


def by_check(recipe: Recipe) -> dict[str, Diagnostic]:
    return {f.check.removeprefix("recipe."): f for f in check_recipe(recipe)}


EXPECTED_WARNINGS = {
    # Its learning rate is for continuing from RoBERTa.
    "longformer": ["recipe.learning-rate"],
    # Published to continue from a trained model.
    "simcse": ["recipe.warmup", "recipe.learning-rate"],
    "tsdae": ["recipe.warmup"],
    # Published without a warmup.
    "transformer-xl-enwik8": ["recipe.warmup"],
    "transformer-xl-wikitext": ["recipe.warmup"],
    "xlm-translation": ["recipe.warmup"],
    "xlm-translation_causal": ["recipe.warmup"],
}


LARGEST = {name.rpartition("-")[0]: name for name in recipe_names()}


@pytest.mark.parametrize("name", full_except(recipe_names(), LARGEST.values()))
def test_published_recipes_get_no_warning(name: str) -> None:
    warned = [f for f in check_recipe(Recipe.load(name)) if f.severity not in ("ok", "note")]
    expected = EXPECTED_WARNINGS.get(name, EXPECTED_WARNINGS.get(name.rpartition("-")[0], []))
    assert [f.check for f in warned] == expected


@pytest.mark.parametrize(
    ("system", "changes", "check", "severity", "message"),
    [
        ("bert", ["schedule=1"], "warmup", "warning", "post-norm"),
        ("modern", ["schedule=1"], "warmup", "note", "pre-norm"),
        (
            "bert",
            ["optimiser.learning_rate=3e-3"],
            "learning-rate",
            "warning",
            "post-norm of 2 layers",
        ),
        ("modern", ["optimiser.learning_rate=10"], "learning-rate", "warning", "reaches 10"),
        (
            "modern",
            ["optimiser.learning_rate=1e-5"],
            "learning-rate",
            "warning",
            "reaches only 1e-05",
        ),
        (
            "modern",
            ["optimiser={kind: muon, matrix_learning_rate: 1}"],
            "matrix-learning-rate",
            "warning",
            "Muon",
        ),
        ("modern", ["batch_tokens=64"], "batch", "warning", "64 tokens and 10 targets"),
        ("modern", ["batch_tokens=16"], "batch", "warning", "less than one sequence of 32"),
        ("modern", ["optimiser.beta_2=0.999"], "beta-2", "warning", "1,000 of 300 steps"),
        ("bert", ["schedule=1"], "bias-correction", "warning", "3.2 times"),
        ("modern", ["optimiser.weight_decay=100"], "weight-decay", "warning", "shrinks"),
        ("modern", ["optimiser={kind: adam, weight_decay: 0.01}"], "weight-decay", "note", "L2"),
        ("bert", ["text.tokenizer.vocab_size=30522"], "embedding-table", "note", "30,522 tokens"),
        (
            "bert",
            ["encoder.positions.size=512"],
            "positions",
            "note",
            "the longest sequence has 128",
        ),
        ("bert", [], "initialisation", "note", "deviation of 0.02"),
        ("modern", ["objectives.masked.selection.masking_rate=0.9"], "masking", "warning", "90%"),
        (
            "modern",
            ["objectives.masked.selection.masking_rate=0.4"],
            "evaluation-masking-rate",
            "note",
            "40%",
        ),
        ("modern", ["objectives.masked.shift=1"], "shift", "note", "one position before"),
    ],
)
def test_a_faulty_setting_is_reported(
    system: str, changes: list[str], check: str, severity: str, message: str
) -> None:
    if check == "positions":
        changes = [*changes, "phases=[{length: 128}]"]
    diagnostic = by_check(small(system, *SOUND, *changes))[check]
    assert diagnostic.severity == severity
    assert message in diagnostic.message
    assert diagnostic.advice


def test_following_the_advice_resolves_the_warnings() -> None:
    faults = [
        "batch_tokens=64",
        "optimiser.learning_rate=10",
        "optimiser.beta_2=0.999",
        "schedule=1",
    ]
    recipe = small("modern", *SOUND, *faults)
    changes = [
        word.rstrip(",")
        for diagnostic in by_check(recipe).values()
        if diagnostic.severity == "warning"
        for word in diagnostic.advice.split()
        if "=" in word
    ]
    assert len(changes) == 4
    corrected = by_check(small("modern", *SOUND, *faults, *changes))
    assert {f.severity for f in corrected.values()} <= {"ok", "note"}


def test_the_warmup_is_counted_in_steps() -> None:
    assert (
        warmup_shape(
            small("modern", "steps=1000", "schedule={kind: warmup, warmup: 0.1}")
        ).num_steps
        == 95
    )
    assert warmup_shape(small("modern", "schedule=2")).is_absent
    assert warmup_shape(small("modern", "schedule=2")).highest == 2


def test_every_check_has_metrics() -> None:
    assert all(f.metrics for f in check_recipe(small()) if f.check != "recipe.shift")
