"""From a data set to a model folder, and every way to be stopped on it."""

import json
import os
import pickle
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch
from forks import forks
from safetensors.torch import load_file
from small_recipe import CHANGES, small

from bertwright.cli.application import main
from bertwright.errors import Interrupted, MissingExtra, UserError
from bertwright.files import held
from bertwright.model.folder import TRAINING, load_model
from bertwright.model.model import Model
from bertwright.text.shards import Data
from bertwright.training import pretraining_run
from bertwright.training.charts import draw_losses
from bertwright.training.metrics_file import read_metrics
from bertwright.training.pretraining import pretrain
from bertwright.training.pretraining_run import Pretrained
from bertwright.training.run_folder import fitted
from bertwright.training.step_watch import NotFinite
from recipes_at_toy_size import SYSTEMS, toy

BERT = ("phases=[{share: 0.7, length: 16}, {share: 0.3}]", "encoder.positions.size=64")
"""BERT with dropout, and a phase of short rows before a phase of longer ones."""

PROCEDURES = (
    "moving_average=0.5",
    "optimiser.layer_decay=0.7",
    "output.z_loss=1e-2",
    "batch_tokens={kind: linear, from: 128, to: 256}",
    "phases=[{share: 0.4, length: 16, trained: 2}, {share: 0.3, dropout: 0.5}, {dropout: 0}]",
)
"""Everything that may change from step to step or acts between steps."""


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def assert_equal(a: Path, b: Path) -> None:
    first, second = weights(a), weights(b)
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_a_run_leaves_a_model_folder(
    data: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pretraining_run, "draw_losses", draw_losses)
    result = pretrain(small("modern", "steps=30"), data, tmp_path / "out")
    assert isinstance(result, Pretrained)
    assert (result.steps, result.tokens) == (30, 30 * 256)
    model, tokenizer = load_model(tmp_path / "out")
    assert tokenizer.hash == data.tokenizer.hash
    assert model.recipe.text.tokenizer.size == data.tokenizer.size
    names = {p.name for p in (tmp_path / "out").iterdir()}
    assert names >= {"README.md", "loss.png", "metrics.jsonl", "training.json", "checkpoints"}
    about = json.loads((tmp_path / "out" / "training.json").read_text())
    assert about["data_hash"] == data.manifest.hash
    assert about["result"] == result.figures
    phases = [line["phase"] for line in read_metrics(tmp_path / "out" / "metrics.jsonl")]
    assert set(phases) == {0, 1, 2}


def test_training_learns_more_than_frequencies(data: Data, tmp_path: Path) -> None:
    recipe = small(
        "modern", "steps=150", "optimiser.rate=1e-2", "phases=[{objectives: {masked: {}}}]"
    )
    result = pretrain(recipe, data, tmp_path / "out")
    assert result.figures["masked_loss"] < result.figures["unigram_entropy"] - 0.1
    assert result.warnings == ()


def test_a_model_that_did_not_learn_is_warned_of(data: Data, tmp_path: Path) -> None:
    result = pretrain(small("modern", "steps=3"), data, tmp_path / "out")
    (warning,) = result.warnings
    assert "has not left the unigram entropy" in warning
    assert "give it more steps" in warning


@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_kills_change_nothing(data: Data, tmp_path: Path, precision: str) -> None:
    recipe = small("bert", *BERT, f"precision={precision}", "steps=24", "checkpoint_every=2")
    pretrain(recipe, data, tmp_path / "whole")
    killed, checkpoints = 0, tmp_path / "cut" / "checkpoints"
    for seen in range(3):
        process = forks.Process(
            target=pretrain, args=(recipe, data.path, tmp_path / "cut"), kwargs={"resume": True}
        )
        before = {*checkpoints.glob("step-*")}
        process.start()
        while process.is_alive() and {*checkpoints.glob("step-*")} == before:
            time.sleep(0.002 * (1 + seen))
        process.kill()
        process.join()
        killed += process.exitcode == -signal.SIGKILL
    assert killed
    pretrain(recipe, data, tmp_path / "cut", resume=True)
    assert_equal(tmp_path / "whole", tmp_path / "cut")


def test_a_run_keeps_to_the_precision_that_it_began_with(
    data: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = small("bert", "precision=null", "steps=4", "checkpoint_every=1")
    for begun, later in (("float32", "bf16"), ("bf16", "float32")):
        whole, cut = tmp_path / f"whole-{begun}", tmp_path / f"cut-{begun}"
        monkeypatch.setattr(pretraining_run, "usual_precision", lambda device, begun=begun: begun)
        pretrain(recipe, data, whole)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("bertwright.training.checkpoints.Checkpoints._prune", stop_at(2))
            with pytest.raises(KeyboardInterrupt):
                pretrain(recipe, data, cut)
        monkeypatch.setattr(pretraining_run, "usual_precision", lambda device, later=later: later)
        pretrain(recipe, data, cut, resume=True)
        assert_equal(whole, cut)
        assert json.loads((cut / TRAINING).read_text())["precision"] == begun


def test_a_slower_bfloat16_is_warned_of(
    data: Data,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for faster in ("bf16", "float32"):
        monkeypatch.setattr(pretraining_run, "usual_precision", lambda device, usual=faster: usual)
        pretrain(small("bert", "precision=bf16", "steps=1"), data, tmp_path / faster)
        assert ("precision=bf16 is" in capsys.readouterr().err) == (faster == "float32")


def test_a_stop_at_any_step_changes_nothing(data: Data, tmp_path: Path) -> None:
    recipe = small("modern", "steps=10", "checkpoint_every=1", "encoder.depth.drop=0.3")
    pretrain(recipe, data, tmp_path / "whole")
    evaluations = evaluations_of(tmp_path / "whole")
    for stop in (2, 5, 8):  # within a phase, and at the ends of two
        folder = tmp_path / f"cut-{stop}"
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("bertwright.training.checkpoints.Checkpoints._prune", stop_at(stop))
            with pytest.raises(KeyboardInterrupt):
                pretrain(recipe, data, folder)
        pretrain(recipe, data, folder, resume=True)
        assert_equal(tmp_path / "whole", folder)
        assert evaluations_of(folder) == evaluations


@pytest.mark.parametrize("system", SYSTEMS)
def test_every_system_is_trained_stopped_and_resumed(
    rich_data: Data, tmp_path: Path, system: str
) -> None:
    data = rich_data
    every = ("checkpoint_every=5", "evaluate_every=5")
    changes = ("steps=8", *every, "text.tokenizer.kind=wordpiece")
    recipe = toy(system, *changes)
    pretrain(recipe, data, tmp_path / "whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bertwright.training.checkpoints.Checkpoints._prune", stop_at(5))
        with pytest.raises(KeyboardInterrupt):
            pretrain(recipe, data, tmp_path / "cut")
    pretrain(recipe, data, tmp_path / "cut", resume=True)
    assert_equal(tmp_path / "whole", tmp_path / "cut")
    load_model(tmp_path / "cut")


def evaluations_of(folder: Path) -> list[dict[str, float]]:
    """What was found on held-out text along the way."""
    lines = read_metrics(folder / "metrics.jsonl")
    return [{**line, "seconds": 0} for line in lines if "loss" not in line]


def stop_at(step: int):
    def prune(checkpoints) -> None:
        if (checkpoints.folder / f"step-{step:08d}").exists():
            raise KeyboardInterrupt

    return prune


def test_a_compiled_run_resumes_bit_for_bit(data: Data, tmp_path: Path) -> None:
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
        patch.setattr("bertwright.training.checkpoints.Checkpoints._prune", stop_at(2))
        with pytest.raises(KeyboardInterrupt):
            pretrain(recipe, data, tmp_path / "cut")
    again = pretrain(recipe, data, tmp_path / "cut", resume=True)
    assert_equal(tmp_path / "whole", tmp_path / "cut")
    assert whole.figures == again.figures


def test_a_rate_that_diverges_stops_the_run(data: Data, tmp_path: Path) -> None:
    recipe = small("modern", "optimiser.rate=1e30", "schedule=1", "checkpoint_every=1", "clip=null")
    with pytest.raises(UserError, match="not finite at step"):
        pretrain(recipe, data, tmp_path / "out")
    (batch,) = (tmp_path / "out").glob("not-finite-step-*.safetensors")
    assert "micro_batches.0.pieces" in load_file(batch)
    kept = load_file(*(tmp_path / "out" / "checkpoints").glob("*/parameters.safetensors"))
    assert all(tensor.isfinite().all() for tensor in kept.values())


def test_a_full_disk_leaves_the_last_checkpoint(data: Data, tmp_path: Path) -> None:
    recipe = small("modern", "steps=6", "checkpoint_every=2")
    pretrain(recipe, data, tmp_path / "whole")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bertwright.training.checkpoints.Checkpoints._prune", fill_disk)
        try:
            with pytest.raises(UserError, match="free some space"):
                pretrain(recipe, data, tmp_path / "out")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert [p.name for p in (tmp_path / "out" / "checkpoints").iterdir()] == ["step-00000002"]
    pretrain(recipe, data, tmp_path / "out", resume=True)
    assert_equal(tmp_path / "whole", tmp_path / "out")


def fill_disk(_: object) -> None:
    """From now on no file may be larger than 20 kB."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))


def test_a_finished_run_is_not_trained_again(data: Data, tmp_path: Path) -> None:
    recipe = small("modern", "steps=2")
    first = pretrain(recipe, data, tmp_path / "out")
    before = (tmp_path / "out" / "model.safetensors").stat().st_mtime_ns
    assert pretrain(None, data, tmp_path / "out", resume=True).figures == first.figures
    assert (tmp_path / "out" / "model.safetensors").stat().st_mtime_ns == before


def test_resuming_nothing_starts_from_the_beginning(data: Data, tmp_path: Path) -> None:
    assert pretrain(small("modern", "steps=2"), data, tmp_path / "out", resume=True).steps == 2


def test_a_budget_is_kept(data: Data, tmp_path: Path) -> None:
    result = pretrain(small(), data, tmp_path / "out", budget="2s")
    lines = (tmp_path / "out" / "clock.jsonl").read_text().splitlines()
    totals = [json.loads(line)["total"] for line in lines if "total" in json.loads(line)]
    assert totals[-1] == result.steps
    about = json.loads((tmp_path / "out" / TRAINING).read_text())
    assert about["budget_seconds"] == 2


def test_a_model_is_trained_further(data: Data, tmp_path: Path) -> None:
    pretrain(small("modern", "steps=3"), data, tmp_path / "first")
    changes = ["steps=1", "schedule=1e-9"]
    pretrain(None, data, tmp_path / "second", changes=changes, start_from=tmp_path / "first")
    before, after = weights(tmp_path / "first"), weights(tmp_path / "second")
    assert all(torch.allclose(before[name], after[name], atol=1e-7) for name in before)


def test_a_model_trained_further_continues_from_it(data: Data, tmp_path: Path) -> None:
    pretrain(small("modern", "steps=3"), data, tmp_path / "first")
    further = {"changes": ["steps=4", "checkpoint_every=9"], "start_from": tmp_path / "first"}
    pretrain(None, data, tmp_path / "whole", **further)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bertwright.training.checkpoints.Checkpoints.write", interrupt)
        with pytest.raises(KeyboardInterrupt):
            pretrain(None, data, tmp_path / "cut", **further)
    pretrain(None, data, tmp_path / "cut", resume=True)
    assert_equal(tmp_path / "whole", tmp_path / "cut")


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.processor
def test_two_processes_end_within_rounding_of_one(data: Data, tmp_path: Path) -> None:
    changes = (*BERT[1:], *PROCEDURES, "steps=6")
    pretrain(small("bert", *changes), data, tmp_path / "one")
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    verb = ["-m", "bertwright", "pretrain", "bert", *CHANGES, *changes]
    paths = ["--data", str(data.path), "-o", str(tmp_path / "two")]
    subprocess.run([sys.executable, *torchrun, *verb, *paths], check=True, capture_output=True)
    one, two = weights(tmp_path / "one"), weights(tmp_path / "two")
    assert all(torch.allclose(one[name], two[name], atol=2e-5) for name in one)


def test_a_termination_is_answered_with_a_checkpoint(data: Data, tmp_path: Path) -> None:
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


def test_an_interrupt_reaches_a_caller_in_python(data: Data, tmp_path: Path) -> None:
    metrics = tmp_path / "out" / "metrics.jsonl"

    def interrupt() -> None:
        while not (metrics.exists() and metrics.stat().st_size):
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(Interrupted):
        pretrain(small("modern", "steps=1000000"), data, tmp_path / "out")


@pytest.fixture
def started(data: Data, tmp_path: Path) -> Path:
    """A run that was begun and stopped."""
    folder = tmp_path / "out"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bertwright.training.checkpoints.Checkpoints._prune", stop_at(2))
        with pytest.raises(KeyboardInterrupt):
            pretrain(small("modern", "checkpoint_every=2"), data, folder)
    return folder


def test_a_started_run_is_not_started_over(data: Data, started: Path) -> None:
    with (
        held(started),
        pytest.raises(UserError, match="another process is writing to"),
    ):
        pretrain(None, data, started, resume=True)
    with pytest.raises(UserError, match="holds no run to continue"):
        pretrain(None, data, started / "none", resume=True)
    with pytest.raises(UserError, match="add --resume"):
        pretrain(small(), data, started)


def test_a_run_does_not_continue_as_another(data: Data, byte_data: Data, started: Path) -> None:
    with pytest.raises(UserError, match=r"another optimiser\.rate"):
        pretrain(small("modern", "optimiser.rate=1"), data, started, resume=True)
    with pytest.raises(UserError, match="without --budget"):
        pretrain(None, data, started, resume=True, budget=60)
    with pytest.raises(UserError, match=r"text\.tokenizer|other data|prepared with"):
        pretrain(None, byte_data, started, resume=True)


def test_a_damaged_checkpoint_is_passed_over(
    data: Data, started: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    other = started / "checkpoints" / "step-00000003"
    other.mkdir()
    (other / "state.json").write_text("{")
    pretrain(None, data, started, resume=True)
    assert "step-00000003 is damaged and passed over" in capfd.readouterr().err


def test_a_folder_that_is_in_use_is_left_alone(data: Data, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(UserError, match="already exists"):
        pretrain(small(), data, tmp_path)


def test_data_of_another_kind_of_tokenizer_are_refused(byte_data: Data, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"byte-bpe .* asks for wordpiece"):
        pretrain(small(), byte_data, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_model_of_another_tokenizer_or_encoder_is_refused(
    data: Data, byte_data: Data, tmp_path: Path
) -> None:
    pretrain(small("modern", "steps=1"), data, tmp_path / "model")
    byte_recipe = small("modern", "text.tokenizer.kind=byte-bpe", "steps=1")
    with pytest.raises(UserError, match="another tokenizer"):
        pretrain(byte_recipe, byte_data, tmp_path / "a", start_from=tmp_path / "model")
    wider = small("modern", "encoder.width=48", "steps=1")
    with pytest.raises(UserError, match="its encoder is not the recipe's"):
        pretrain(wider, data, tmp_path / "b", start_from=tmp_path / "model")
    with pytest.raises(UserError, match="not a model folder"):
        pretrain(None, data, tmp_path / "c", start_from=tmp_path / "nowhere")
    assert not {"a", "b", "c"} & {path.name for path in tmp_path.iterdir()}


def test_too_little_text_for_a_row_is_said_before_anything_is_written(
    data: Data, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match="too few for one row"):
        pretrain(small("modern", "assembly.length=100000"), data, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_what_a_later_phase_lacks_is_said_before_anything_is_trained(
    data: Data, tmp_path: Path
) -> None:
    phases = "phases=[{}, {objectives: {masked: {selection: {kind: phrases}}}}]"
    with pytest.raises(UserError, match="text in which they are annotated"):
        pretrain(small("roberta", "text.tokenizer.kind=wordpiece", phases), data, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_recipe_of_a_run_says_what_its_data_are(data: Data) -> None:
    asked = not data.tokenizer.lowercase
    changed = small("modern", "text.tokenizer.size=100", f"text.tokenizer.lowercase={asked}")
    found = fitted(changed, data).text.tokenizer
    assert (found.size, found.lowercase) == (data.tokenizer.size, data.tokenizer.lowercase)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["modern-mini", "optimiser.rat=1"], "did you mean 'rate'"),
        (["modern-mimi"], "did you mean 'modern-mini'"),
        (["modern-mini", "tiny"], "neither a recipe nor a change"),
        (["--budget", "soon"], "90s, 20m or 1.5h"),
    ],
)
def test_a_mistake_is_one_sentence(
    words: list[str],
    said: str,
    data: Data,
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
    assert said in error
    assert len(error.strip().splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_what_the_compiler_cannot_do_is_trained_without_it(
    data: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failure = type("InductorError", (RuntimeError,), {"__module__": "torch._inductor.exc"})

    def fail(*_: object) -> None:
        raise failure

    def compile_parts(model: Model) -> None:
        model.encoder.blocks[0].register_full_backward_pre_hook(fail)

    monkeypatch.setattr(Model, "compile_parts", compile_parts)
    changes = ("steps=3", "checkpoint_every=2", "optimiser.kind=adamw")
    pretrain(small("modern", *changes, "compile=true"), data, tmp_path / "compiled")
    assert "the step cannot be compiled: InductorError; training goes on uncompiled" in (
        capsys.readouterr().err
    )
    pretrain(small("modern", *changes), data, tmp_path / "eager")
    assert_equal(tmp_path / "compiled", tmp_path / "eager")


def test_a_run_that_cannot_begin_leaves_its_folder_free(data: Data, tmp_path: Path) -> None:
    wrong = small("modern", "steps=3", "encoder.mixer.kernel=varlen")
    with pytest.raises(UserError, match="varlen"):
        pretrain(wrong, data, tmp_path / "out", quiet=True)
    assert not (tmp_path / "out").exists()
    pretrain(small("modern", "steps=3"), data, tmp_path / "out", quiet=True)


@pytest.mark.parametrize(
    "there",
    [
        Interrupted(signal.SIGTERM, 3, Path("out/checkpoints/step-00000003")),
        NotFinite("the loss is not finite", 7),
        MissingExtra("spaCy", "tagger"),
    ],
)
def test_an_error_comes_whole_from_another_process(there: Exception) -> None:
    here = pickle.loads(pickle.dumps(there))
    assert (type(here), str(here), vars(here)) == (type(there), str(there), vars(there))


def test_what_has_ended_is_told_of_its_own_data_alone(
    data: Data, spoken_data: Data, tmp_path: Path
) -> None:
    ended = tmp_path / "ended"
    pretrain(small("modern", "steps=2"), data, ended, quiet=True)
    with pytest.raises(UserError, match="other data"):
        pretrain(None, spoken_data, ended, resume=True)
    with pytest.raises(UserError, match="started with steps: continue without --budget"):
        pretrain(None, data, ended, resume=True, budget=60)
    with pytest.raises(UserError, match="was not started from"):
        pretrain(None, data, ended, resume=True, start_from=tmp_path)
    (ended / TRAINING).write_text("{}")
    with pytest.raises(UserError, match="holds a model that was not trained there"):
        pretrain(None, data, ended, resume=True)


def test_what_was_replaced_is_not_asked_where_nothing_is(data: Data, tmp_path: Path) -> None:
    by_turns = "objectives={replaced-token: {share: 1}, generated: {share: 1}}"
    for change in ("objectives.generated=null", by_turns):
        with pytest.raises(UserError, match="nothing replaces pieces"):
            pretrain(small("electra", change), data, tmp_path / "out")
