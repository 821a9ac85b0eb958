"""A few steps of training that show what is wrong, or that nothing is."""

import json
from typing import Literal

import pytest
from small_recipe import CHANGES, small
from typer.testing import CliRunner, Result

from bertwright.cli.application import app
from bertwright.encoder.initialisation import Published
from bertwright.errors import UserError
from bertwright.recipes import Recipe
from bertwright.text.shards import Data, unigram_entropy
from bertwright.training.clock import Clock
from bertwright.training.distributed import ALONE
from bertwright.training.doctor import Finding, by_heart, examine, range_test, short_run
from bertwright.training.doctor.range_test import Range
from bertwright.training.doctor.trial import Trial, with_batches
from bertwright.training.pretraining_run import Pretrained
from bertwright.training.step_watch import NotFinite

SOUND = (
    "phases=[{objectives: {masked: {}}}]",
    "batch_tokens=1024",
    "steps=400",
    "optimiser.rate=1e-2",
)


class Silent(Published):
    """Nothing leaves any layer."""

    kind: Literal["silent"] = "silent"
    std: float = 0.0


def trial(recipe: Recipe, data: Data) -> Trial:
    found = Trial.of(recipe, data, ALONE)
    assert found is not None
    return found


def learned(recipe: Recipe, data: Data) -> Finding:
    entropy = unigram_entropy(data.piece_counts)
    found = by_heart.learn_by_heart(trial(recipe, data), entropy, steps=80)
    return by_heart.judged(found, entropy)


@pytest.mark.parametrize("system", ["modern", "bert"])
def test_a_sound_body_learns_a_batch_by_heart(system: str, data: Data) -> None:
    phases = "phases=[{objectives: {masked: {}}}]"
    finding = learned(small(system, phases, "encoder.dropout=0.5"), data)
    assert finding.verdict == "ok"
    assert finding.figures["loss"] < 0.5 * finding.figures["unigram_entropy"]


def test_a_body_that_cannot_learn_is_named(data: Data) -> None:
    finding = learned(small("modern", *SOUND, "encoder.initialisation.kind=silent"), data)
    assert finding.verdict == "error"
    assert "encoder.initialisation" in finding.advice


def test_a_loss_that_is_not_finite_is_named(data: Data) -> None:
    loud = "encoder.initialisation={kind: published, std: 1e30}"
    finding = learned(small("modern", *SOUND, loud), data)
    assert finding.verdict == "error"
    assert "not finite" in finding.seen


def ranged(recipe: Recipe, data: Data, steps: int = 120) -> Finding:
    tried = trial(recipe, data).with_batches(512)
    return range_test.judged(range_test.range_test(tried, Clock(steps)), recipe)


def test_a_rate_that_diverges_is_named(data: Data) -> None:
    finding = ranged(small("modern", *SOUND, "optimiser.rate=10"), data)
    assert finding.verdict == "error"
    assert 1e-3 < finding.figures["largest_stable_rate"] < 5
    assert "set optimiser.rate=" in finding.advice


def test_a_rate_that_holds_is_left_alone(data: Data) -> None:
    assert ranged(small("modern", *SOUND), data).verdict == "ok"


def test_a_range_test_of_few_steps_says_nothing(data: Data) -> None:
    assert ranged(small("modern", *SOUND), data, steps=5).verdict == "note"


def test_the_largest_stable_rate_stands_before_the_rise() -> None:
    rates = [10.0 ** (-place / 20) for place in range(100, 0, -1)]
    losses = [7.0 - min(place, 60) / 30 + 2 * (place > 70) for place in range(100)]
    found = Range(rates, losses, finite=True)
    assert found.diverged
    assert rates[65] < found.largest_stable <= rates[71]
    assert not Range(rates[:70], losses[:70], finite=True).diverged
    assert Range(rates[:70], losses[:70], finite=False).diverged


def run_of(loss: float, steps: int) -> Pretrained:
    figures = {"masked_loss": loss, "unigram_entropy": 6.0}
    return Pretrained(path=None, steps=steps, tokens=4096 * steps, seconds=9.0, figures=figures)


@pytest.mark.parametrize(
    ("loss", "steps", "verdict"),
    [(5.0, 500, "ok"), (5.99, 500, "warning"), (5.99, 50, "note"), (5.0, 50, "ok")],
)
def test_a_run_that_stays_on_the_plateau_is_named(loss: float, steps: int, verdict: str) -> None:
    finding = short_run.judged(run_of(loss, steps), small("modern", *SOUND))
    assert finding.verdict == verdict
    assert finding.figures["below_unigram_entropy"] == pytest.approx(6.0 - loss)


def test_a_short_run_that_diverges_is_a_finding(
    data: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    def diverges(*_: object, **__: object) -> None:
        raise NotFinite("the loss is not finite", 7)

    monkeypatch.setattr(short_run, "pretrain", diverges)
    finding = short_run.found(small("modern", *SOUND), data, 1.0, 64)
    assert (finding.verdict, finding.check) == ("error", "trials.short-run")
    assert "in step 7" in finding.seen


def test_batches_are_cut_to_what_the_time_allows() -> None:
    phases = "phases=[{batch: 0.015625}, {}, {length: 64}]"
    recipe = small("bert", phases, "batch_tokens=4096", "encoder.positions.size=64")
    cut = with_batches(recipe, 40)
    assert [cut.batch_tokens_at(phase, 0.5) for phase in range(3)] == [40, 40, 64]
    assert with_batches(recipe, 10**6) == recipe


def test_a_sound_recipe_on_a_sound_text_gets_no_warning(data: Data) -> None:
    found = examine(data, small("modern", *SOUND), minutes=0.05)
    assert [f for f in found.findings if f.verdict not in ("ok", "note")] == []
    assert found.verdict == "note"
    trials = [f.check for f in found.findings if f.check.startswith("trials.")]
    assert trials == ["trials.by-heart", "trials.range-test", "trials.short-run"]
    assert json.loads(json.dumps(found.as_dict()))["findings"]


def test_a_recipe_that_asks_nothing_is_refused(data: Data) -> None:
    with pytest.raises(UserError, match="asks no question"):
        examine(data, small("modern", *SOUND).model_copy(update={"objectives": {}}))


def doctor(*words: str) -> Result:
    return CliRunner().invoke(app, ["doctor", *words], catch_exceptions=False)


def test_the_command_prints_one_object_and_exits_with_1_for_a_warning(data: Data) -> None:
    post = ("encoder.norm.placement=post", "schedule=1")
    done = doctor(str(data.path), "modern", *CHANGES, *SOUND, *post, "--quick", "--json")
    assert done.exit_code == 1
    found = json.loads(done.stdout)
    assert found["verdict"] == "warning"
    warned = {f["check"] for f in found["findings"] if f["verdict"] == "warning"}
    assert "recipe.warmup" in warned


def test_the_command_prints_a_table_and_exits_with_0(data: Data) -> None:
    done = doctor(str(data.path), "modern", *CHANGES, *SOUND, "--quick")
    assert done.exit_code == 0
    assert "data.unigram-entropy" in done.stdout
    assert "masks.shares" in done.stdout


def test_a_mistake_is_a_sentence_and_no_finding(data: Data) -> None:
    with pytest.raises(UserError, match="did you mean 'modern-mini'"):
        doctor(str(data.path), "modern-mimi")
    with pytest.raises(UserError, match="neither a recipe nor a change"):
        doctor(str(data.path), "modern-mini", "tiny")
