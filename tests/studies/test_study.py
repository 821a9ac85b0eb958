"""What a study file may say, and what equal cost means."""

from pathlib import Path

import pytest
from small_study import small_study

from bertwright.errors import UserError
from bertwright.studies.study import Equal, Study, all_studies, as_yaml, study_names
from bertwright.training.compilation.payoff import operations_per_token


@pytest.mark.parametrize("name", study_names())
def test_every_study_of_the_package_has_recipes_that_can_be(name: str) -> None:
    study = Study.load(name)
    assert study.expected, "a claim says what will be seen"
    assert study.source
    assert study.system
    for arm in study.arms:
        recipe = study.recipe(arm, 1, study.tokenizer.kind)  # type: ignore[attr-defined]
        assert recipe.seed == 1
        assert (study.equal.steps_of(recipe, study.tokenizer.size) is None) == bool(
            study.equal.time
        )


def test_studies_come_in_the_order_of_their_systems() -> None:
    systems = [study.system for study in all_studies()]
    assert systems == sorted(systems, key=lambda system: int(system.split(", ")[0][1:]))


def test_what_is_shown_is_read_again(tmp_path: Path) -> None:
    study = Study.load("sharing")
    (tmp_path / "sharing.yaml").write_text(as_yaml(study))
    assert Study.load(tmp_path / "sharing.yaml") == study


def test_equal_tokens_and_operations_are_equal() -> None:
    study = small_study(arms={"other": {"recipe": "bert-tiny", "changes": {"batch_tokens": 512}}})
    recipes = [study.recipe(arm, 0) for arm in study.arms]
    one, other = (Equal(tokens=51_200).steps_of(recipe, 400) for recipe in recipes)
    assert (one, other) == (200, 100)
    steps = [Equal(operations=1e12).steps_of(recipe, 400) or 0 for recipe in recipes]
    costs = [
        number * recipe.batch_tokens.at(0.0) * operations_per_token(recipe, 400)[0]
        for number, recipe in zip(steps, recipes, strict=True)
    ]
    assert costs == pytest.approx([1e12, 1e12], rel=0.01)
    assert Equal(time="2m").steps_of(recipes[0], 400) is None


def test_shares_of_phases_need_not_add_up_to_one() -> None:
    phases = [{"share": 3}, {"share": 5, "batch": 4}, {"share": 2}]
    recipe = small_study(changes={"phases": phases}).recipe("one", 0)
    assert Equal(tokens=64_000).steps_of(recipe, 400) == 100
    cost = Equal(operations=1e12).steps_of(recipe, 400)
    assert cost == pytest.approx(1e12 / (640 * operations_per_token(recipe, 400)[0]), abs=1)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("name: ../other", "name: '../other' cannot be the name of a folder"),
        ("name: ..", "name: '..' cannot be the name of a folder"),
        ("arms: {a: {recipe: bert-tiny}}", "arms: a comparison needs two at least"),
        ("equal: {time: soon}", "equal: time soon: write 90s, 20m or 1.5h"),
        ("measures: {h: {kind: held-out, arms: [c]}}", r"measures.h.arms: no arm 'c'"),
        ("expected: [{measure: held-out, arm: a, below: b}]", "held-out names no figure"),
        ("expected: [{measure: held-out.x, arm: a, below: a}]", "is compared with itself"),
        ("expected: [{measure: held-out.x, arm: a, below: .nan}]", "expected.0.below"),
        ("equal: {steps: 3, tokens: 5}", "needs one of steps, tokens, operations, time"),
        ("expected: [{measure: held-out.x, arm: a, below: c}]", "no arm 'c'"),
        ("expected: [{measure: heldout.x, arm: a, below: b}]", "did you mean 'held-out'"),
        ("expected: [{measure: held-out.x, arm: a, below: b, its: hold.y}]", "no measure 'hold'"),
        ("expected: [{measure: held-out.x, arm: a}]", "needs either below or above"),
        ("shown: [heldout.x]", "shown: no measure 'heldout'"),
        ("meassures: {}", "did you mean 'measures'"),
        ("corpus: {kind: gramar}", "did you mean 'grammar'"),
    ],
)
def test_a_file_that_cannot_be_is_told_where(tmp_path: Path, wrong: str, message: str) -> None:
    right = {
        "question": "question: why?",
        "arms": "arms: {a: {recipe: bert-tiny}, b: {recipe: gpt-tiny}}",
        "equal": "equal: {steps: 1}",
    }
    right[wrong.split(":")[0]] = wrong
    file = tmp_path / "mine.yaml"
    file.write_text("\n".join(right.values()))
    with pytest.raises(UserError, match=message) as error:
        Study.load(file)
    assert "mine.yaml" in str(error.value)


def test_a_study_that_extends_itself_is_told_so(tmp_path: Path) -> None:
    file = tmp_path / "own.yaml"
    file.write_text(f"extends: {file}\n")
    with pytest.raises(UserError, match="which extends it in turn"):
        Study.load(file)


def test_a_study_that_is_not_there() -> None:
    with pytest.raises(UserError, match="did you mean 'sharing'"):
        Study.load("shering")


def test_a_mistake_in_an_arm_names_the_arm() -> None:
    study = small_study(arms={"other": {"changes": {"optimiser": {"rte": 1}}}})
    with pytest.raises(UserError, match=r"study small: arms.other: .*'rte': did you mean 'rate'"):
        study.recipe("other", 0)
