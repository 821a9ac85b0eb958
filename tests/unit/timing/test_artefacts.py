"""Comparison of models of one task by score, size and latency."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertwright.core.errors import UserError
from bertwright.data.tokenization.tokenizer import WordPieceConfig
from bertwright.data.vocabulary_training import train_tokenizer
from bertwright.models import Model
from bertwright.models.text_model import TextModel
from bertwright.tasks.catalogue import table_task, tagging_task
from bertwright.tasks.finetuning.finetune import finetune
from bertwright.tasks.formats.tables import Columns
from bertwright.timing import artefacts as comparing
from bertwright.timing.artefact_worker import random_task_sequences
from bertwright.timing.artefacts import Artefact, compare_artefacts, ratio_interval
from bertwright.timing.pareto_plot import pareto_front, plot_pareto
from commands import invoke
from small_tasks import ENGLISH, classes, tagged
from toy_recipes import toy

QUICK = {"epochs": 1, "compile": False}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of two models of one task, and of models that cannot be compared."""
    folder = tmp_path_factory.mktemp("artefacts")
    tokenizer = train_tokenizer([ENGLISH], WordPieceConfig(vocab_size=100))
    model = TextModel(Model.build(toy("bert"), tokenizer.vocab_size), tokenizer)
    model.save(folder / "none")
    colours = table_task("colours", Columns())
    for name in ("large", "small"):
        finetune(model, colours, train=classes(), dev=classes(), output=folder / name, **QUICK)
    words = tagging_task("words")
    finetune(model, words, train=tagged(), dev=tagged(), output=folder / "words", **QUICK)
    shutil.copytree(folder / "large", folder / "ages")
    task = (folder / "ages" / "task.json").read_text().replace('"old"', '"ancient"')
    (folder / "ages" / "task.json").write_text(task)
    lines = "".join(f"{e.text}\t{e.label}\n" for e in classes())
    (folder / "dev.tsv").write_text(f"text\tlabel\n{lines}")
    return folder


@pytest.mark.full
def test_copies_have_equal_score_size_and_speed(folders: Path, tmp_path: Path) -> None:
    large, small = (
        Artefact.parse(f"{folders / 'large'}@float32"),
        Artefact.parse(f"{folders / 'small'}"),
    )
    log: list[str] = []
    lines = compare_artefacts([large, small], folders / "dev.tsv", 3, 1, log.append, [(1, 128, 2)])
    assert [line["artefact"] for line in lines] == ["large, float32", "small"]
    assert lines[0]["bytes"] == lines[1]["bytes"] == large.num_bytes
    assert lines[0]["lost"] == 0
    assert lines[0]["faster_1x128"] == 1
    low, high = lines[1]["interval_1x128"]
    assert low <= lines[1]["faster_1x128"] <= high
    plot_pareto(lines, tmp_path / "pareto.png")
    assert (tmp_path / "pareto.png").stat().st_size > 1000


def test_random_sequences_have_the_stated_length(folders: Path) -> None:
    from bertwright.interop.loading import load

    for name in ("large", "words"):
        model = load(folders / name)
        sequences = random_task_sequences(model, 3, 16)
        assert [len(sequence.token_ids) for sequence in sequences] == [16] * 3
        assert len(model.head_outputs(sequences)) == 3


@given(st.lists(st.tuples(st.floats(0.1, 9), st.floats(0, 1)), min_size=1, max_size=12))
def test_no_point_dominates_the_front(points: list[tuple[float, float]]) -> None:
    front = pareto_front(points)
    assert set(front) <= set(points)
    for cost, score in front:
        assert not any((c <= cost and s > score) or (c < cost and s >= score) for c, s in points)
    for cost, score in points:
        assert any(c <= cost and s >= score for c, s in front)


def test_the_interval_of_equal_times_is_1() -> None:
    times = np.random.default_rng(0).lognormal(size=20)
    low, high = ratio_interval(times, times)
    assert low == high == 1
    low, high = ratio_interval(times, times / 2)
    assert low == pytest.approx(2)


def test_lost_scores_are_in_points(folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scores = iter([0.9, 0.65])
    result = {"task": "colours", "metric": "accuracy"}
    monkeypatch.setattr(comparing, "evaluate", lambda *_: {**result, "score": next(scores)})
    artefacts = [Artefact(folders / name) for name in ("large", "small")]
    lines = compare_artefacts(artefacts, folders / "dev.tsv", 3, 1, lambda _: None, shapes=[])
    assert [line["lost"] for line in lines] == pytest.approx([0, 25])


def test_folders_of_one_name_are_distinguished(
    folders: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(folders / "large", tmp_path / "large")
    result = {"task": "colours", "metric": "accuracy", "score": 0.5}
    monkeypatch.setattr(comparing, "evaluate", lambda *_: result)
    paths = [f"{folders}/large", f"{folders}/large@float32", f"{tmp_path}/large"]
    artefacts = [Artefact.parse(path) for path in paths]
    lines = compare_artefacts(artefacts, folders / "dev.tsv", 3, 1, lambda _: None, shapes=[])
    names = [f"{folders}/large", f"{folders}/large, float32", f"{tmp_path}/large"]
    assert [line["artefact"] for line in lines] == names
    with pytest.raises(UserError, match="large is named twice: leave one out"):
        compare_artefacts([artefacts[0], artefacts[0]], folders / "dev.tsv", 3, 1, print)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("none", "is not fine-tuned"),
        (
            "words",
            "is a model of task words .*, .* of task colours with new, old by accuracy",
        ),
        ("ages", "with new, ancient by accuracy, .* with new, old"),
        ("elsewhere", "elsewhere"),
    ],
)
def test_artefacts_of_different_tasks_are_refused_before_scoring(
    folders: Path, wrong: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        pytest.fail("a model was scored")

    monkeypatch.setattr(comparing, "evaluate", refuse)
    artefacts = [Artefact(folders / name) for name in ("large", wrong)]
    with pytest.raises(UserError, match=message):
        compare_artefacts(artefacts, folders / "dev.tsv", 3, 1, print)


@pytest.mark.parametrize(
    ("plot", "message"),
    [
        ("/proc/x.png", "x.png cannot be created"),
        ("{folder}", "is a folder: name a file"),
    ],
)
def test_an_unwritable_plot_is_refused_before_measuring(
    folders: Path, plot: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        pytest.fail("a model was measured")

    monkeypatch.setattr(comparing, "compare_artefacts", refuse)
    options = ("--data", folders / "dev.tsv", "--plot", plot.format(folder=folders))
    with pytest.raises(UserError, match=message):
        invoke("pareto", folders / "large", *options)


def test_unknown_precisions_and_untuned_models_are_refused(folders: Path) -> None:
    with pytest.raises(UserError, match="no precision 'fp16': choose from float32, bf16, int8"):
        Artefact.parse("large@fp16")
    with pytest.raises(UserError, match="is not fine-tuned"):
        compare_artefacts([Artefact(folders / "none")], folders / "dev.tsv", 3, 1, print)
