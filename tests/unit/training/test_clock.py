"""Training clocks by steps and by time."""

import json
import math
from pathlib import Path

import pytest

from bertwright.core.errors import UserError
from bertwright.training.clock import (
    BudgetClock,
    DecisionLog,
    Progress,
    TrainingClock,
    budget_in_seconds,
    evenly_spaced,
    every_n_steps,
    parse_duration,
)


def test_steps_are_even_progress() -> None:
    clock = TrainingClock(4)
    assert [clock.progress(s).fraction for s in range(4)] == [0.0, 0.25, 0.5, 0.75]
    assert [clock.progress(s).midpoint for s in range(4)] == [0.125, 0.375, 0.625, 0.875]
    assert not clock.is_finished(3)
    assert clock.is_finished(4)


@pytest.mark.parametrize("steps", [10, 30, 100, 1000, 7])
def test_phases_get_their_fractions_of_the_steps(steps: int) -> None:
    clock = TrainingClock(steps, (0.3, 0.6, 0.1))
    phases = [clock.progress(s).phase for s in range(steps)]
    assert phases == sorted(phases)
    for phase, fraction in enumerate((0.3, 0.6, 0.1)):
        assert abs(phases.count(phase) - fraction * steps) <= 1
        if steps % 10 == 0:
            assert phases.count(phase) == round(fraction * steps)


def test_phase_progress_runs_from_zero_to_one_in_every_phase() -> None:
    clock = TrainingClock(100, (1, 3))
    assert clock.progress(0).phase_fraction == 0.0
    assert clock.progress(24).phase_fraction == pytest.approx(0.96)
    assert clock.progress(25).phase_fraction == pytest.approx(0.0)
    assert clock.progress(99).phase_fraction == pytest.approx(74 / 75)


class FakeTime:
    """A clock that tests advance."""

    def __init__(self) -> None:
        self.time = 1000.0

    def now(self) -> float:
        return self.time


def run(
    budget: float,
    seconds: dict[int, float],
    decision_log: DecisionLog,
    fake_time: FakeTime,
    first: int = 0,
    stop: int | None = None,
    evaluation: float = 0.0,
    start_up: float = 3.0,
) -> tuple[BudgetClock, list[Progress]]:
    """Simulate a run with ``seconds`` per step by phase; the first step of a phase compiles."""
    clock = BudgetClock(
        budget,
        (0.5, 0.5),
        start_time=fake_time.time - start_up,
        now=fake_time.now,
        decision_log=decision_log,
    )
    steps_done: list[Progress] = []
    step, phase = first, -1
    clock.observe(step)
    while not clock.is_finished(step) and step != stop:
        progress = clock.progress(step)
        steps_done.append(progress)
        fake_time.time += seconds[progress.phase] + (20.0 if progress.phase != phase else 0.0)
        phase = progress.phase
        step += 1
        clock.observe(step)
        if evenly_spaced(9)(progress, clock.progress(step)):
            with clock.pause():
                fake_time.time += evaluation
    fake_time.time += clock.reserved_seconds
    return clock, steps_done


@pytest.mark.parametrize("budget", [120.0, 1500.0])
@pytest.mark.parametrize("seconds", [{0: 0.1, 1: 0.1}, {0: 0.1, 1: 0.3}, {0: 1.5, 1: 0.4}])
@pytest.mark.parametrize("evaluation", [0.0, 2.0])
def test_progress_ends_as_the_budget_ends(
    budget: float, seconds: dict[int, float], evaluation: float
) -> None:
    fake_time = FakeTime()
    clock, steps_done = run(budget, seconds, DecisionLog(), fake_time, evaluation=evaluation)
    assert clock.elapsed_seconds() == pytest.approx(budget, rel=0.05)
    assert steps_done[-1].fraction > 0.9
    assert [p.fraction for p in steps_done] == sorted(p.fraction for p in steps_done)
    fraction = sum(p.phase == 0 for p in steps_done) * seconds[0] / budget
    assert 0.2 < fraction < 0.8


def test_varying_speed_still_ends_in_time() -> None:
    fake_time = FakeTime()
    clock = BudgetClock(600.0, start_time=fake_time.time, now=fake_time.now)
    step = 0
    clock.observe(step)
    while not clock.is_finished(step):
        fake_time.time += 0.1 * (2.0 if 2000 < step < 3000 else 1.0)
        step += 1
        clock.observe(step)
    fake_time.time += clock.reserved_seconds
    assert clock.elapsed_seconds() == pytest.approx(600.0, rel=0.05)


def test_a_tiny_budget_stops_immediately() -> None:
    fake_time = FakeTime()
    _, steps_done = run(1.0, {0: 5.0, 1: 5.0}, DecisionLog(), fake_time)
    assert len(steps_done) <= 3


def test_a_resumed_run_follows_the_plans_of_the_first(tmp_path: Path) -> None:
    file = tmp_path / "decisions.jsonl"
    _, first = run(600.0, {0: 0.1, 1: 0.1}, DecisionLog(file), FakeTime(), stop=2000)
    _, second = run(600.0, {0: 0.3, 1: 0.3}, DecisionLog(file), FakeTime(), first=500)
    last_plan = json.loads(file.read_text().splitlines()[-1])
    last = [p["step"] for p in map(json.loads, file.read_text().splitlines()) if p["step"] <= 2000]
    assert last_plan["step"] > 2000
    for a, b in zip(first[500 : last[-1]], second, strict=False):
        assert a == b


@pytest.mark.parametrize("num_bytes", [1, 4])
def test_a_truncated_log_loses_its_last_line_only(tmp_path: Path, num_bytes: int) -> None:
    file = tmp_path / "decisions.jsonl"
    decision_log = DecisionLog(file)
    decision_log.add({"step": 1})
    decision_log.add({"step": 2})
    file.write_bytes(file.read_bytes()[:-num_bytes])
    again = DecisionLog(file)
    assert again.entries == [{"step": 1}]
    again.add({"step": 3})
    assert DecisionLog(file).entries == [{"step": 1}, {"step": 3}]


def test_a_decision_is_made_once(tmp_path: Path) -> None:
    assert DecisionLog(tmp_path / "j").decide("compile", lambda: True) is True
    assert DecisionLog(tmp_path / "j").decide("compile", lambda: False) is True


def test_triggers() -> None:
    clock = TrainingClock(20)
    pairs = [(clock.progress(s), clock.progress(s + 1)) for s in range(20)]
    assert [b.step for a, b in pairs if every_n_steps(6)(a, b)] == [6, 12, 18]
    assert [b.step for a, b in pairs if evenly_spaced(3)(a, b)] == [5, 10, 15]


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("20m", 1200), ("1.5h", 5400)])
def test_durations_are_parsed(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["20", "m", "-3s", "1h30m", "0s", "", "9" * 400 + "h"])
def test_invalid_durations_are_rejected(text: str) -> None:
    with pytest.raises(UserError, match=r"90s, 20m or 1\.5h"):
        parse_duration(text)


def test_budgets_are_text_or_seconds() -> None:
    assert [budget_in_seconds(b) for b in ("20m", 7, 0.5, None)] == [1200, 7, 0.5, None]


@pytest.mark.parametrize("seconds", [0.0, -1.0, math.nan, math.inf, 1e12])
def test_invalid_numbers_of_seconds_are_rejected(seconds: float) -> None:
    with pytest.raises(UserError, match="give a positive number of seconds"):
        budget_in_seconds(seconds)
