"""Pre-training runs: their model folder, and interrupted and resumed runs."""

import json
import os
import pickle
import re
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from bertwright.cli.app import main
from bertwright.core.errors import MissingExtra, TrainingInterrupted, UserError
from bertwright.core.files import file_lock
from bertwright.data.preparation import prepare
from bertwright.data.shards.dataset import Dataset
from bertwright.data.tokenization.tokenizer import WordLevelConfig
from bertwright.data.vocabulary_training import train_tokenizer
from bertwright.models.model import Model
from bertwright.models.saving import TRAINING_FILE, load_model
from bertwright.training.pretraining import run as pretraining_run
from bertwright.training.pretraining.pretrain import pretrain
from bertwright.training.pretraining.run import PretrainingResult
from bertwright.training.pretraining.run_folder import fit_recipe_to_data
from bertwright.training.reporters.loss_plot import save_loss_plot
from bertwright.training.reporters.metrics_file import read_metrics
from bertwright.training.step_monitor import NonFiniteError
from forked_processes import forks
from run_folders import assert_equal, copy_at, metrics_of, stop_at, weights
from small_recipe import CHANGES, small
from toy_recipes import marked_systems, toy

RUN_FOLDER_PAGE = Path(__file__).parents[3] / "docs" / "reference" / "run-folder.md"

BERT = ("phases=[{fraction: 0.7, length: 16}, {fraction: 0.3}]", "encoder.positions.size=64")
"""BERT with dropout, and a phase of short sequences before one of longer ones."""

CALLBACKS = (
    "ema_decay=0.5",
    "optimiser.layer_decay=0.7",
    "output.z_loss=1e-2",
    "batch_tokens={kind: linear, from: 128, to: 256}",
    "phases=[{fraction: 0.4, length: 16, trainable_layers: 2}, {fraction: 0.3, dropout: 0.5}, "
    "{dropout: 0}]",
)
"""Callbacks and schedules that change from step to step."""


def test_a_run_leaves_a_model_folder(
    data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pretraining_run, "save_loss_plot", save_loss_plot)
    result = pretrain(small("modern", "steps=30"), data, tmp_path / "out")
    assert isinstance(result, PretrainingResult)
    assert (result.num_steps, result.num_tokens) == (30, 30 * 256)
    model, tokenizer = load_model(tmp_path / "out")
    assert tokenizer.hash == data.tokenizer.hash
    assert model.recipe.text.tokenizer.vocab_size == data.tokenizer.vocab_size
    documented = re.findall(
        r"`([\w.]+)/?`", RUN_FOLDER_PAGE.read_text().partition("A checkpoint")[0]
    )
    names = {p.name for p in (tmp_path / "out").iterdir()}
    assert names == set(documented) - {"pretrain"}
    record = json.loads((tmp_path / "out" / "training.json").read_text())
    assert record["data_hash"] == data.manifest.hash
    assert record["result"] == result.metrics
    phases = [line["phase"] for line in read_metrics(tmp_path / "out" / "metrics.jsonl")]
    assert set(phases) == {0, 1, 2}


def test_training_learns_more_than_frequencies(data: Dataset, tmp_path: Path) -> None:
    recipe = small(
        "modern", "steps=150", "optimiser.learning_rate=1e-2", "phases=[{objectives: {masked: {}}}]"
    )
    result = pretrain(recipe, data, tmp_path / "out")
    assert result.metrics["masked_loss"] < result.metrics["unigram_entropy"] - 0.1
    assert result.warnings == ()


def test_a_model_that_did_not_learn_causes_a_warning(data: Dataset, tmp_path: Path) -> None:
    result = pretrain(small("modern", "steps=3"), data, tmp_path / "out")
    (warning,) = result.warnings
    assert "has not left the unigram entropy" in warning
    assert "use more steps" in warning


def warnings_of(folder: Path) -> list[str]:
    return json.loads((folder / TRAINING_FILE).read_text())["warnings"]


@pytest.mark.parametrize("precision", ["float32", pytest.param("bf16", marks=pytest.mark.full)])
def test_kills_change_nothing(data: Dataset, tmp_path: Path, precision: str) -> None:
    recipe = small("bert", *BERT, f"precision={precision}", "steps=24", "checkpoint_every=2")
    pretrain(recipe, data, tmp_path / "whole")
    killed, checkpoints = 0, tmp_path / "cut" / "checkpoints"
    for attempt in range(3):
        process = forks.Process(
            target=pretrain, args=(recipe, data.path, tmp_path / "cut"), kwargs={"resume": True}
        )
        before = {*checkpoints.glob("step-*")}
        process.start()
        while process.is_alive() and {*checkpoints.glob("step-*")} == before:
            time.sleep(0.002 * (1 + attempt))
        process.kill()
        process.join()
        killed += process.exitcode == -signal.SIGKILL
    assert killed
    pretrain(recipe, data, tmp_path / "cut", resume=True)
    assert_equal(tmp_path / "whole", tmp_path / "cut")


def test_a_resumed_run_keeps_its_precision(
    data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = small("bert", "precision=null", "steps=4", "checkpoint_every=1")
    for first, later in (("float32", "bf16"), ("bf16", "float32")):
        whole, cut = tmp_path / f"whole-{first}", tmp_path / f"cut-{first}"
        monkeypatch.setattr(pretraining_run, "default_precision", lambda device, first=first: first)
        pretrain(recipe, data, whole)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                "bertwright.training.checkpoints.CheckpointManager._delete_old", stop_at(2)
            )
            with pytest.raises(KeyboardInterrupt):
                pretrain(recipe, data, cut)
        monkeypatch.setattr(pretraining_run, "default_precision", lambda device, later=later: later)
        pretrain(recipe, data, cut, resume=True)
        assert_equal(whole, cut)
        assert json.loads((cut / TRAINING_FILE).read_text())["precision"] == first


def test_a_slower_bfloat16_causes_a_warning(
    data: Dataset,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for faster in ("bf16", "float32"):
        monkeypatch.setattr(
            pretraining_run, "default_precision", lambda device, usual=faster: usual
        )
        pretrain(small("bert", "precision=bf16", "steps=1"), data, tmp_path / faster)
        assert ("precision=bf16 is" in capsys.readouterr().err) == (faster == "float32")


def test_a_stop_at_any_step_changes_nothing(data: Dataset, tmp_path: Path) -> None:
    recipe = small("modern", "steps=10", "checkpoint_every=1", "encoder.depth.drop=0.3")
    pretrain(recipe, data, tmp_path / "whole")
    metrics, warnings = metrics_of(tmp_path / "whole"), warnings_of(tmp_path / "whole")
    assert warnings
    for stop in (2, 5, 8, 9):  # within a phase, at the ends of two, and after a warning
        folder = tmp_path / f"cut-{stop}"
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                "bertwright.training.checkpoints.CheckpointManager._delete_old", stop_at(stop)
            )
            with pytest.raises(KeyboardInterrupt):
                pretrain(recipe, data, folder)
        pretrain(recipe, data, folder, resume=True)
        assert_equal(tmp_path / "whole", folder)
        assert metrics_of(folder) == metrics
        assert warnings_of(folder) == warnings


@pytest.mark.parametrize("system", marked_systems())
def test_every_system_is_trained_and_resumed_after_a_kill(
    rich_data: Dataset, tmp_path: Path, system: str
) -> None:
    data = rich_data
    every = ("checkpoint_every=5", "evaluate_every=5")
    changes = ("steps=8", *every, "text.tokenizer.kind=wordpiece")
    recipe = toy(system, *changes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "bertwright.training.checkpoints.CheckpointManager._delete_old",
            copy_at(5, tmp_path / "killed"),
        )
        pretrain(recipe, data, tmp_path / "whole")
    pretrain(recipe, data, tmp_path / "killed", resume=True)
    assert_equal(tmp_path / "whole", tmp_path / "killed")
    assert metrics_of(tmp_path / "whole") == metrics_of(tmp_path / "killed")
    load_model(tmp_path / "killed")


def test_a_compiled_run_resumes_bit_for_bit(data: Dataset, tmp_path: Path) -> None:
    recipe = small(
        "modern",
        "compile=true",
        "precision=bf16",
        "encoder.depth.layers=1",
        "phases=[{objectives: {masked: {}}}]",
        "steps=4",
        "checkpoint_every=2",
    )
    whole = pretrain(recipe, data, tmp_path / "whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bertwright.training.checkpoints.CheckpointManager._delete_old", stop_at(2))
        with pytest.raises(KeyboardInterrupt):
            pretrain(recipe, data, tmp_path / "cut")
    again = pretrain(recipe, data, tmp_path / "cut", resume=True)
    assert_equal(tmp_path / "whole", tmp_path / "cut")
    assert whole.metrics == again.metrics


def test_a_diverging_learning_rate_stops_the_run(data: Dataset, tmp_path: Path) -> None:
    recipe = small(
        "modern",
        "optimiser.learning_rate=1e30",
        "schedule=1",
        "checkpoint_every=1",
        "max_grad_norm=null",
    )
    with pytest.raises(UserError, match="not finite at step"):
        pretrain(recipe, data, tmp_path / "out")
    (batch,) = (tmp_path / "out").glob("not-finite-step-*.safetensors")
    assert "micro_batches.0.token_ids" in load_file(batch)
    kept = load_file(*(tmp_path / "out" / "checkpoints").glob("*/parameters.safetensors"))
    assert all(tensor.isfinite().all() for tensor in kept.values())


def test_a_full_disk_leaves_the_last_checkpoint(data: Dataset, tmp_path: Path) -> None:
    recipe = small("modern", "steps=6", "checkpoint_every=2")
    pretrain(recipe, data, tmp_path / "whole")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bertwright.training.checkpoints.CheckpointManager._delete_old", fill_disk)
        try:
            with pytest.raises(UserError, match="free some space"):
                pretrain(recipe, data, tmp_path / "out")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert [p.name for p in (tmp_path / "out" / "checkpoints").iterdir()] == ["step-00000002"]
    pretrain(recipe, data, tmp_path / "out", resume=True)
    assert_equal(tmp_path / "whole", tmp_path / "out")


def fill_disk(_: object) -> None:
    """Limit the size of files to 20 kB from now on."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))


def test_a_finished_run_is_not_trained_again(data: Dataset, tmp_path: Path) -> None:
    recipe = small("modern", "steps=2")
    first = pretrain(recipe, data, tmp_path / "out")
    before = (tmp_path / "out" / "model.safetensors").stat().st_mtime_ns
    assert pretrain(None, data, tmp_path / "out", resume=True).metrics == first.metrics
    assert (tmp_path / "out" / "model.safetensors").stat().st_mtime_ns == before


def test_resuming_nothing_starts_from_the_beginning(data: Dataset, tmp_path: Path) -> None:
    assert pretrain(small("modern", "steps=2"), data, tmp_path / "out", resume=True).num_steps == 2


def test_only_a_run_that_starts_says_so(
    data: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UserError, match="holds no run to continue"):
        pretrain(None, data, tmp_path / "out", resume=True)
    assert not capsys.readouterr().err
    pretrain(small("modern", "steps=1"), data, tmp_path / "out", resume=True)
    assert "out holds no run: starting one" in capsys.readouterr().err


def test_a_budget_is_kept(data: Dataset, tmp_path: Path) -> None:
    result = pretrain(small(), data, tmp_path / "out", budget="2s")
    lines = (tmp_path / "out" / "decisions.jsonl").read_text().splitlines()
    plans = [plan for line in lines if "total_steps" in (plan := json.loads(line))]
    assert plans[-1]["total_steps"] == result.num_steps
    record = json.loads((tmp_path / "out" / TRAINING_FILE).read_text())
    assert record["budget_seconds"] == 2


def test_a_model_of_very_few_tokens_can_be_loaded(tmp_path: Path) -> None:
    text = "\n\n".join(" ".join("acgt"[n * k % 4] for k in range(60)) for n in range(1, 60))
    (tmp_path / "genes.txt").write_text(text)
    tokenizer = train_tokenizer([text], WordLevelConfig(vocab_size=16))
    assert tokenizer.vocab_size == 9
    genes = prepare(tmp_path / "genes.txt", tmp_path / "data", tokenizer, heldout=0, num_workers=1)
    pretrain(small("modern", "text.tokenizer.kind=words", "steps=1"), genes, tmp_path / "out")
    model, _ = load_model(tmp_path / "out")
    assert model.vocab_size == model.recipe.text.tokenizer.vocab_size == 9


def test_a_model_is_trained_further(data: Dataset, tmp_path: Path) -> None:
    pretrain(small("modern", "steps=3"), data, tmp_path / "first")
    changes = ["steps=1", "schedule=1e-9"]
    pretrain(None, data, tmp_path / "second", overrides=changes, start_from=tmp_path / "first")
    before, after = weights(tmp_path / "first"), weights(tmp_path / "second")
    assert all(torch.allclose(before[name], after[name], atol=1e-7) for name in before)


def test_a_model_trained_further_continues_from_it(data: Dataset, tmp_path: Path) -> None:
    pretrain(small("modern", "steps=3"), data, tmp_path / "first")
    further = {"overrides": ["steps=4", "checkpoint_every=9"], "start_from": tmp_path / "first"}
    pretrain(None, data, tmp_path / "whole", **further)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bertwright.training.checkpoints.CheckpointManager.save", interrupt)
        with pytest.raises(KeyboardInterrupt):
            pretrain(None, data, tmp_path / "cut", **further)
    pretrain(None, data, tmp_path / "cut", resume=True)
    assert_equal(tmp_path / "whole", tmp_path / "cut")


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.full
@pytest.mark.processor
def test_two_processes_end_within_rounding_of_one(data: Dataset, tmp_path: Path) -> None:
    changes = (*BERT[1:], *CALLBACKS, "steps=6")
    pretrain(small("bert", *changes), data, tmp_path / "one")
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    verb = ["-m", "bertwright", "pretrain", "bert", *CHANGES, *changes]
    paths = ["--data", str(data.path), "-o", str(tmp_path / "two")]
    subprocess.run([sys.executable, *torchrun, *verb, *paths], check=True, capture_output=True)
    one, two = weights(tmp_path / "one"), weights(tmp_path / "two")
    assert all(torch.allclose(one[name], two[name], atol=2e-5) for name in one)


def test_a_termination_writes_a_checkpoint(data: Dataset, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bertwright", "pretrain", "modern", *CHANGES]
    command += ["--data", str(data.path), "-o", str(tmp_path / "out"), "--json"]
    process = subprocess.Popen(
        [*command, "steps=100000"], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    metrics = tmp_path / "out" / "metrics.jsonl"
    while process.poll() is None and not (metrics.exists() and metrics.stat().st_size):
        time.sleep(0.1)
    process.terminate()
    out, err = process.communicate(timeout=60)
    assert process.returncode == 143
    assert "stopped by SIGTERM after step" in err
    assert "Traceback" not in err
    assert out == ""
    assert list((tmp_path / "out" / "checkpoints").glob("step-*"))


def test_an_interrupt_reaches_a_caller_in_python(data: Dataset, tmp_path: Path) -> None:
    metrics = tmp_path / "out" / "metrics.jsonl"

    def interrupt() -> None:
        while not (metrics.exists() and metrics.stat().st_size):
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(TrainingInterrupted):
        pretrain(small("modern", "steps=1000000"), data, tmp_path / "out")


@pytest.fixture
def started(data: Dataset, tmp_path: Path) -> Path:
    """The folder of an interrupted run."""
    folder = tmp_path / "out"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bertwright.training.checkpoints.CheckpointManager._delete_old", stop_at(2))
        with pytest.raises(KeyboardInterrupt):
            pretrain(small("modern", "checkpoint_every=2"), data, folder)
    return folder


def test_a_started_run_is_not_started_over(data: Dataset, started: Path) -> None:
    with (
        file_lock(started),
        pytest.raises(UserError, match="another process is writing to"),
    ):
        pretrain(None, data, started, resume=True)
    with pytest.raises(UserError, match="holds no run to continue"):
        pretrain(None, data, started / "none", resume=True)
    with pytest.raises(UserError, match="add --resume"):
        pretrain(small(), data, started)


def test_a_run_does_not_continue_as_another(
    data: Dataset, byte_data: Dataset, started: Path
) -> None:
    with pytest.raises(UserError, match=r"another optimiser\.learning_rate"):
        pretrain(small("modern", "optimiser.learning_rate=1"), data, started, resume=True)
    with pytest.raises(UserError, match="without --budget"):
        pretrain(None, data, started, resume=True, budget=60)
    with pytest.raises(UserError, match=r"text\.tokenizer|other data|prepared with"):
        pretrain(None, byte_data, started, resume=True)


def test_a_damaged_checkpoint_is_skipped(
    data: Dataset, started: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    other = started / "checkpoints" / "step-00000003"
    other.mkdir()
    (other / "state.json").write_text("{")
    pretrain(None, data, started, resume=True)
    assert "step-00000003 is damaged and skipped" in capfd.readouterr().err


def test_a_folder_that_is_in_use_is_left_alone(data: Dataset, tmp_path: Path) -> None:
    (tmp_path / "other.txt").write_text("other")
    with pytest.raises(UserError, match="already exists"):
        pretrain(small(), data, tmp_path)


def test_data_of_another_kind_of_tokenizer_are_rejected(byte_data: Dataset, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"byte-bpe .* needs wordpiece"):
        pretrain(small(), byte_data, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_model_of_another_tokenizer_or_encoder_is_rejected(
    data: Dataset, byte_data: Dataset, tmp_path: Path
) -> None:
    pretrain(small("modern", "steps=1"), data, tmp_path / "model")
    byte_recipe = small("modern", "text.tokenizer.kind=byte-bpe", "steps=1")
    with pytest.raises(UserError, match="another tokenizer"):
        pretrain(byte_recipe, byte_data, tmp_path / "a", start_from=tmp_path / "model")
    wider = small("modern", "encoder.width=48", "steps=1")
    with pytest.raises(UserError, match="its encoder differs from the recipe's"):
        pretrain(wider, data, tmp_path / "b", start_from=tmp_path / "model")
    shallower = small("modern", "encoder.depth.layers=1", "steps=1")
    with pytest.raises(UserError, match="its encoder has 2 blocks and the recipe's 1"):
        pretrain(shallower, data, tmp_path / "b", start_from=tmp_path / "model")
    with pytest.raises(UserError, match="not a model folder"):
        pretrain(None, data, tmp_path / "c", start_from=tmp_path / "nowhere")
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(UserError, match="is a Hugging Face folder"):
        pretrain(None, data, tmp_path / "c", start_from=tmp_path)
    assert not {"a", "b", "c"} & {path.name for path in tmp_path.iterdir()}


@pytest.mark.parametrize("change", ["decoder.layers=1", "decoder.layers=3", "decoder.order=cf"])
def test_a_model_of_another_decoder_is_rejected(data: Dataset, tmp_path: Path, change: str) -> None:
    changes = ("text.tokenizer.kind=wordpiece", "decoder.layers=2", "steps=1")
    pretrain(toy("bart", *changes), data, tmp_path / "model", quiet=True)
    with pytest.raises(UserError, match=r"its decoder differs from the recipe's \(decoder\."):
        pretrain(
            toy("bart", *changes, change), data, tmp_path / "out", start_from=tmp_path / "model"
        )
    assert not (tmp_path / "out").exists()


def test_too_little_text_is_reported_before_writing(data: Dataset, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="too few for one sequence"):
        pretrain(small("modern", "assembly.length=100000"), data, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_missing_data_of_a_later_phase_is_reported_before_training(
    data: Dataset, tmp_path: Path
) -> None:
    phases = "phases=[{}, {objectives: {masked: {selection: {kind: phrases}}}}]"
    with pytest.raises(UserError, match="text with such annotations"):
        pretrain(small("roberta", "text.tokenizer.kind=wordpiece", phases), data, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_recipe_is_fitted_to_the_tokenizer_of_the_data(data: Dataset) -> None:
    other = not data.tokenizer.lowercase
    changed = small("modern", "text.tokenizer.vocab_size=100", f"text.tokenizer.lowercase={other}")
    config = fit_recipe_to_data(changed, data).text.tokenizer
    assert (config.vocab_size, config.lowercase) == (
        data.tokenizer.vocab_size,
        data.tokenizer.lowercase,
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["modern-mini", "optimiser.learning_rat=1"], "did you mean 'learning_rate'"),
        (["modern-mimi"], "did you mean 'modern-mini'"),
        (["modern-mini", "tiny"], "neither a recipe nor an override"),
        (["--budget", "soon"], "90s, 20m or 1.5h"),
    ],
)
def test_a_mistake_is_one_sentence(
    words: list[str],
    message: str,
    data: Dataset,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    paths = ["--data", str(data.path), "-o", str(tmp_path / "out")]
    monkeypatch.setattr(sys, "argv", ["bertwright", "pretrain", *words, *paths])
    with pytest.raises(SystemExit) as ended:
        main()
    printed, error = capsys.readouterr()
    assert (ended.value.code, printed) == (2, "")
    assert message in error
    assert len(error.strip().splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_training_continues_uncompiled_if_compilation_fails(
    data: Dataset,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    failure = type("InductorError", (RuntimeError,), {"__module__": "torch._inductor.exc"})

    def fail(*_: object) -> None:
        raise failure

    def compile_parts(model: Model) -> None:
        model.encoder.blocks[0].register_full_backward_pre_hook(fail)

    monkeypatch.setattr(Model, "compile_parts", compile_parts)
    changes = ("steps=3", "checkpoint_every=2", "optimiser.kind=adamw")
    pretrain(small("modern", *changes, "compile=true"), data, tmp_path / "compiled")
    assert "the step cannot be compiled: InductorError; training continues uncompiled" in (
        capsys.readouterr().err
    )
    pretrain(small("modern", *changes), data, tmp_path / "eager")
    assert_equal(tmp_path / "compiled", tmp_path / "eager")


def test_a_run_that_fails_to_start_removes_its_folder(data: Dataset, tmp_path: Path) -> None:
    wrong = small("modern", "steps=3", "encoder.mixer.kernel=varlen")
    with pytest.raises(UserError, match="varlen"):
        pretrain(wrong, data, tmp_path / "out", quiet=True)
    assert not (tmp_path / "out").exists()
    pretrain(small("modern", "steps=3"), data, tmp_path / "out", quiet=True)


@pytest.mark.parametrize(
    "error",
    [
        TrainingInterrupted(signal.SIGTERM, 3, Path("out/checkpoints/step-00000003")),
        NonFiniteError("the loss is not finite", 7),
        MissingExtra("spaCy", "tagger"),
    ],
)
def test_errors_survive_pickling(error: Exception) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), vars(copy)) == (type(error), str(error), vars(error))


def test_a_finished_run_requires_the_same_data_and_budget(
    data: Dataset, spoken_data: Dataset, tmp_path: Path
) -> None:
    ended = tmp_path / "ended"
    pretrain(small("modern", "steps=2"), data, ended, quiet=True)
    with pytest.raises(UserError, match="other data"):
        pretrain(None, spoken_data, ended, resume=True)
    with pytest.raises(
        UserError, match="started with a number of steps: continue without --budget"
    ):
        pretrain(None, data, ended, resume=True, budget=60)
    with pytest.raises(UserError, match="was not started from"):
        pretrain(None, data, ended, resume=True, start_from=tmp_path)
    (ended / TRAINING_FILE).write_text("{}")
    with pytest.raises(UserError, match="holds a model that was not trained there"):
        pretrain(None, data, ended, resume=True)


def test_replaced_token_detection_requires_a_generator(data: Dataset, tmp_path: Path) -> None:
    in_turns = "objectives={replaced-token: {fraction: 1}, generated: {fraction: 1}}"
    for change in ("objectives.generated=null", in_turns):
        with pytest.raises(UserError, match="no objective replaces any"):
            pretrain(small("electra", change), data, tmp_path / "out")
