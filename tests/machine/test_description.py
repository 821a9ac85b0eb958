"""The machine describes itself."""

from bertwright.machine.cores import num_cores
from bertwright.machine.description import (
    INSTRUCTION_SETS,
    description,
    has_instructions,
    instruction_sets,
    versions,
)
from bertwright.machine.process import seconds_since_start


def test_the_description_names_the_cores() -> None:
    assert f"{num_cores()} cores" in description()


def test_versions_leave_out_what_is_not_installed() -> None:
    assert versions("torch", "no-such-library").keys() == {"python", "torch"}


def test_instruction_sets_are_those_that_the_processor_has() -> None:
    assert set(instruction_sets()) == {name for name in INSTRUCTION_SETS if has_instructions(name)}


def test_this_process_began_before_now() -> None:
    first, second = seconds_since_start(), seconds_since_start()
    assert 0 < first <= second
