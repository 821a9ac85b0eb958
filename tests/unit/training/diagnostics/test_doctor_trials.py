"""Trials of the doctor on sound and faulty recipes."""

import json
from typing import Literal

import pytest
from typer.testing import CliRunner, Result

from bertwright.cli.app import app
from bertwright.core.errors import UserError
from bertwright.data.shards.dataset import Dataset, unigram_entropy
from bertwright.modules.initialisation import PublishedInitialisationConfig
from bertwright.recipes import Recipe
from bertwright.training.clock import TrainingClock
from bertwright.training.diagnostics.doctor import (
    Diagnostic,
    diagnose,
    memorisation,
    range_test,
    short_run,
)
from bertwright.training.diagnostics.doctor.range_test import RangeTestResult
from bertwright.training.diagnostics.doctor.trial import DiagnosticTrial, limit_batch_tokens
from bertwright.training.pretraining.run import PretrainingResult
from bertwright.training.process_group import SINGLE_PROCESS
from bertwright.training.step_monitor import NonFiniteError
from small_recipe import CHANGES, small

SOUND = (
    "phases=[{objectives: {masked: {}}}]",
    "batch_tokens=1024",
    "steps=400",
    "optimiser.learning_rate=1e-2",
)


class Silent(PublishedInitialisationConfig):
    """All weights are zero."""

    kind: Literal["silent"] = "silent"
    std: float = 0.0


def trial(recipe: Recipe, data: Dataset) -> DiagnosticTrial:
    result = DiagnosticTrial.of_recipe(recipe, data, SINGLE_PROCESS)
    assert result is not None
    return result


def memorise(recipe: Recipe, data: Dataset) -> Diagnostic:
    entropy = unigram_entropy(data.token_counts)
    result = memorisation.memorise_batch(trial(recipe, data), entropy, max_steps=80)
    return memorisation.diagnose_memorisation(result, entropy)


@pytest.mark.parametrize("system", ["modern", "bert"])
def test_a_sound_recipe_memorises_a_batch(system: str, data: Dataset) -> None:
    phases = "phases=[{objectives: {masked: {}}}]"
    diagnostic = memorise(small(system, phases, "encoder.dropout=0.5"), data)
    assert diagnostic.severity == "ok"
    assert diagnostic.metrics["loss"] < 0.5 * diagnostic.metrics["unigram_entropy"]


def test_an_encoder_that_cannot_learn_is_reported(data: Dataset) -> None:
    diagnostic = memorise(small("modern", *SOUND, "encoder.initialisation.kind=silent"), data)
    assert diagnostic.severity == "error"
    assert "encoder.initialisation" in diagnostic.advice


def test_a_non_finite_loss_is_reported(data: Dataset) -> None:
    loud = "encoder.initialisation={kind: published, std: 1e30}"
    diagnostic = memorise(small("modern", *SOUND, loud), data)
    assert diagnostic.severity == "error"
    assert "not finite" in diagnostic.message


def run_range_test(recipe: Recipe, data: Dataset, steps: int = 120) -> Diagnostic:
    limited = trial(recipe, data).with_batch_limit(512)
    result = range_test.run_range_test(limited, TrainingClock(steps))
    return range_test.diagnose_range_test(result, recipe)


def test_a_diverging_learning_rate_is_reported(data: Dataset) -> None:
    diagnostic = run_range_test(small("modern", *SOUND, "optimiser.learning_rate=10"), data)
    assert diagnostic.severity == "error"
    assert 1e-3 < diagnostic.metrics["largest_stable_learning_rate"] < 5
    assert "set optimiser.learning_rate=" in diagnostic.advice


def test_a_stable_learning_rate_is_ok(data: Dataset) -> None:
    assert run_range_test(small("modern", *SOUND), data).severity == "ok"


def test_a_range_test_of_few_steps_is_a_note(data: Dataset) -> None:
    assert run_range_test(small("modern", *SOUND), data, steps=5).severity == "note"


def test_the_largest_stable_learning_rate_is_before_the_rise() -> None:
    rates = [10.0 ** (-step / 20) for step in range(100, 0, -1)]
    losses = [7.0 - min(step, 60) / 30 + 2 * (step > 70) for step in range(100)]
    result = RangeTestResult(rates, losses, is_finite=True)
    assert result.has_diverged
    assert rates[65] < result.largest_stable_learning_rate <= rates[71]
    assert not RangeTestResult(rates[:70], losses[:70], is_finite=True).has_diverged
    assert RangeTestResult(rates[:70], losses[:70], is_finite=False).has_diverged


def run_of(loss: float, steps: int) -> PretrainingResult:
    metrics = {"masked_loss": loss, "unigram_entropy": 6.0}
    return PretrainingResult(
        folder=None, num_steps=steps, num_tokens=4096 * steps, seconds=9.0, metrics=metrics
    )


@pytest.mark.parametrize(
    ("loss", "steps", "severity"),
    [(5.0, 500, "ok"), (5.99, 500, "warning"), (5.99, 50, "note"), (5.0, 50, "ok")],
)
def test_a_run_on_the_plateau_is_reported(loss: float, steps: int, severity: str) -> None:
    diagnostic = short_run.diagnose_short_run(run_of(loss, steps), small("modern", *SOUND))
    assert diagnostic.severity == severity
    assert diagnostic.metrics["below_unigram_entropy"] == pytest.approx(6.0 - loss)


def test_a_diverging_short_run_is_reported(data: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    def diverges(*_: object, **__: object) -> None:
        raise NonFiniteError("the loss is not finite", 7)

    monkeypatch.setattr(short_run, "pretrain", diverges)
    diagnostic = short_run.run_and_diagnose(small("modern", *SOUND), data, 1.0, 64)
    assert (diagnostic.severity, diagnostic.check) == ("error", "trials.short-run")
    assert "in step 7" in diagnostic.message


def test_batches_are_limited() -> None:
    phases = "phases=[{batch: 0.015625}, {}, {length: 64}]"
    recipe = small("bert", phases, "batch_tokens=4096", "encoder.positions.size=64")
    limited = limit_batch_tokens(recipe, 40)
    assert [limited.batch_tokens_at(phase, 0.5) for phase in range(3)] == [40, 40, 64]
    assert limit_batch_tokens(recipe, 10**6) == recipe


def test_a_sound_recipe_on_a_sound_text_gets_no_warning(data: Dataset) -> None:
    report = diagnose(data, small("modern", *SOUND), minutes=0.05)
    assert [d for d in report.diagnostics if d.severity not in ("ok", "note")] == []
    assert report.severity == "note"
    trials = [d.check for d in report.diagnostics if d.check.startswith("trials.")]
    assert trials == ["trials.memorisation", "trials.range-test", "trials.short-run"]
    assert json.loads(json.dumps(report.as_dict()))["diagnostics"]


def test_a_recipe_without_objectives_is_rejected(data: Dataset) -> None:
    with pytest.raises(UserError, match="has no objectives"):
        diagnose(data, small("modern", *SOUND).model_copy(update={"objectives": {}}))


def doctor(*words: str) -> Result:
    return CliRunner().invoke(app, ["doctor", *words], catch_exceptions=False)


def test_the_command_prints_one_object_and_exits_with_1_for_a_warning(data: Dataset) -> None:
    post = ("encoder.norm.placement=post", "schedule=1")
    result = doctor(str(data.path), "modern", *CHANGES, *SOUND, *post, "--quick", "--json")
    assert result.exit_code == 1
    report = json.loads(result.stdout)
    assert report["severity"] == "warning"
    warned = {d["check"] for d in report["diagnostics"] if d["severity"] == "warning"}
    assert "recipe.warmup" in warned


def test_the_command_prints_a_table_and_exits_with_0(data: Dataset) -> None:
    result = doctor(str(data.path), "modern", *CHANGES, *SOUND, "--quick")
    assert result.exit_code == 0
    assert "data.unigram-entropy" in result.stdout
    assert "masks.corruption-rates" in result.stdout


def test_invalid_arguments_raise_an_error(data: Dataset) -> None:
    with pytest.raises(UserError, match="did you mean 'modern-mini'"):
        doctor(str(data.path), "modern-mimi")
    with pytest.raises(UserError, match="neither a recipe nor an override"):
        doctor(str(data.path), "modern-mini", "tiny")
