"""The machine describes itself, and its peak is a rate that products reach."""

from bertwright.machine import description, matrix_peak, num_cores, versions


def test_the_description_names_the_cores() -> None:
    assert f"{num_cores()} cores" in description()


def test_versions_leave_out_what_is_not_installed() -> None:
    assert versions("torch", "no-such-library").keys() == {"python", "torch"}


def test_the_peak_is_a_positive_rate() -> None:
    assert matrix_peak("float32", seconds=0.01) > 1e8
