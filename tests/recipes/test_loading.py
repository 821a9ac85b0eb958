"""Recipes: files and changes become one point on the axes, and mistakes are named."""

import gc
import subprocess
import sys

import pytest

from bertwright.errors import UserError
from bertwright.recipes import Recipe
from bertwright.recipes.loading import import_plugin, merged, recipe_names, systems


def test_mappings_merge_kinds_replace_null_removes_and_lists_are_replaced():
    parent = {"a": {"x": 1, "y": 2}, "b": {"kind": "one", "x": 1}, "c": {"d": {}}, "e": [1, 2]}
    child = {"a": {"y": 3}, "b": {"kind": "two"}, "c": {"d": None}, "e": [3]}
    assert merged(parent, child) == {"a": {"x": 1, "y": 3}, "b": {"kind": "two"}, "c": {}, "e": [3]}


@pytest.mark.parametrize("name", recipe_names())
def test_every_recipe_loads_and_bears_its_name(name):
    assert Recipe.load(name).name == name


def test_roberta_states_only_what_differs_from_bert():
    bert, roberta = Recipe.load("bert-base"), Recipe.load("roberta-base")
    assert roberta.encoder.mixer == bert.encoder.mixer
    assert "next-sentence" not in roberta.objectives
    assert roberta.encoder.positions.offset == 2


def test_a_size_has_what_its_system_states_for_it():
    assert Recipe.load("roberta-base").optimiser.rate == 6e-4
    assert Recipe.load("roberta-large").optimiser.rate == 4e-4
    assert Recipe.load("roberta-large").optimiser.beta_2 == 0.98


def test_changes_are_yaml_and_numbers_may_have_exponents():
    recipe = Recipe.load("bert-mini", "steps=1e3", "optimiser.rate=2e-4", "encoder.dropout=0")
    assert (recipe.steps, recipe.optimiser.rate, recipe.encoder.dropout) == (1000, 2e-4, 0.0)


def test_what_is_said_of_a_choice_stays_with_its_name():
    said = ("optimiser=muon", "optimiser.matrix_rate=5e-3")
    apart, at_once = Recipe.load("bert-mini", *said), Recipe.load("bert-mini", said[0])
    assert apart.optimiser == at_once.optimiser.model_copy(update={"matrix_rate": 5e-3})


def test_the_last_word_on_the_length_of_rows_is_heard(tmp_path):
    def lengths(recipe):
        return [recipe.assembly_of(phase).length for phase in range(len(recipe.phases))]

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


@pytest.mark.parametrize("system", systems())
def test_one_length_for_all_phases_leaves_as_many_places_in_a_step(system):
    recipe = Recipe.load(system)
    changed = Recipe.load(system, f"assembly.length={recipe.assembly_of(0).length}")
    for was, phase in zip(recipe.phases, changed.phases, strict=True):
        assert phase.length is None
        assert phase.batch == (was.batch if was.length is None else 1.0)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (["encoder.widht=3"], "encoder: has no key 'widht': did you mean 'width'"),
        (["encoder.norm.kind=layernrm"], "did you mean 'layernorm'"),
        (["optimiser.rat=3"], "optimiser: has no key 'rat': did you mean 'rate'"),
        (["steps"], "'steps' is not of the form key.path=value"),
        (["steps=[}"], "the value is not YAML"),
        (["assembly.kind=packed"], "next-sentence needs pairs"),
        (["encoder.positions.size=64"], "a length of 128 is more than encoder.positions.size"),
        (["phases=[{objectives: {mask: {}}}]"], "mask is not one of objectives"),
        (["objectives.causal={}"], "see the text differently"),
    ],
)
def test_mistakes_are_one_sentence(changes, sentence):
    with pytest.raises(UserError, match=r"^[^\n]*$") as raised:
        Recipe.load("bert-mini", *changes)
    assert sentence in str(raised.value)


def test_an_unknown_recipe_says_which_is_near():
    with pytest.raises(UserError, match="did you mean 'bert-mini'"):
        Recipe.load("brt-mini")


def test_a_file_extends_a_recipe_and_a_plugin_brings_a_kind(tmp_path):
    (tmp_path / "mine.py").write_text(
        "from typing import ClassVar, Literal\n"
        "from bertwright.encoder.feed_forward import FeedForward\n"
        "class Silu(FeedForward):\n"
        "    kind: Literal['test-silu'] = 'test-silu'\n"
        "    activation: ClassVar = 'silu'\n"
    )
    recipe = tmp_path / "mine.yaml"
    recipe.write_text("extends: bert-tiny\nencoder: {feed_forward: {kind: test-silu}}\n")
    with pytest.raises(UserError, match="test-silu"):
        Recipe.load(recipe)
    import_plugin(tmp_path / "mine.py")
    gc.collect()
    loaded = Recipe.load(recipe)
    assert loaded.name == "mine"
    assert loaded.encoder.width == 128
    assert loaded.encoder.feed_forward.activation == "silu"


def test_missing_files_are_named(tmp_path):
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
def test_a_plugin_that_cannot_be_is_named(name, text, message, tmp_path):
    (tmp_path / name).write_text(text)
    with pytest.raises(UserError, match=message) as error:
        import_plugin(tmp_path / name)
    assert f"--plugin {tmp_path / name}" in str(error.value)


def test_a_plugin_brings_no_kind_that_is_there(tmp_path):
    (tmp_path / "mine.py").write_text(
        "from typing import Literal\n"
        "from bertwright.objectives import Masked\n"
        "class Mine(Masked):\n"
        "    kind: Literal['masked'] = 'masked'\n"
    )
    # In a process of its own: a class that was refused would be known to the tests that follow.
    words = ["recipes", "show", "bert-tiny", "--plugin", str(tmp_path / "mine.py")]
    done = subprocess.run([sys.executable, "-m", "bertwright", *words], capture_output=True)
    assert done.returncode == 2
    assert b"Mine has the kind of Masked: choose another" in done.stderr
    assert done.stderr.count(b"\n") == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("extends: mine.yaml\n", "which extends it in turn"),
        ("steps: 5\nsteps: 6\n", "line 2, the key steps stands there twice"),
        ("steps: [5\n", "is not YAML: line 2"),
    ],
)
def test_a_file_that_cannot_be_read_is_told_where(text, message, tmp_path):
    (tmp_path / "mine.yaml").write_text(text)
    with pytest.raises(UserError, match=message):
        Recipe.load(tmp_path / "mine.yaml")
