"""Artefacts of one task, side by side."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from bertwright.bench.artefacts import comparing
from bertwright.bench.artefacts.answering import rows_of
from bertwright.bench.artefacts.comparing import Artefact, compare, ratio_interval
from bertwright.bench.artefacts.picture import draw, front
from bertwright.cli.application import app
from bertwright.errors import UserError
from bertwright.model import Model
from bertwright.model.text_model import TextModel
from bertwright.tasks.catalogue import table_task, tagging_task
from bertwright.tasks.finetuning import finetune
from bertwright.tasks.formats.tables import Columns
from bertwright.text.tokenizers import WordPieceChoice
from bertwright.text.vocabularies import train_tokenizer
from recipes_at_toy_size import toy
from small_tasks import ENGLISH, classes, tagged

QUICK = {"epochs": 1, "compile": False}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two models of one task, one of another, one of other labels, and one of none."""
    folder = tmp_path_factory.mktemp("artefacts")
    tokenizer = train_tokenizer([ENGLISH], WordPieceChoice(size=100))
    model = TextModel(Model.build(toy("bert"), tokenizer.size), tokenizer)
    model.save(folder / "none")
    colours = table_task("colours", Columns())
    for name in ("large", "small"):
        finetune(model, colours, train=classes(), dev=classes(), out=folder / name, **QUICK)
    words = tagging_task("words")
    finetune(model, words, train=tagged(), dev=tagged(), out=folder / "words", **QUICK)
    shutil.copytree(folder / "large", folder / "ages")
    told = (folder / "ages" / "task.json").read_text().replace('"old"', '"ancient"')
    (folder / "ages" / "task.json").write_text(told)
    rows = "".join(f"{e.first}\t{e.label}\n" for e in classes())
    (folder / "dev.tsv").write_text(f"text\tlabel\n{rows}")
    return folder


def test_two_copies_are_as_good_as_large_and_as_fast(folders: Path, tmp_path: Path) -> None:
    large, small = Artefact.of(f"{folders / 'large'}@float32"), Artefact.of(f"{folders / 'small'}")
    said: list[str] = []
    lines = compare([large, small], folders / "dev.tsv", 3, 1, said.append, [(1, 128, 2)])
    assert [line["artefact"] for line in lines] == ["large, float32", "small"]
    assert lines[0]["bytes"] == lines[1]["bytes"] == large.bytes
    assert lines[0]["lost"] == 0
    assert lines[0]["faster_1x128"] == 1
    low, high = lines[1]["interval_1x128"]
    assert low <= lines[1]["faster_1x128"] <= high
    draw(lines, tmp_path / "pareto.png")
    assert (tmp_path / "pareto.png").stat().st_size > 1000


def test_rows_are_of_the_length_that_is_said(folders: Path) -> None:
    from bertwright.interop.loading import load

    for name in ("large", "words"):
        model = load(folders / name)
        rows = rows_of(model, 3, 16)
        assert [len(row.pieces) for row in rows] == [16] * 3
        assert len(model.outputs(rows)) == 3


@given(st.lists(st.tuples(st.floats(0.1, 9), st.floats(0, 1)), min_size=1, max_size=12))
def test_no_point_beats_one_of_the_front(points: list[tuple[float, float]]) -> None:
    best = front(points)
    assert set(best) <= set(points)
    for cost, score in best:
        assert not any((c <= cost and s > score) or (c < cost and s >= score) for c, s in points)
    for cost, score in points:
        assert any(c <= cost and s >= score for c, s in best)


def test_the_interval_of_one_against_itself_is_1() -> None:
    times = np.random.default_rng(0).lognormal(size=20)
    low, high = ratio_interval(times, times)
    assert low == high == 1
    low, high = ratio_interval(times, times / 2)
    assert low == pytest.approx(2)


def test_what_is_lost_is_told_in_points(folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scores = iter([0.9, 0.65])
    said = {"task": "colours", "metric": "accuracy"}
    monkeypatch.setattr(comparing, "evaluate", lambda *_: {**said, "score": next(scores)})
    sides = [Artefact(folders / name) for name in ("large", "small")]
    lines = compare(sides, folders / "dev.tsv", 3, 1, lambda _: None, shapes=[])
    assert [line["lost"] for line in lines] == pytest.approx([0, 25])


def test_folders_of_one_name_are_told_apart(
    folders: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(folders / "large", tmp_path / "large")
    said = {"task": "colours", "metric": "accuracy", "score": 0.5}
    monkeypatch.setattr(comparing, "evaluate", lambda *_: said)
    paths = [f"{folders}/large", f"{folders}/large@float32", f"{tmp_path}/large"]
    sides = [Artefact.of(path) for path in paths]
    lines = compare(sides, folders / "dev.tsv", 3, 1, lambda _: None, shapes=[])
    names = [f"{folders}/large", f"{folders}/large, float32", f"{tmp_path}/large"]
    assert [line["artefact"] for line in lines] == names
    with pytest.raises(UserError, match="large is named twice: leave one out"):
        compare([sides[0], sides[0]], folders / "dev.tsv", 3, 1, print)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("none", "is not fine-tuned"),
        ("words", "answers task words with .* by .*, .* task colours with new, old by accuracy"),
        ("ages", "with new, ancient by accuracy, .* with new, old"),
        ("elsewhere", "elsewhere"),
    ],
)
def test_nothing_is_scored_before_all_can_be(
    folders: Path, wrong: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        pytest.fail("it was scored")

    monkeypatch.setattr(comparing, "evaluate", refuse)
    sides = [Artefact(folders / name) for name in ("large", wrong)]
    with pytest.raises(UserError, match=message):
        compare(sides, folders / "dev.tsv", 3, 1, print)


@pytest.mark.parametrize(
    ("option", "said"),
    [
        (("--picture", "/proc/x.png"), "x.png cannot be made"),
        (("--picture", "{folder}"), "is a folder: name a file"),
        (("--document", "/proc/x.md"), "x.md cannot be made"),
        (("--document", "{folder}/cut.md"), "the section 'pareto colours' has no end"),
    ],
)
def test_what_cannot_be_written_is_said_first(
    folders: Path, option: tuple[str, str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        pytest.fail("something was measured")

    (folders / "cut.md").write_text("<!-- pareto colours: written by command -->\n")
    monkeypatch.setattr(comparing, "compare", refuse)
    words = ["pareto", str(folders / "large"), "--data", str(folders / "dev.tsv")]
    with pytest.raises(UserError, match=said):
        CliRunner().invoke(
            app, [*words, *(each.format(folder=folders) for each in option)], catch_exceptions=False
        )


def test_what_cannot_be_compared_is_said(folders: Path) -> None:
    with pytest.raises(UserError, match="behind the @ of a folder stands float32, bf16, int8"):
        Artefact.of("large@fp16")
    with pytest.raises(UserError, match="is not fine-tuned"):
        compare([Artefact(folders / "none")], folders / "dev.tsv", 3, 1, print)
