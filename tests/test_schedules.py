"""Schedules: exact values at the corners, and no jumps between them."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from bertwright.axes import Settings
from bertwright.schedules import (
    Constant,
    Cosine,
    InverseRoot,
    Linear,
    Part,
    Parts,
    Root,
    Schedule,
    SlantedTriangle,
    Value,
    Warmup,
)


class Masking(Settings):
    rate: Value = Constant(value=0.15)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (0.3, Constant(value=0.3)),
        (1, Constant(value=1.0)),
        ({"kind": "linear", "from": 0.3, "to": 0.15}, Linear(start=0.3, end=0.15)),
        ({"kind": "cosine", "from": 1, "to": 0}, Cosine()),
        ({"kind": "warmup", "decay": "cosine"}, Warmup(decay="cosine")),
        (
            {"kind": "parts", "parts": [{"share": 0.1, "value": 2}, {"share": 1, "value": "root"}]},
            Parts(
                parts=(Part(share=0.1, value=Constant(value=2.0)), Part(share=1.0, value=Root()))
            ),
        ),
    ],
)
def test_a_value_is_a_number_or_a_schedule(written: Any, meant: Schedule) -> None:
    masking = Masking.model_validate({"rate": written})
    assert masking.rate == meant
    assert Masking.model_validate(masking.model_dump(mode="json", by_alias=True)) == masking


@pytest.mark.parametrize("wrong", [True, "fast", {"kind": "linar"}, {"kind": "linear", "from": 1}])
def test_what_is_no_schedule_is_refused(wrong: Any) -> None:
    with pytest.raises(ValidationError):
        Masking.model_validate({"rate": wrong})


def test_constant_linear_and_cosine_at_start_middle_and_end() -> None:
    def values(schedule: Schedule) -> list[float]:
        return [schedule.at(progress) for progress in (0.0, 0.5, 1.0)]

    assert values(Constant(value=3.0)) == [3.0, 3.0, 3.0]
    assert values(Linear(start=4.0, end=1.0)) == [4.0, 2.5, 1.0]
    assert values(Cosine(start=4.0, end=1.0)) == pytest.approx([4.0, 2.5, 1.0])


@pytest.mark.parametrize(
    ("decay", "corners"),
    [
        ("linear", {0.0: 0.0, 0.1: 0.5, 0.2: 1.0, 0.6: 0.5, 1.0: 0.0}),
        ("cosine", {0.0: 0.0, 0.2: 1.0, 0.6: 0.5, 1.0: 0.0}),
        ("constant", {0.0: 0.0, 0.2: 1.0, 1.0: 1.0}),
        ("trapezoid", {0.0: 0.0, 0.2: 1.0, 0.6: 1.0, 0.8: 0.5, 1.0: 0.0}),
    ],
)
def test_warmup_and_decay(decay: Any, corners: dict[float, float]) -> None:
    schedule = Warmup(warmup=0.2, decay=decay, cooldown=0.4)
    assert {p: schedule.at(p) for p in corners} == pytest.approx(corners)


def test_a_floor_is_where_the_decay_ends() -> None:
    for decay in ("linear", "cosine", "trapezoid"):
        schedule = Warmup(decay=decay, floor=0.1)
        assert schedule.at(1.0) == pytest.approx(0.1)
        assert schedule.at(schedule.warmup) == pytest.approx(1.0)


@pytest.mark.parametrize(("steps", "cut_fraction"), [(1000, 0.1), (40, 0.25)])
def test_the_slanted_triangle_is_that_of_the_paper(steps: int, cut_fraction: float) -> None:
    """Howard and Ruder 2018, equation 3; it cuts at a whole step."""
    ratio, largest = 32, 0.01
    schedule = SlantedTriangle(cut=cut_fraction, ratio=ratio)
    cut = math.floor(steps * cut_fraction)
    for t in range(steps + 1):
        p = t / cut if t < cut else 1 - (t - cut) / (cut * (1 / cut_fraction - 1))
        expected = largest * (1 + p * (ratio - 1)) / ratio
        assert largest * schedule.at(t / steps) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("steps", [100_000, 8000])
def test_the_inverse_root_is_that_of_the_transformer(steps: int) -> None:
    """Vaswani et al. 2017, equation 3, over its highest rate."""
    warmup, width = 4000, 512
    schedule = InverseRoot(warmup=warmup / steps)
    highest = width**-0.5 * warmup**-0.5
    for step in range(1, steps, 97):
        expected = width**-0.5 * min(step**-0.5, step * warmup**-1.5)
        assert highest * schedule.at(step / steps) == pytest.approx(expected, rel=1e-9)


def test_without_the_rise_it_is_the_relative_step_of_adafactor() -> None:
    steps = 2**19
    schedule = InverseRoot(warmup=1e4 / steps, rise=False)
    for step in range(1, steps, 9973):
        expected = min(1e-2, step**-0.5)
        assert 1e-2 * schedule.at(step / steps) == pytest.approx(expected, rel=1e-9)


def test_the_cooldown_is_one_minus_the_root() -> None:
    for done in np.linspace(0, 1, 11):
        assert Root().at(done) == pytest.approx(1 - math.sqrt(done), abs=1e-12)
        assert Root(start=0.5, end=0.1).at(done) == pytest.approx(0.5 - 0.4 * math.sqrt(done))


def test_parts_follow_each_other_with_their_own_progress() -> None:
    schedule = Parts(
        parts=(
            Part(share=1, value=Linear(start=0, end=1)),
            Part(share=2, value=Constant(value=0.5)),
            Part(share=1, value=Root(start=0.5, end=0)),
        )
    )
    corners = {0.0: 0.0, 0.125: 0.5, 0.25: 0.5, 0.74: 0.5, 0.75: 0.5, 0.8125: 0.25, 1.0: 0.0}
    assert {p: schedule.at(p) for p in corners} == pytest.approx(corners)


@pytest.mark.parametrize(
    "schedule",
    [
        Constant(value=2.0),
        Linear(start=0.3, end=0.15),
        Cosine(start=0.2, end=0.4),
        Root(),
        Warmup(warmup=0.3, decay="trapezoid", floor=0.1),
        Warmup(warmup=0.8, decay="trapezoid", cooldown=0.5),
        Warmup(warmup=1.0),
        InverseRoot(warmup=0.25),
        SlantedTriangle(cut=0.25),
        Parts(parts=(Part(share=1, value=Linear(start=0, end=3)), Part(share=1, value=Root()))),
    ],
    ids=lambda schedule: schedule.kind,
)
def test_no_value_lies_beyond_the_extremes(schedule: Schedule) -> None:
    values = [schedule.at(progress) for progress in np.linspace(0, 1, 4001)]
    assert (min(values), max(values)) == pytest.approx(schedule.extremes(), abs=2e-3)


WARMUPS = TypeAdapter(Warmup)


@given(
    st.sampled_from(["linear", "cosine", "constant", "trapezoid"]),
    st.floats(0, 1),
    st.floats(0.01, 1),
    st.floats(0, 1),
)
def test_warmup_stays_between_nothing_and_all(
    decay: str, warmup: float, cooldown: float, floor: float
) -> None:
    schedule = WARMUPS.validate_python(
        {"warmup": warmup, "decay": decay, "cooldown": cooldown, "floor": floor}
    )
    values = [schedule.at(p) for p in np.linspace(0, 1, 21)]
    assert all(math.isfinite(v) and 0.0 <= v <= 1.0 + 1e-12 for v in values)
