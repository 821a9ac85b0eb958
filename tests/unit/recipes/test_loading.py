"""Recipes are loaded from files and overrides, and errors are named."""

import pytest

from bertwright.core.errors import UserError
from bertwright.objectives.masked import MaskedLM
from bertwright.objectives.objective import Objective
from bertwright.recipes import Recipe
from bertwright.recipes.loading import import_plugin, merge, recipe_names, system_names


def test_mappings_merge_kinds_replace_null_removes_and_lists_are_replaced():
    parent = {"a": {"x": 1, "y": 2}, "b": {"kind": "one", "x": 1}, "c": {"d": {}}, "e": [1, 2]}
    child = {"a": {"y": 3}, "b": {"kind": "two"}, "c": {"d": None}, "e": [3]}
    assert merge(parent, child) == {"a": {"x": 1, "y": 3}, "b": {"kind": "two"}, "c": {}, "e": [3]}


@pytest.mark.parametrize("name", recipe_names())
def test_every_recipe_loads_under_its_name(name):
    assert Recipe.load(name).name == name


def test_roberta_inherits_from_bert():
    bert, roberta = Recipe.load("bert-base"), Recipe.load("roberta-base")
    assert roberta.encoder.mixer == bert.encoder.mixer
    assert "next-sentence" not in roberta.objectives
    assert roberta.encoder.positions.offset == 2


def test_sizes_override_settings():
    assert Recipe.load("roberta-base").optimiser.learning_rate == 6e-4
    assert Recipe.load("roberta-large").optimiser.learning_rate == 4e-4
    assert Recipe.load("roberta-large").optimiser.beta_2 == 0.98


def test_overrides_are_yaml():
    recipe = Recipe.load(
        "bert-mini", "steps=1e3", "optimiser.learning_rate=2e-4", "encoder.dropout=0"
    )
    assert (recipe.steps, recipe.optimiser.learning_rate, recipe.encoder.dropout) == (
        1000,
        2e-4,
        0.0,
    )


def test_settings_extend_a_choice_given_by_name():
    changes = ("optimiser=muon", "optimiser.matrix_learning_rate=5e-3")
    separate, combined = Recipe.load("bert-mini", *changes), Recipe.load("bert-mini", changes[0])
    assert separate.optimiser == combined.optimiser.model_copy(
        update={"matrix_learning_rate": 5e-3}
    )


def test_last_length_override_wins(tmp_path):
    def lengths(recipe):
        return [recipe.input_format_of(phase).length for phase in range(len(recipe.phases))]

    assert lengths(Recipe.load("bert-mini")) == [128, 512]
    assert lengths(Recipe.load("bert-mini", "assembly.length=64")) == [64, 64]
    both = {"assembly": {"length": 64}, "phases": [{"length": 32}, {}]}
    assert lengths(Recipe.load("bert-mini", both)) == [32, 64]
    later = ("assembly.length=64", "phases=[{length: 96}]")
    assert lengths(Recipe.load("bert-mini", *later)) == [96]
    (tmp_path / "mine.yaml").write_text("extends: bert-mini\nassembly: {length: 48}\n")
    assert lengths(Recipe.load(tmp_path / "mine.yaml")) == [48, 48]
    with pytest.raises(UserError, match="a length of 1000 is more than"):
        Recipe.load("bert-mini", "assembly.length=1000")


@pytest.mark.parametrize("system", system_names())
def test_common_length_keeps_batch_tokens(system):
    recipe = Recipe.load(system)
    changed = Recipe.load(system, f"assembly.length={recipe.input_format_of(0).length}")
    for before, phase in zip(recipe.phases, changed.phases, strict=True):
        assert phase.length is None
        assert phase.batch == (before.batch if before.length is None else 1.0)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (["encoder.widht=3"], "encoder: has no key 'widht': did you mean 'width'"),
        (["encoder.norm.kind=layernrm"], "did you mean 'layernorm'"),
        (["objectives={next-sentense: null}"], "to remove: did you mean 'next-sentence'"),
        (
            ["optimiser.learning_rat=3"],
            "optimiser: has no key 'learning_rat': did you mean 'learning_rate'",
        ),
        (["steps"], "'steps' is not of the form key.path=value"),
        (["steps=[}"], "the value is not YAML"),
        (["assembly.kind=packed"], "next-sentence needs pairs"),
        (["encoder.positions.size=64"], "a length of 128 is more than encoder.positions.size"),
        (["phases=[{objectives: {mask: {}}}]"], "mask is not one of the recipe's objectives"),
        (
            ["phases=[{}, {objectives: {masked: {selection: {masking_rat: 1}}}}]"],
            "phases.1.objectives.masked: selection: has no key 'masking_rat': did you mean",
        ),
        (
            ["phases=[{objectives: {masked: {kind: maskd}}}]"],
            "phases.0.objectives.masked: has no kind 'maskd': did you mean 'masked'",
        ),
        (["pooler=2.5"], "pooler: must be true or false, not 2.5"),
        (["objectives.causal={}"], "need different visibility"),
    ],
)
def test_errors_are_one_sentence(changes, sentence):
    with pytest.raises(UserError, match=r"^[^\n]*$") as raised:
        Recipe.load("bert-mini", *changes)
    assert sentence in str(raised.value)


def test_unknown_recipe_suggests_a_name():
    with pytest.raises(UserError, match="did you mean 'bert-mini'"):
        Recipe.load("brt-mini")


def test_files_extend_recipes_and_plugins_add_kinds(tmp_path, temporary_plugins):
    (tmp_path / "mine.py").write_text(
        "from typing import ClassVar, Literal\n"
        "from bertwright.modules.feed_forward import FeedForwardConfig\n"
        "class Silu(FeedForwardConfig):\n"
        "    kind: Literal['test-silu'] = 'test-silu'\n"
        "    activation: ClassVar = 'silu'\n"
    )
    recipe = tmp_path / "mine.yaml"
    recipe.write_text("extends: bert-tiny\nencoder: {feed_forward: {kind: test-silu}}\n")
    with pytest.raises(UserError, match="test-silu"):
        Recipe.load(recipe)
    import_plugin(tmp_path / "mine.py")
    loaded = Recipe.load(recipe)
    assert loaded.name == "mine"
    assert loaded.encoder.width == 128
    assert loaded.encoder.feed_forward.activation == "silu"


def test_missing_files_are_errors(tmp_path):
    with pytest.raises(UserError, match="there is no file"):
        Recipe.load(tmp_path / "none.yaml")
    with pytest.raises(UserError, match="there is no such file"):
        import_plugin(tmp_path / "none.py")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.py", "def f(:\n", "line 1: invalid syntax"),
        ("b.py", "\nraise RuntimeError('boom')\n", "line 2: boom"),
        ("c.py", "import nothing_of_that_name\n", "line 1: No module named"),
        ("d.yaml", "a: 1\n", "ends in .py"),
    ],
)
def test_invalid_plugins_are_errors(name, text, message, tmp_path):
    (tmp_path / name).write_text(text)
    with pytest.raises(UserError, match=message) as error:
        import_plugin(tmp_path / name)
    assert f"--plugin {tmp_path / name}" in str(error.value)


def test_plugins_cannot_replace_kinds(tmp_path):
    (tmp_path / "mine.py").write_text(
        "from typing import Literal\n"
        "from bertwright.objectives.masked import MaskedLM\n"
        "class Mine(MaskedLM):\n"
        "    kind: Literal['masked'] = 'masked'\n"
    )
    with pytest.raises(UserError, match="line 3: Mine has the same kind as MaskedLM: choose"):
        import_plugin(tmp_path / "mine.py")
    assert Objective.kinds()["masked"] is MaskedLM


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("extends: mine.yaml\n", "which extends it in turn"),
        ("steps: 5\nsteps: 6\n", "line 2, the key steps occurs twice"),
        ("steps: [5\n", "is not YAML: line 2"),
    ],
)
def test_invalid_files_name_the_line(text, message, tmp_path):
    (tmp_path / "mine.yaml").write_text(text)
    with pytest.raises(UserError, match=message):
        Recipe.load(tmp_path / "mine.yaml")
