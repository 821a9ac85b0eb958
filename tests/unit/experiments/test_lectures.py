"""Lines of the page of the lectures: their references, and the results that they show."""

import json
from pathlib import Path

import pytest

from bertwright.core.errors import UserError
from bertwright.recipes import Recipe
from bertwright.recipes.loading import system_names
from bertwright.studies.report import RESULT_FILE, write_report
from bertwright.studies.study import Study
from experiments.lectures.lines import LectureLine
from experiments.lectures.page import write_lectures
from experiments.lectures.recipe_settings import recipes_with_objective, recipes_with_setting
from experiments.lectures.references import check_references, show_references
from experiments.lectures.results import StoredResults


@pytest.mark.parametrize(
    ("kind", "name", "message"),
    [
        ("recipe", "brt", "there is no 'brt': did you mean 'bert'"),
        ("objective", "maskd", "there is no 'maskd': did you mean 'masked'"),
        ("study", "droput", "did you mean 'dropout'"),
        ("analysis", "B2", "there is no 'B2'"),
        ("check", "C99", "there is no 'C99'"),
        ("method", "pkd", "there is no 'pkd'"),
        ("distillation", "distil", "there is no 'distil'"),
        ("setting", "optimiser.kind=adan", "has no kind 'adan'"),
        ("setting", "encoder.dept.layers=2", "has no key 'dept': did you mean 'depth'"),
        ("command", "bertwright fintune MODEL", "did you mean 'finetune'"),
        ("command", "bertwright compress squeeze MODEL", "there is no 'squeeze'"),
        ("command", "bertwright embed MODEL TEXTS --pool mean", "--pool"),
        ("command", "bertwright embed", "needs model"),
        ("command", "bertwright finetune MODEL adaptation=frzen", "has no kind 'frzen'"),
        ("command", "bertwright finetune MODEL output_type.strid=1", "did you mean 'stride'"),
        ("command", "rm -r MODEL", "is no command of bertwright"),
        ("code", "bertwright.training.loop.trane", "there is no bertwright.training.loop.trane"),
        ("report", "speed bench nothing", "there is no section 'bench nothing'"),
        ("report", "nothing bench memory", "there is no section 'bench memory'"),
    ],
)
def test_wrong_references_are_errors(kind: str, name: str, message: str) -> None:
    line = LectureLine.model_validate({"what": "a trick", kind: [name]})
    with pytest.raises(UserError) as error:
        check_references([line])
    assert str(error.value).startswith(f"a trick: {kind}: ")
    assert message in str(error.value)


@pytest.mark.parametrize("fields", [{}, {"recipe": ["bert"], "out_of_scope": "images"}])
def test_a_line_has_either_references_or_a_reason(fields: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="either references or a reason"):
        LectureLine.model_validate({"what": "a trick", **fields})


def test_lectures_of_a_line_are_those_of_its_systems_unless_stated() -> None:
    line = LectureLine(what="masks", id="A8 B4", recipe=("bert",))
    assert line.all_lectures == ["S2", "S3"]
    assert line.model_copy(update={"lectures": "S1"}).all_lectures == ["S1"]
    assert line.model_copy(update={"id": "B4"}).all_lectures == []
    with pytest.raises(ValueError, match="there are no lectures S9"):
        LectureLine(what="masks", lectures="S9", recipe=("bert",))


@pytest.mark.parametrize("setting", ["optimiser.kind=lamb", "encoder.visibility.kind=causal"])
def test_a_recipe_has_a_setting_that_changes_nothing(setting: str) -> None:
    unchanged = []
    for name in system_names():
        recipe = Recipe.load(f"{name}-base")
        try:
            if Recipe.load(f"{name}-base", setting) == recipe:
                unchanged.append(name)
        except UserError:
            continue
    assert recipes_with_setting(setting) == unchanged
    assert unchanged


def test_recipes_with_an_objective_train_on_it() -> None:
    for kind in ("masked", "denoising", "ponder"):
        trained = [
            name
            for name in system_names()
            if kind in {o.kind_name() for o in Recipe.load(f"{name}-base").objectives.values()}
        ]
        assert recipes_with_objective(kind) == trained


def test_references_are_links() -> None:
    line = LectureLine(
        what="masks", recipe=("bert",), analysis=("change",), setting=("output.smoothing=0.1",)
    )
    assert show_references(line) == (
        "[`bert`](../reference/recipes.md), `output.smoothing=0.1` (`transformer`), "
        "analysis [`change`](../how-to/analyse.md)"
    )
    reason = LectureLine(what="images", out_of_scope="it reads images")
    assert show_references(reason) == "out of scope: it reads images"


def test_verdicts_are_those_of_the_stored_measurements(tmp_path: Path) -> None:
    line = LectureLine(what="dropout", study=("dropout",), check=("C1",), analysis=("change",))
    missing = "`dropout` not run; `change` not measured; C1 not run"
    assert StoredResults(tmp_path).text(line) == missing
    study = Study.load("dropout")
    losses = {"with": [2.0, 2.1, 2.2], "without": [1.0, 1.1, 1.2]}
    results = {
        arm: {seed: {"held-out.masked_loss": loss} for seed, loss in enumerate(values)}
        for arm, values in losses.items()
    }
    write_report(study, results, tmp_path / "studies" / "dropout")
    assert StoredResults(tmp_path).text(line).startswith("`dropout` **seen**; ")
    file = tmp_path / "studies" / "dropout" / RESULT_FILE
    stored = json.loads(file.read_text())
    arms = {"with": stored["arms"]["without"], "without": stored["arms"]["with"]}
    file.write_text(json.dumps({**stored, "arms": arms}))
    assert "`dropout` **opposite**; " in StoredResults(tmp_path).text(line), "not the stored label"
    earlier = {**stored["study"], "tokenizer": {**stored["study"]["tokenizer"], "vocab_size": 999}}
    file.write_text(json.dumps({**stored, "study": earlier}))
    text = StoredResults(tmp_path).text(line)
    assert text.startswith("`dropout` **seen**, by an earlier design; ")
    assert StoredResults(tmp_path).claim_labels([line, line])["studies"] == {"seen": 1}


def test_counts_of_a_recipe_are_those_of_its_file() -> None:
    line = LectureLine(what="systems", recipe=("bert", "stacking"))
    text = StoredResults(Path("nowhere")).text(line)
    assert text == (
        "`bert` 110,106,428 parameters (base), 6 exact counts; `stacking` without a published count"
    )


def test_folder_that_does_not_exist_raises(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is not a folder"):
        write_lectures(tmp_path / "results", tmp_path / "lectures.md")
    assert not (tmp_path / "lectures.md").exists()
