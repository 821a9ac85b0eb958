"""Numbers with units."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertwright.core.quantities import (
    readable_bytes,
    readable_count,
    readable_flops,
    readable_fraction,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (readable_count(110_106_428, "parameters"), "110 M parameters"),
        (readable_count(11_813_810), "11.8 M"),
        (readable_count(999), "999"),
        (readable_count(1000), "1.00 K"),
        (readable_count(999_999), "1.00 M"),
        (readable_count(175_000_000_000, "parameters"), "175 B parameters"),
        (readable_count(2 * 10**16), "20,000 T"),
        (readable_bytes(12.0e9), "12.0 GB"),
        (readable_bytes(0), "0 bytes"),
        (readable_bytes(4.4e6), "4.40 MB"),
        (readable_flops(2.34e19), "2.3e19 FLOPs"),
        (readable_flops(9.96e5), "1.0e6 FLOPs"),
        (readable_fraction(31 / 72), "43.1 %"),
    ],
)
def test_numbers_have_units(text: str, expected: str) -> None:
    assert text == expected


@given(st.integers(1000, 10**15))
def test_a_count_is_within_half_a_percent(number: int) -> None:
    digits, unit = readable_count(number).split()
    value = float(digits.replace(",", "")) * {"K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}[unit]
    assert value == pytest.approx(number, rel=0.005)
    assert float(digits.replace(",", "")) < 1000 or unit == "T"
