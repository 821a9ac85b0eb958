"""Runs are done once, go on after a stop, and are the same wherever they are done."""

import json
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from small_study import small_study

from bertwright.errors import Interrupted, UserError
from bertwright.recipes.loading import import_plugin
from bertwright.side_by_side import side_by_side
from bertwright.studies import running
from bertwright.studies.corpora import Files, Grammar, Written
from bertwright.studies.report import RESULT, TABLE, lines, write_report
from bertwright.studies.running import Found, Run, run_study
from bertwright.text.preparation import prepare
from bertwright.text.shards import Data
from bertwright.text.tokenizers import WordPieceChoice


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("studies")


@pytest.fixture(scope="module")
def found(folder: Path) -> Found:
    return run_study(small_study(), folder)


@pytest.fixture(scope="module")
def data(folder: Path, found: Found) -> Path:
    """The data set that was made for them."""
    [data] = (folder / "data").iterdir()
    return data


def test_every_arm_has_every_seed(found: Found) -> None:
    assert {arm: sorted(seeds) for arm, seeds in found.items()} == {"one": [0, 1], "other": [0, 1]}
    losses = [f["held-out.masked_loss"] for seeds in found.values() for f in seeds.values()]
    assert len(set(losses)) == 4


def test_what_is_done_is_not_done_again(
    folder: Path, found: Found, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_more(*_: object, **__: object) -> None:
        raise AssertionError("it was done before")

    monkeypatch.setattr(running, "pretrain", no_more)
    monkeypatch.setattr(Grammar, "write", no_more)
    assert run_study(small_study(name="another", seeds=1), folder)["one"][0] == found["one"][0]


def test_weights_are_needed_until_they_are_measured(
    folder: Path, tmp_path: Path, data: Path, found: Found, monkeypatch: pytest.MonkeyPatch
) -> None:
    for run in (folder / "runs").iterdir():
        (tmp_path / "runs" / run.name).mkdir(parents=True)
        figures = (run / "measures.json").read_text()
        (tmp_path / "runs" / run.name / "measures.json").write_text(figures)

    def no_more(*_: object, **__: object) -> None:
        raise AssertionError("its figures are known")

    monkeypatch.setattr(running, "pretrain", no_more)
    assert run_study(small_study(), tmp_path, data=data) == found
    after = small_study(arms={"after": {"recipe": "bert-tiny", "start_from": "one"}})
    with pytest.raises(AssertionError, match="its figures are known"):
        run_study(after, tmp_path, data=data)


def test_two_at_once_find_the_same_and_a_plugin_goes_where_they_go(
    tmp_path: Path, data: Path, found: Found
) -> None:
    (tmp_path / "softer.py").write_text(
        "from typing import ClassVar, Literal\n"
        "from bertwright.encoder.feed_forward import FeedForward\n"
        "class Softer(FeedForward):\n"
        "    kind: Literal['test-softer'] = 'test-softer'\n"
        "    activation: ClassVar = 'silu'\n"
    )
    import_plugin(tmp_path / "softer.py")
    softer = {"encoder": {"feed_forward": {"kind": "test-softer"}}}
    study = small_study(arms={"softer": {"recipe": "bert-tiny", "changes": softer}}, seeds=1)
    told = run_study(study, tmp_path / "out", data=data, processes=2)
    assert told.pop("softer")[0] != told["one"][0]
    assert told == {arm: {0: seeds[0]} for arm, seeds in found.items()}


def test_a_figure_that_is_not_there_ends_the_study_after_one_run(
    tmp_path: Path, data: Path
) -> None:
    wrong = [{"measure": "held-out.maskd_loss", "arm": "one", "below": "other"}]
    with pytest.raises(UserError, match=r"arm one has no figure .* did you mean"):
        run_study(small_study(expected=wrong), tmp_path, data=data)
    assert len(list((tmp_path / "runs").iterdir())) == 1


def test_a_stopped_run_goes_on(tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = small_study(changes={"checkpoint_every": 1}, seeds=1)
    whole = run_study(study, tmp_path / "whole", data=data)
    train = running.pretrain

    def stopped(*arguments: object, **named: object) -> object:
        named["quiet"] = True
        from bertwright.training import pretraining

        step = pretraining.RecipeBatches.__call__

        def second_step(self: object, place: object) -> object:
            if getattr(place, "step", 0) == 2:
                raise Interrupted(15, 2, None)
            return step(self, place)  # type: ignore[arg-type]

        with monkeypatch.context() as patch:
            patch.setattr(pretraining.RecipeBatches, "__call__", second_step)
            return train(*arguments, **named)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(running, "pretrain", stopped)
        with pytest.raises(Interrupted):
            run_study(study, tmp_path / "stopped", data=data)
    assert run_study(study, tmp_path / "stopped", data=data) == whole


def test_a_run_that_was_killed_while_it_was_saved_is_saved_again(
    tmp_path: Path, data: Path, found: Found
) -> None:
    class Killed(BaseException):
        pass

    def killed(*_: object) -> None:
        raise Killed

    study = small_study(seeds=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bertwright.model.folder.save_weights", killed)
        with pytest.raises(Killed):
            run_study(study, tmp_path, data=data)
    assert len(list((tmp_path / "runs").glob("*/training.json"))) == 1
    assert run_study(study, tmp_path, data=data)["one"][0] == found["one"][0]


def test_other_questions_are_asked_anew(tmp_path: Path, data: Path) -> None:
    folder = tmp_path / "pairs"
    folder.mkdir()
    pairs = folder / "all.jsonl"
    one, other = "the ship is late", "ship late the is"
    study = small_study(
        seeds=1,
        measures={"pairs": {"kind": "minimal-pairs", "file": str(folder)}},
        expected=[],
    )
    found: list[float] = []
    for good, bad in ((one, other), (other, one)):
        pairs.write_text(json.dumps({"sentence_good": good, "sentence_bad": bad, "UID": "x"}))
        found.append(run_study(study, tmp_path / "out", data=data)["one"][0]["pairs.accuracy"])
    assert sum(found) == 1.0


def test_text_that_has_changed_is_prepared_anew(tmp_path: Path) -> None:
    text, tokenizer = tmp_path / "text.txt", WordPieceChoice(size=200)
    hashes: list[str] = []
    for thing in ("ship", "boat"):
        text.write_text("\n\n".join(f"The {thing} of {n} men comes home." for n in range(40)))
        data = running.prepared_for(Files(paths=(str(text),)), tokenizer, tmp_path / "out").data
        hashes.append(Data.open(data).manifest.hash)
    assert len(set(hashes)) == 2


def test_a_text_is_written_by_one_study_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, writers = Grammar.write, list[int]()

    def written_slowly(self: Grammar, written: Written) -> None:
        writers.append(1)
        time.sleep(0.2)
        write(self, written)

    monkeypatch.setattr(Grammar, "write", written_slowly)
    corpus, tokenizer = Grammar(documents=100), WordPieceChoice(size=400)
    with ThreadPoolExecutor(2) as pool:
        turns = [pool.submit(running.prepared_for, corpus, tokenizer, tmp_path) for _ in range(2)]
    assert len({Data.open(turn.result().data).manifest.hash for turn in turns}) == 1
    assert len(writers) == 1


def test_data_that_do_not_fit_are_known_before_anything_is_trained(
    tmp_path: Path, data: Path
) -> None:
    (tmp_path / "text.txt").write_text("one line of text\n" * 4)
    tokenizer = Data.open(data).tokenizer
    whole = prepare(tmp_path / "text.txt", tmp_path / "whole", tokenizer, heldout=0.0)
    with pytest.raises(UserError):
        run_study(small_study(), tmp_path, data=whole.path)
    assert not (tmp_path / "runs").exists()


def test_equal_operations_are_those_that_were_spent(tmp_path: Path, data: Path) -> None:
    study = small_study(
        changes={"phases": [{"share": 3, "length": 16}, {"share": 5, "batch": 4}]},
        equal={"steps": None, "operations": 1e10},
        seeds=1,
        measures={"cost": {"kind": "cost"}},
        expected=[],
    )
    for figures in run_study(study, tmp_path, data=data).values():
        assert figures[0]["cost.operations"] == pytest.approx(1e10, rel=0.05)


def test_an_arm_may_start_from_another(tmp_path: Path, data: Path) -> None:
    study = small_study(arms={"other": {"recipe": "bert-tiny", "start_from": "one"}}, seeds=1)
    later = run_study(study, tmp_path, data=data)
    assert later["other"][0]["held-out.masked_loss"] < later["one"][0]["held-out.masked_loss"]


def test_time_is_not_shared(tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Arms that are given equal time run one at a time, whatever was asked for."""

    asked: list[int] = []

    def noted(jobs: Sequence[Run], processes: int) -> Iterator[tuple[int, dict[str, float]]]:
        asked.append(processes)
        return side_by_side(jobs, processes)

    monkeypatch.setattr(running, "side_by_side", noted)
    timed = small_study(equal={"steps": None, "time": "1s"}, seeds=1)
    assert set(run_study(timed, tmp_path, data=data, processes=2)) == {"one", "other"}
    assert asked == [1]
    with pytest.raises(UserError, match="leave out --on"):
        run_study(timed, tmp_path, data=data, on="ray")


def test_the_report_says_what_was_found(folder: Path, found: Found) -> None:
    result = write_report(small_study(), found, folder / "small")
    assert json.loads((folder / "small" / RESULT).read_text()) == json.loads(json.dumps(result))
    told = "\n".join(lines(result))
    assert told in (folder / "small" / TABLE).read_text()
    assert "one below other: **not seen**" in told, "two seeds are too few"
    assert (folder / "small" / "picture.png").stat().st_size > 1000
    once = {arm: {0: seeds[0]} for arm, seeds in found.items()}
    assert "NaN" not in json.dumps(write_report(small_study(), once, folder / "once"))


@pytest.mark.parametrize(
    ("figures", "stated", "shown"),
    [
        ([{"a_loss": 1.0, "x": 2.0}, {"b_loss": 1.0, "x": 2.0}], [], ["m.a_loss", "m.b_loss"]),
        ([{"a_loss": 1.0, "c_loss": 2.0}, {"c_loss": 1.0}], [], ["m.c_loss"]),
        ([{"x": 2.0}, {"y": 2.0}], [], ["m.x", "m.y"]),
        ([{"a_loss": 1.0, "x": 2.0}, {"a_loss": 1.0}], ["m.x"], ["m.x"]),
    ],
    ids=["none shared", "shared", "no losses", "stated"],
)
def test_arms_that_share_no_figure_are_shown(
    tmp_path: Path, figures: list[dict[str, float]], stated: list[str], shown: list[str]
) -> None:
    study = small_study(measures={"m": {"kind": "cost"}}, expected=[], shown=stated)
    found = {
        arm: {seed: {f"m.{name}": value for name, value in own.items()} for seed in range(2)}
        for arm, own in zip(study.arms, figures, strict=True)
    }
    result = write_report(study, found, tmp_path)
    assert result["shown"] == shown
    table = next(line for line in lines(result) if line.startswith("| arm"))
    assert table.count("|") == 2 + len(shown)


def test_a_cluster_of_two_nodes_finds_the_same(tmp_path: Path, data: Path, found: Found) -> None:
    # Takes a while to import, which the other worker need not spend.
    import ray
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 1, "include_dashboard": False, "include_log_monitor": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    cluster.add_node(num_cpus=1)
    try:
        ray.init(address=cluster.address, log_to_driver=False)
        told = run_study(small_study(seeds=1), tmp_path, data=data, on="ray")
        assert told == {arm: {0: seeds[0]} for arm, seeds in found.items()}
    finally:
        ray.shutdown()
        cluster.shutdown()
