"""Descriptions of the hardware."""

from bertwright.core.hardware import num_cores
from bertwright.runtime.device import (
    INSTRUCTION_SETS,
    hardware_description,
    has_instruction_set,
    instruction_sets,
    package_versions,
)
from bertwright.runtime.process import process_age_seconds


def test_hardware_description_states_the_cores() -> None:
    assert f"{num_cores()} cores" in hardware_description()


def test_package_versions_omit_missing_packages() -> None:
    assert package_versions("torch", "no-such-library").keys() == {"python", "torch"}


def test_instruction_sets() -> None:
    assert set(instruction_sets()) == {
        name for name in INSTRUCTION_SETS if has_instruction_set(name)
    }


def test_process_age_is_positive() -> None:
    first, second = process_age_seconds(), process_age_seconds()
    assert 0 < first <= second
