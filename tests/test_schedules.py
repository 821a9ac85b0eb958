"""Schedules: exact values at the corners, and no jumps between them."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from bertwright.axes import Settings
from bertwright.schedules import Constant, Cosine, Linear, Schedule, Value, Warmup


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
