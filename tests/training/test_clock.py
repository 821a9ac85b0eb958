"""Laws of the clock."""

import json
from pathlib import Path

import pytest

from bertwright.errors import UserError
from bertwright.training.clock import BudgetClock, Clock, Journal, Place, every, seconds_of, times


def test_steps_are_even_progress() -> None:
    clock = Clock(4)
    assert [clock.place(s).progress for s in range(4)] == [0.0, 0.25, 0.5, 0.75]
    assert [clock.place(s).middle for s in range(4)] == [0.125, 0.375, 0.625, 0.875]
    assert not clock.finished(3)
    assert clock.finished(4)


@pytest.mark.parametrize("steps", [10, 30, 100, 1000, 7])
def test_phases_get_their_shares_of_the_steps(steps: int) -> None:
    clock = Clock(steps, (0.3, 0.6, 0.1))
    phases = [clock.place(s).phase for s in range(steps)]
    assert phases == sorted(phases)
    for phase, share in enumerate((0.3, 0.6, 0.1)):
        assert abs(phases.count(phase) - share * steps) <= 1
        if steps % 10 == 0:
            assert phases.count(phase) == round(share * steps)


def test_phase_progress_runs_from_zero_to_one_in_every_phase() -> None:
    clock = Clock(100, (1, 3))
    assert clock.place(0).phase_progress == 0.0
    assert clock.place(24).phase_progress == pytest.approx(0.96)
    assert clock.place(25).phase_progress == pytest.approx(0.0)
    assert clock.place(99).phase_progress == pytest.approx(74 / 75)


class World:
    """A machine whose time passes as it is told."""

    def __init__(self) -> None:
        self.time = 1000.0

    def now(self) -> float:
        return self.time


def run(
    budget: float,
    seconds: dict[int, float],
    journal: Journal,
    world: World,
    first: int = 0,
    stop: int | None = None,
    evaluation: float = 0.0,
    start_up: float = 3.0,
) -> tuple[BudgetClock, list[Place]]:
    """Go through a run whose steps take ``seconds`` of their phase; a first one compiles."""
    clock = BudgetClock(
        budget, (0.5, 0.5), started=world.time - start_up, now=world.now, journal=journal
    )
    places: list[Place] = []
    step, phase = first, -1
    clock.observe(step)
    while not clock.finished(step) and step != stop:
        place = clock.place(step)
        places.append(place)
        world.time += seconds[place.phase] + (20.0 if place.phase != phase else 0.0)
        phase = place.phase
        step += 1
        clock.observe(step)
        if times(9)(place, clock.place(step)):
            with clock.pause():
                world.time += evaluation
    world.time += clock.closing
    return clock, places


@pytest.mark.parametrize("budget", [120.0, 1500.0])
@pytest.mark.parametrize("seconds", [{0: 0.1, 1: 0.1}, {0: 0.1, 1: 0.3}, {0: 1.5, 1: 0.4}])
@pytest.mark.parametrize("evaluation", [0.0, 2.0])
def test_progress_ends_as_the_budget_ends(
    budget: float, seconds: dict[int, float], evaluation: float
) -> None:
    world = World()
    clock, places = run(budget, seconds, Journal(), world, evaluation=evaluation)
    assert clock.elapsed() == pytest.approx(budget, rel=0.05)
    assert places[-1].progress > 0.9
    assert [p.progress for p in places] == sorted(p.progress for p in places)
    share = sum(p.phase == 0 for p in places) * seconds[0] / budget
    assert 0.2 < share < 0.8


def test_an_uneven_machine_still_ends_in_time() -> None:
    world = World()
    clock = BudgetClock(600.0, started=world.time, now=world.now)
    step = 0
    clock.observe(step)
    while not clock.finished(step):
        world.time += 0.1 * (2.0 if 2000 < step < 3000 else 1.0)
        step += 1
        clock.observe(step)
    world.time += clock.closing
    assert clock.elapsed() == pytest.approx(600.0, rel=0.05)


def test_a_budget_too_short_for_anything_stops_at_once() -> None:
    world = World()
    _, places = run(1.0, {0: 5.0, 1: 5.0}, Journal(), world)
    assert len(places) <= 3


def test_a_resumed_run_follows_the_plans_of_the_first(tmp_path: Path) -> None:
    file = tmp_path / "clock.jsonl"
    _, first = run(600.0, {0: 0.1, 1: 0.1}, Journal(file), World(), stop=2000)
    _, second = run(600.0, {0: 0.3, 1: 0.3}, Journal(file), World(), first=500)
    planned = json.loads(file.read_text().splitlines()[-1])
    last = [p["step"] for p in map(json.loads, file.read_text().splitlines()) if p["step"] <= 2000]
    assert planned["step"] > 2000
    for a, b in zip(first[500 : last[-1]], second, strict=False):
        assert a == b


@pytest.mark.parametrize("cut", [1, 4])
def test_a_journal_cut_short_loses_its_last_line_only(tmp_path: Path, cut: int) -> None:
    file = tmp_path / "clock.jsonl"
    journal = Journal(file)
    journal.add({"step": 1})
    journal.add({"step": 2})
    file.write_bytes(file.read_bytes()[:-cut])
    again = Journal(file)
    assert again.entries == [{"step": 1}]
    again.add({"step": 3})
    assert Journal(file).entries == [{"step": 1}, {"step": 3}]


def test_a_decision_is_taken_once(tmp_path: Path) -> None:
    assert Journal(tmp_path / "j").decide("compile", lambda: True) is True
    assert Journal(tmp_path / "j").decide("compile", lambda: False) is True


def test_every_and_times() -> None:
    clock = Clock(20)
    pairs = [(clock.place(s), clock.place(s + 1)) for s in range(20)]
    assert [b.step for a, b in pairs if every(6)(a, b)] == [6, 12, 18]
    assert [b.step for a, b in pairs if times(3)(a, b)] == [5, 10, 15]


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("20m", 1200), ("1.5h", 5400)])
def test_budgets_are_read(text: str, seconds: float) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["20", "m", "-3s", "1h30m", "0s", ""])
def test_other_texts_are_no_budget(text: str) -> None:
    with pytest.raises(UserError, match=r"90s, 20m or 1\.5h"):
        seconds_of(text)
