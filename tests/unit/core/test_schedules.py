"""Values of schedules."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from bertwright.core.config import Settings
from bertwright.core.schedules import (
    ConstantSchedule,
    CosineSchedule,
    InverseSquareRootSchedule,
    LinearSchedule,
    NumberOrSchedule,
    PiecewiseSchedule,
    Schedule,
    ScheduleSegment,
    SlantedTriangularSchedule,
    SquareRootSchedule,
    WarmupSchedule,
)


class Masking(Settings):
    rate: NumberOrSchedule = ConstantSchedule(value=0.15)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.3, ConstantSchedule(value=0.3)),
        (1, ConstantSchedule(value=1.0)),
        ({"kind": "linear", "from": 0.3, "to": 0.15}, LinearSchedule(start=0.3, end=0.15)),
        ({"kind": "cosine", "from": 1, "to": 0}, CosineSchedule()),
        ({"kind": "warmup", "decay": "cosine"}, WarmupSchedule(decay="cosine")),
        (
            {
                "kind": "parts",
                "parts": [{"fraction": 0.1, "value": 2}, {"fraction": 1, "value": "root"}],
            },
            PiecewiseSchedule(
                parts=(
                    ScheduleSegment(fraction=0.1, value=ConstantSchedule(value=2.0)),
                    ScheduleSegment(fraction=1.0, value=SquareRootSchedule()),
                )
            ),
        ),
    ],
)
def test_value_is_a_number_or_a_schedule(value: Any, expected: Schedule) -> None:
    masking = Masking.model_validate({"rate": value})
    assert masking.rate == expected
    assert Masking.model_validate(masking.model_dump(mode="json", by_alias=True)) == masking


@pytest.mark.parametrize("value", [True, "fast", {"kind": "linar"}, {"kind": "linear", "from": 1}])
def test_invalid_schedule_raises(value: Any) -> None:
    with pytest.raises(ValidationError):
        Masking.model_validate({"rate": value})


def test_constant_linear_and_cosine_at_start_middle_and_end() -> None:
    def values(schedule: Schedule) -> list[float]:
        return [schedule.at(progress) for progress in (0.0, 0.5, 1.0)]

    assert values(ConstantSchedule(value=3.0)) == [3.0, 3.0, 3.0]
    assert values(LinearSchedule(start=4.0, end=1.0)) == [4.0, 2.5, 1.0]
    assert values(CosineSchedule(start=4.0, end=1.0)) == pytest.approx([4.0, 2.5, 1.0])


@pytest.mark.parametrize(
    ("decay", "values_at"),
    [
        ("linear", {0.0: 0.0, 0.1: 0.5, 0.2: 1.0, 0.6: 0.5, 1.0: 0.0}),
        ("cosine", {0.0: 0.0, 0.2: 1.0, 0.6: 0.5, 1.0: 0.0}),
        ("cubic", {0.0: 0.0, 0.1: 0.5, 0.2: 1.0, 0.6: 0.125, 1.0: 0.0}),
        ("constant", {0.0: 0.0, 0.2: 1.0, 1.0: 1.0}),
        ("trapezoid", {0.0: 0.0, 0.2: 1.0, 0.6: 1.0, 0.8: 0.5, 1.0: 0.0}),
    ],
)
def test_warmup_and_decay(decay: Any, values_at: dict[float, float]) -> None:
    schedule = WarmupSchedule(warmup=0.2, decay=decay, cooldown=0.4)
    assert {p: schedule.at(p) for p in values_at} == pytest.approx(values_at)


def test_decay_ends_at_the_floor() -> None:
    for decay in ("linear", "cubic", "cosine", "trapezoid"):
        schedule = WarmupSchedule(decay=decay, floor=0.1)
        assert schedule.at(1.0) == pytest.approx(0.1)
        assert schedule.at(schedule.warmup) == pytest.approx(1.0)


@pytest.mark.parametrize(("steps", "cut_fraction"), [(1000, 0.1), (40, 0.25)])
def test_slanted_triangle_matches_the_paper(steps: int, cut_fraction: float) -> None:
    """Howard and Ruder 2018, equation 3; it cuts at a whole step."""
    ratio, peak = 32, 0.01
    schedule = SlantedTriangularSchedule(warmup=cut_fraction, ratio=ratio)
    cut = math.floor(steps * cut_fraction)
    for t in range(steps + 1):
        p = t / cut if t < cut else 1 - (t - cut) / (cut * (1 / cut_fraction - 1))
        expected = peak * (1 + p * (ratio - 1)) / ratio
        assert peak * schedule.at(t / steps) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("steps", [100_000, 8000])
def test_inverse_square_root_matches_the_transformer(steps: int) -> None:
    """Vaswani et al. 2017, equation 3, over its highest rate."""
    warmup, width = 4000, 512
    schedule = InverseSquareRootSchedule(warmup=warmup / steps)
    highest = width**-0.5 * warmup**-0.5
    for step in range(1, steps, 97):
        expected = width**-0.5 * min(step**-0.5, step * warmup**-1.5)
        assert highest * schedule.at(step / steps) == pytest.approx(expected, rel=1e-9)


def test_inverse_square_root_without_rise_matches_adafactor() -> None:
    steps = 2**19
    schedule = InverseSquareRootSchedule(warmup=1e4 / steps, rise=False)
    for step in range(1, steps, 9973):
        expected = min(1e-2, step**-0.5)
        assert 1e-2 * schedule.at(step / steps) == pytest.approx(expected, rel=1e-9)


def test_square_root_schedule() -> None:
    for progress in np.linspace(0, 1, 11):
        assert SquareRootSchedule().at(progress) == pytest.approx(
            1 - math.sqrt(progress), abs=1e-12
        )
        assert SquareRootSchedule(start=0.5, end=0.1).at(progress) == pytest.approx(
            0.5 - 0.4 * math.sqrt(progress)
        )


def test_piecewise_schedule() -> None:
    schedule = PiecewiseSchedule(
        parts=(
            ScheduleSegment(fraction=1, value=LinearSchedule(start=0, end=1)),
            ScheduleSegment(fraction=2, value=ConstantSchedule(value=0.5)),
            ScheduleSegment(fraction=1, value=SquareRootSchedule(start=0.5, end=0)),
        )
    )
    values_at = {0.0: 0.0, 0.125: 0.5, 0.25: 0.5, 0.74: 0.5, 0.75: 0.5, 0.8125: 0.25, 1.0: 0.0}
    assert {p: schedule.at(p) for p in values_at} == pytest.approx(values_at)


@pytest.mark.parametrize(
    "schedule",
    [
        ConstantSchedule(value=2.0),
        LinearSchedule(start=0.3, end=0.15),
        CosineSchedule(start=0.2, end=0.4),
        SquareRootSchedule(),
        WarmupSchedule(warmup=0.3, decay="trapezoid", floor=0.1),
        WarmupSchedule(warmup=0.8, decay="trapezoid", cooldown=0.5),
        WarmupSchedule(warmup=1.0),
        InverseSquareRootSchedule(warmup=0.25),
        SlantedTriangularSchedule(warmup=0.25),
        PiecewiseSchedule(
            parts=(
                ScheduleSegment(fraction=1, value=LinearSchedule(start=0, end=3)),
                ScheduleSegment(fraction=1, value=SquareRootSchedule()),
            )
        ),
    ],
    ids=lambda schedule: schedule.kind,
)
def test_value_range_bounds_all_values(schedule: Schedule) -> None:
    values = [schedule.at(progress) for progress in np.linspace(0, 1, 4001)]
    assert (min(values), max(values)) == pytest.approx(schedule.value_range(), abs=2e-3)


WARMUPS = TypeAdapter(WarmupSchedule)


@given(
    st.sampled_from(["linear", "cosine", "constant", "trapezoid"]),
    st.floats(0, 1),
    st.floats(0.01, 1),
    st.floats(0, 1),
)
def test_warmup_stays_between_0_and_1_without_jumps(
    decay: str, warmup: float, cooldown: float, floor: float
) -> None:
    schedule = WARMUPS.validate_python(
        {"warmup": warmup, "decay": decay, "cooldown": cooldown, "floor": floor}
    )
    values = [schedule.at(p) for p in np.linspace(0, 1, 21)]
    assert all(math.isfinite(v) and 0.0 <= v <= 1.0 + 1e-12 for v in values)
    before = schedule.at(max(schedule.warmup - 1e-9, 0.0))
    assert schedule.warmup < 1e-3 or before == pytest.approx(schedule.at(schedule.warmup), abs=1e-5)
