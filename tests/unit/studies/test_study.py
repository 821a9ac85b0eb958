"""Study files, and equal costs."""

from pathlib import Path

import pytest

from bertwright.core.errors import UserError
from bertwright.models.costs import flops_per_token
from bertwright.studies.body import body_report
from bertwright.studies.corpora.stories import HOURS, World, generate_stories
from bertwright.studies.run import plan_runs, prepare_corpus, run_study
from bertwright.studies.study import EqualCost, Study, list_studies, load_all_studies, to_yaml
from checkout import EXAMPLES
from small_study import small_study


@pytest.mark.parametrize("name", list_studies())
def test_studies_of_the_package_are_valid(name: str) -> None:
    study = Study.load(name)
    assert study.expected
    assert study.source
    assert study.system
    assert study.negligible is not None
    assert body_report(study)["arms"].keys() == study.arms.keys()
    for arm in study.arms:
        recipe = study.recipe(arm, 1, study.tokenizer.kind)  # type: ignore[attr-defined]
        assert recipe.seed == 1
        assert (study.equal.num_steps(recipe, study.tokenizer.vocab_size) is None) == bool(
            study.equal.time
        )


@pytest.mark.parametrize(
    "path", [path for path in EXAMPLES.glob("*.yaml") if "\narms:" in path.read_text()], ids=str
)
def test_studies_of_the_documents_are_valid(path: Path) -> None:
    study = Study.load(path)
    assert body_report(study)["arms"].keys() == study.arms.keys()


def test_studies_are_ordered_by_system() -> None:
    systems = [study.system for study in load_all_studies()]
    assert systems == sorted(systems, key=lambda system: int(system.split(", ")[0][1:]))


def test_yaml_round_trip(tmp_path: Path) -> None:
    study = Study.load("parameter-sharing")
    (tmp_path / "sharing.yaml").write_text(to_yaml(study))
    assert Study.load(tmp_path / "sharing.yaml") == study


def test_steps_at_equal_cost() -> None:
    study = small_study(arms={"other": {"recipe": "bert-tiny", "changes": {"batch_tokens": 512}}})
    recipes = [study.recipe(arm, 0) for arm in study.arms]
    assert [EqualCost(tokens=51_200).num_steps(recipe, 400) for recipe in recipes] == [200, 100]
    steps = [EqualCost(flops=1e12).num_steps(recipe, 400) or 0 for recipe in recipes]
    costs = [
        number * recipe.batch_tokens.at(0.0) * flops_per_token(recipe, 0, 400).training
        for number, recipe in zip(steps, recipes, strict=True)
    ]
    assert costs == pytest.approx([1e12, 1e12], rel=0.01)
    assert EqualCost(time="2m").num_steps(recipes[0], 400) is None


def test_fractions_of_phases_need_not_sum_to_one() -> None:
    phases = [{"fraction": 3}, {"fraction": 5, "batch": 4}, {"fraction": 2}]
    recipe = small_study(changes={"phases": phases}).recipe("one", 0)
    assert EqualCost(tokens=64_000).num_steps(recipe, 400) == 100
    cost = EqualCost(flops=1e12).num_steps(recipe, 400)
    assert cost == pytest.approx(1e12 / (640 * flops_per_token(recipe, 0, 400).training), abs=1)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("name: ../other", "name: '../other' cannot be the name of a folder"),
        ("name: ..", "name: '..' cannot be the name of a folder"),
        ("arms: {a: {recipe: bert-tiny}}", "arms: a comparison needs at least two"),
        ("equal: {time: soon}", "equal: time soon: write 90s, 20m or 1.5h"),
        ("measures: {h: {kind: held-out, arms: [c]}}", r"measures.h.arms: no arm 'c'"),
        ("expected: [{measure: held-out, arm: a, below: b}]", "held-out names no metric"),
        ("expected: [{measure: held-out.x, arm: a, below: a}]", "is compared with itself"),
        ("expected: [{measure: held-out.x, arm: a, below: .nan}]", "expected.0.below"),
        ("equal: {steps: 3, tokens: 5}", "needs one of steps, tokens, flops, time"),
        ("expected: [{measure: held-out.x, arm: a, below: c}]", "no arm 'c'"),
        ("expected: [{measure: heldout.x, arm: a, below: b}]", "did you mean 'held-out'"),
        (
            "expected: [{measure: held-out.x, arm: a, below: b, other_measure: hold.y}]",
            "no measure 'hold'",
        ),
        ("expected: [{measure: held-out.x, arm: a}]", "needs either below or above"),
        ("shown: [heldout.x]", "shown: no measure 'heldout'"),
        ("changes: {seed: 3}", "changes: the study sets seed, since every repetition has another"),
        ("changes: {steps: 3}", "changes: the study sets steps"),
        (
            "arms: {a: {recipe: bert-tiny, changes: {seed: 3}}, b: {recipe: gpt-tiny}}",
            "arms.a.changes: the study sets seed",
        ),
        (
            "measures: {m: {kind: cost, arms: [a]}}\nexpected: [{measure: m.x, arm: a, below: b}]",
            "expected: m.x of b: measures.m.arms leaves b out",
        ),
        (
            "measures: {m: {kind: cost}, n: {kind: cost, arms: [a]}}\n"
            "expected: [{measure: m.x, arm: a, below: b, other_measure: n.y}]",
            "expected: n.y of b: measures.n.arms leaves b out",
        ),
        (
            "expected: [{measure: held-out.x, arm: a, above: 0.5, other_measure: held-out.y}]",
            "other_measure is that of another arm, not of a number",
        ),
        ("bounds: {m.x: [1.0, 0.5]}", "bounds: m.x: the score of guessing, 1, must be below"),
        (
            "measures: {m: {kind: fine-tuning, task: names, examples: -5}}",
            "measures.m.examples: must be 1 or more, not -5",
        ),
        (
            "measures: {m: {kind: fine-tuning, task: names, dev_examples: -5}}",
            "measures.m.dev_examples: must be 1 or more, not -5",
        ),
        (
            "measures: {m: {kind: linear-probe, task: names, examples: 0}}",
            "measures.m.examples: must be 1 or more, not 0",
        ),
        ("meassures: {}", "did you mean 'measures'"),
        ("corpus: {kind: gramar}", "did you mean 'grammar'"),
    ],
)
def test_invalid_files_raise(tmp_path: Path, setting: str, message: str) -> None:
    settings = {
        "question": "question: why?",
        "arms": "arms: {a: {recipe: bert-tiny}, b: {recipe: gpt-tiny}}",
        "equal": "equal: {steps: 1}",
    }
    settings[setting.split(":")[0]] = setting
    file = tmp_path / "study.yaml"
    file.write_text("\n".join(settings.values()))
    with pytest.raises(UserError, match=message) as error:
        Study.load(file)
    assert "study.yaml" in str(error.value)


def test_study_that_extends_itself_raises(tmp_path: Path) -> None:
    file = tmp_path / "study.yaml"
    file.write_text(f"extends: {file}\n")
    with pytest.raises(UserError, match="which extends it in turn"):
        Study.load(file)
    file.write_text("extends: [bench]\n")
    with pytest.raises(UserError, match=r"extends is \['bench'\]: name a study or a YAML file"):
        Study.load(file)


def test_unknown_study_raises() -> None:
    with pytest.raises(UserError, match="did you mean 'parameter-sharing'"):
        Study.load("parameter-shering")


def test_error_names_the_arm() -> None:
    study = small_study(arms={"other": {"changes": {"optimiser": {"learning_rte": 1}}}})
    message = r"study small: arms.other: .*'learning_rte': did you mean 'learning_rate'"
    with pytest.raises(UserError, match=message):
        study.recipe("other", 0)


def test_arms_may_have_different_text_and_cost(tmp_path: Path) -> None:
    study = small_study(
        arms={"other": {"corpus": {"documents": 200}, "tokenizer": {"vocab_size": 300}, "cost": 2}}
    )
    (corpus, tokenizer), (other_corpus, other_tokenizer) = map(study.text_of, ("one", "other"))
    assert (corpus.identity()["documents"], other_corpus.identity()["documents"]) == (100, 200)
    assert (tokenizer.vocab_size, other_tokenizer.vocab_size) == (400, 300)
    prepared = {arm: prepare_corpus(*study.text_of(arm), tmp_path) for arm in study.arms}
    runs = plan_runs(study, prepared, tmp_path, num_seeds=1)
    assert [runs[arm, 0].recipe.steps for arm in ("one", "other")] == [3, 6]
    assert runs["one", 0].prepared != runs["other", 0].prepared
    with pytest.raises(UserError, match=r"arms\.other has a text of its own: leave out --data"):
        run_study(study, tmp_path, data=prepared["one"].data)


def test_invalid_text_of_an_arm_raises() -> None:
    study = small_study(arms={"other": {"corpus": {"document": 200}}})
    with pytest.raises(UserError, match=r"arms\.other: has no key 'document': did you mean"):
        study.text_of("other")


def test_stories_without_hours_tell_the_hour_by_their_verbs() -> None:
    world = World(0)
    stories = list(generate_stories(world, 0, "text", 20, with_hours=False))
    for story in stories:
        for hour, words in story.sentences:
            assert words[0] == "the"
            verb = str(words[world.verb_index(words)])
            assert verb in world.verbs_of(hour) or verb.removesuffix("s") in world.verbs_of(hour)
    hours = [set(world.verbs_of(hour)) for hour in range(len(HOURS))]
    assert set.union(*hours) == set(world.verbs)
    assert sum(map(len, hours)) == len(world.verbs)
