"""Running studies: reuse, resumption, parallel runs, reports."""

import json
import shutil
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bertwright.core.errors import TrainingInterrupted, UserError
from bertwright.data.preparation import prepare
from bertwright.data.shards.dataset import Dataset
from bertwright.data.tokenization.tokenizer import WordPieceConfig
from bertwright.recipes.loading import import_plugin
from bertwright.runtime.parallel import run_parallel
from bertwright.studies import run as running
from bertwright.studies.corpora import CorpusFolder, FileCorpus, StoryCorpus
from bertwright.studies.report import REPORT_FILE, RESULT_FILE, report_lines, write_report
from bertwright.studies.run import RUNS_FILE, ArmRun, run_study
from bertwright.studies.study import StudyResults
from bertwright.training.clock import Progress
from bertwright.training.pretraining_batches import PretrainingBatches
from small_study import small_study


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("studies")


@pytest.fixture(scope="module")
def results(folder: Path) -> StudyResults:
    return run_study(small_study(), folder)


@pytest.fixture(scope="module")
def data(folder: Path, results: StudyResults) -> Path:
    """The data set of the small study."""
    [data] = (folder / "data").iterdir()
    return data


def test_every_arm_has_every_seed(results: StudyResults) -> None:
    seeds = {arm: sorted(by_seed) for arm, by_seed in results.items()}
    assert seeds == {"one": [0, 1], "other": [0, 1]}
    losses = [m["held-out.masked_loss"] for by_seed in results.values() for m in by_seed.values()]
    assert len(set(losses)) == 4


def test_only_arms_of_undecided_expectations_get_more_seeds(
    folder: Path, results: StudyResults, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Arm c is better than a from the start; b is better than a after six seeds."""
    noise = [0.0, 0.9, -0.9, 0.02, -0.02, 0.0]
    losses = {"c": [1.0, 1.01, 0.99], "b": [1.9 - n for n in noise]}

    def execute(
        runs: Sequence[ArmRun], num_processes: int, backend: str | None
    ) -> Iterator[tuple[int, dict[str, float]]]:
        for index, run in enumerate(runs):
            arm = {"bert-tiny": "a", "roberta-tiny": "b", "albert-tiny": "c"}[run.recipe.name]
            loss = losses[arm][run.recipe.seed] if arm in losses else 3.0
            yield index, {"held-out.masked_loss": loss}

    monkeypatch.setattr(running, "_execute", execute)
    study = small_study(
        name="sequential",
        arms={
            "one": None,
            "other": None,
            "a": {"recipe": "bert-tiny"},
            "b": {"recipe": "roberta-tiny"},
            "c": {"recipe": "albert-tiny"},
        },
        expected=[{"measure": "held-out.masked_loss", "arm": n, "below": "a"} for n in ("b", "c")],
    )
    sequential = run_study(study, folder, max_seeds=12)
    assert {arm: len(by_seed) for arm, by_seed in sequential.items()} == {"a": 6, "b": 6, "c": 3}
    report = write_report(study, sequential, folder / "sequential", max_seeds=12)
    assert [(v["verdict"], v["seeds"]) for v in report["verdicts"]] == [("seen", 6), ("seen", 3)]
    text = "\n".join(report_lines(report))
    assert "over 3 to 6 seeds, added until decided; intervals of differences at 98.4 %" in text


def test_finished_runs_are_reused(
    folder: Path, results: StudyResults, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise AssertionError("it was done before")

    monkeypatch.setattr(running, "pretrain", fail)
    monkeypatch.setattr(StoryCorpus, "write", fail)
    repeated = run_study(small_study(name="another", seeds=1), folder)
    assert repeated["one"][0] == results["one"][0]


@pytest.mark.full
def test_a_study_continues_without_the_folders_of_its_runs(
    folder: Path, results: StudyResults, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = small_study()
    copied = tmp_path / study.name / RUNS_FILE
    copied.parent.mkdir()
    shutil.copy(folder / study.name / RUNS_FILE, copied)
    trained: list[int] = []
    monkeypatch.setattr(ArmRun, "_train", lambda run: trained.append(run.recipe.seed))
    assert run_study(study, tmp_path) == results
    assert trained == []
    # Only the runs of another seed are trained.
    monkeypatch.setattr(ArmRun, "_measure", lambda run: results["one"][run.recipe.seed % 2])
    run_study(study.model_copy(update={"seeds": 3}), tmp_path)
    assert trained == [2, 2]


def test_weights_are_needed_only_for_new_measures_and_arms(
    folder: Path, tmp_path: Path, data: Path, results: StudyResults, monkeypatch: pytest.MonkeyPatch
) -> None:
    for run in (folder / "runs").iterdir():
        copy = tmp_path / "runs" / run.name
        copy.mkdir(parents=True)
        (copy / "measures.json").write_text((run / "measures.json").read_text())

    def fail(*_: object, **__: object) -> None:
        raise AssertionError("trained again")

    monkeypatch.setattr(running, "pretrain", fail)
    assert run_study(small_study(), tmp_path, data=data) == results
    started = small_study(arms={"after": {"recipe": "bert-tiny", "start_from": "one"}})
    with pytest.raises(AssertionError, match="trained again"):
        run_study(started, tmp_path, data=data)


@pytest.mark.usefixtures("preloaded_processes")
def test_parallel_runs_agree_and_import_plugins(
    tmp_path: Path, data: Path, results: StudyResults, temporary_plugins: None
) -> None:
    (tmp_path / "softer.py").write_text(
        "from typing import ClassVar, Literal\n"
        "from bertwright.modules.feed_forward import FeedForwardConfig\n"
        "class Softer(FeedForwardConfig):\n"
        "    kind: Literal['test-softer'] = 'test-softer'\n"
        "    activation: ClassVar = 'silu'\n"
    )
    import_plugin(tmp_path / "softer.py")
    softer = {"encoder": {"feed_forward": {"kind": "test-softer"}}}
    study = small_study(arms={"softer": {"recipe": "bert-tiny", "changes": softer}}, seeds=1)
    parallel = run_study(study, tmp_path / "out", data=data, num_processes=2)
    assert parallel.pop("softer")[0] != parallel["one"][0]
    assert parallel == {arm: {0: by_seed[0]} for arm, by_seed in results.items()}


def test_unknown_metric_ends_the_study_after_one_run(tmp_path: Path, data: Path) -> None:
    expected = [{"measure": "held-out.maskd_loss", "arm": "one", "below": "other"}]
    with pytest.raises(UserError, match=r"arm one has no metric .* did you mean"):
        run_study(small_study(expected=expected), tmp_path, data=data)
    assert len(list((tmp_path / "runs").iterdir())) == 1


def test_unknown_displayed_metric_ends_the_study_after_one_seed(tmp_path: Path, data: Path) -> None:
    with pytest.raises(UserError, match=r"shown: no arm has a metric .* did you mean"):
        run_study(small_study(shown=["held-out.maskd_loss"]), tmp_path, data=data)
    assert len(list((tmp_path / "runs").iterdir())) == 2


def test_interrupted_run_resumes(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = small_study(changes={"checkpoint_every": 1}, seeds=1)
    whole = run_study(study, tmp_path / "whole", data=data)
    make_batches = PretrainingBatches.__call__

    def interrupt_at_step_2(self: PretrainingBatches, progress: Progress) -> object:
        if progress.step == 2:
            raise TrainingInterrupted(15, 2, None)
        return make_batches(self, progress)

    with monkeypatch.context() as patch:
        patch.setattr(PretrainingBatches, "__call__", interrupt_at_step_2)
        with pytest.raises(TrainingInterrupted):
            run_study(study, tmp_path / "stopped", data=data)
    assert run_study(study, tmp_path / "stopped", data=data) == whole


def test_run_killed_while_saving_is_saved_again(
    tmp_path: Path, data: Path, results: StudyResults
) -> None:
    class Killed(BaseException):
        pass

    def kill(*_: object) -> None:
        raise Killed

    study = small_study(seeds=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bertwright.models.saving.save_weights", kill)
        with pytest.raises(Killed):
            run_study(study, tmp_path, data=data)
    assert len(list((tmp_path / "runs").glob("*/training.json"))) == 1
    assert run_study(study, tmp_path, data=data)["one"][0] == results["one"][0]


def test_changed_input_is_measured_again(tmp_path: Path, data: Path) -> None:
    folder = tmp_path / "pairs"
    folder.mkdir()
    sentences = ["the ship is late", "ship late the is"]
    study = small_study(
        seeds=1,
        measures={"pairs": {"kind": "minimal-pairs", "file": str(folder)}},
        expected=[],
    )
    accuracies: list[float] = []
    for good, bad in (sentences, reversed(sentences)):
        pair = {"sentence_good": good, "sentence_bad": bad, "UID": "x"}
        (folder / "all.jsonl").write_text(json.dumps(pair))
        metrics = run_study(study, tmp_path / "out", data=data)["one"][0]
        accuracies.append(metrics["pairs.accuracy"])
    assert sum(accuracies) == 1.0


def test_changed_text_is_prepared_again(tmp_path: Path) -> None:
    text, tokenizer = tmp_path / "text.txt", WordPieceConfig(vocab_size=200)
    hashes: list[str] = []
    for thing in ("ship", "boat"):
        text.write_text("\n\n".join(f"The {thing} of {n} men comes home." for n in range(40)))
        data = running.prepare_corpus(
            FileCorpus(paths=(str(text),)), tokenizer, tmp_path / "out"
        ).data
        hashes.append(Dataset.open(data).manifest.hash)
    assert len(set(hashes)) == 2


def test_corpus_is_written_by_one_thread_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, calls = StoryCorpus.write, list[int]()

    def write_slowly(self: StoryCorpus, folder: CorpusFolder) -> None:
        calls.append(1)
        time.sleep(0.2)
        write(self, folder)

    monkeypatch.setattr(StoryCorpus, "write", write_slowly)
    corpus, tokenizer = StoryCorpus(documents=100), WordPieceConfig(vocab_size=400)
    with ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(running.prepare_corpus, corpus, tokenizer, tmp_path) for _ in range(2)]
    assert len({Dataset.open(job.result().data).manifest.hash for job in jobs}) == 1
    assert len(calls) == 1


def test_unsuitable_data_raise_before_training(tmp_path: Path, data: Path) -> None:
    (tmp_path / "text.txt").write_text("one line of text\n" * 4)
    tokenizer = Dataset.open(data).tokenizer
    whole = prepare(tmp_path / "text.txt", tmp_path / "whole", tokenizer, heldout=0.0)
    with pytest.raises(UserError):
        run_study(small_study(), tmp_path, data=whole.path)
    assert not (tmp_path / "runs").exists()


def test_equal_flops(tmp_path: Path, data: Path) -> None:
    phases = [{"fraction": 3, "length": 16}, {"fraction": 5, "batch": 4}]
    study = small_study(
        changes={"phases": phases},
        equal={"steps": None, "flops": 1e10},
        seeds=1,
        measures={"cost": {"kind": "cost"}},
        expected=[],
    )
    for by_seed in run_study(study, tmp_path, data=data).values():
        assert by_seed[0]["cost.flops"] == pytest.approx(1e10, rel=0.05)


def test_arm_starts_from_another(tmp_path: Path, data: Path) -> None:
    study = small_study(arms={"other": {"recipe": "bert-tiny", "start_from": "one"}}, seeds=1)
    results = run_study(study, tmp_path, data=data)
    assert results["other"][0]["held-out.masked_loss"] < results["one"][0]["held-out.masked_loss"]


def test_arms_with_equal_time_run_one_at_a_time(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[int] = []

    def recorded(
        jobs: Sequence[ArmRun], num_processes: int
    ) -> Iterator[tuple[int, dict[str, float]]]:
        used.append(num_processes)
        return run_parallel(jobs, num_processes)

    monkeypatch.setattr(running, "run_parallel", recorded)
    timed = small_study(equal={"steps": None, "time": "1s"}, seeds=1)
    assert set(run_study(timed, tmp_path, data=data, num_processes=2)) == {"one", "other"}
    assert used == [1]
    with pytest.raises(UserError, match="leave out --on"):
        run_study(timed, tmp_path, data=data, backend="ray")


def test_report(folder: Path, results: StudyResults) -> None:
    result = write_report(small_study(), results, folder / "small")
    stored = json.loads((folder / "small" / RESULT_FILE).read_text())
    assert stored == json.loads(json.dumps(result))
    report = "\n".join(report_lines(result))
    assert report in (folder / "small" / REPORT_FILE).read_text()
    assert "one below other: **undecided**" in report, "two seeds are too few"
    assert (folder / "small" / "plot.png").stat().st_size > 1000
    one_seed = {arm: {0: by_seed[0]} for arm, by_seed in results.items()}
    assert "NaN" not in json.dumps(write_report(small_study(), one_seed, folder / "one-seed"))


@pytest.mark.parametrize(
    ("metrics", "setting", "shown"),
    [
        ([{"a_loss": 1.0, "x": 2.0}, {"b_loss": 1.0, "x": 2.0}], [], ["m.a_loss", "m.b_loss"]),
        ([{"a_loss": 1.0, "c_loss": 2.0}, {"c_loss": 1.0}], [], ["m.c_loss"]),
        ([{"x": 2.0}, {"y": 2.0}], [], ["m.x", "m.y"]),
        ([{"a_loss": 1.0, "x": 2.0}, {"a_loss": 1.0}], ["m.x"], ["m.x"]),
    ],
    ids=["none shared", "shared", "no losses", "set"],
)
def test_shown_metrics(
    tmp_path: Path, metrics: list[dict[str, float]], setting: list[str], shown: list[str]
) -> None:
    study = small_study(measures={"m": {"kind": "cost"}}, expected=[], shown=setting)
    results = {
        arm: {seed: {f"m.{name}": value for name, value in values.items()} for seed in range(2)}
        for arm, values in zip(study.arms, metrics, strict=True)
    }
    result = write_report(study, results, tmp_path)
    assert result["shown"] == shown
    table = next(line for line in report_lines(result) if line.startswith("| arm"))
    assert table.count("|") == 2 + len(shown)


@pytest.mark.full
def test_ray_cluster_agrees(tmp_path: Path, data: Path, results: StudyResults) -> None:
    # Importing it takes a while.
    import ray
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 1, "include_dashboard": False, "include_log_monitor": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    cluster.add_node(num_cpus=1)
    try:
        ray.init(address=cluster.address, log_to_driver=False)
        on_cluster = run_study(small_study(seeds=1), tmp_path, data=data, backend="ray")
        assert on_cluster == {arm: {0: by_seed[0]} for arm, by_seed in results.items()}
    finally:
        ray.shutdown()
        cluster.shutdown()
