"""The lines of the table: what the lectures hold, and the references to where it is."""

from collections.abc import Iterator
from functools import cache
from importlib import resources
from typing import Self

import yaml
from pydantic import Field, TypeAdapter, model_validator

from bertwright.core.config import Settings
from experiments.claims_page import LECTURES, lectures_of

PARTS = ("systems", "tricks", "experiments", "compression")
"""The parts of the table, a file for each."""


class References(Settings):
    """Where something is: names by the kind of the reference."""

    recipe: tuple[str, ...] = ()
    objective: tuple[str, ...] = ()
    setting: tuple[str, ...] = ()
    """Keys of a recipe with their values; after the name of a recipe, if only it has them."""
    study: tuple[str, ...] = ()
    analysis: tuple[str, ...] = ()
    check: tuple[str, ...] = ()
    """Checks of compression methods, by number."""
    method: tuple[str, ...] = ()
    distillation: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    code: tuple[str, ...] = ()
    """Python names, of what has no setting."""
    report: tuple[str, ...] = ()
    """A page of results and the section in it."""

    def items(self) -> Iterator[tuple[str, str]]:
        """Yield the kind and the name of every reference."""
        for kind in References.model_fields:
            for name in getattr(self, kind):
                yield kind, name


class LectureLine(References):
    """A line of the table: something that the lectures hold, by the survey's number.

    ``lectures`` are those of the system, unless stated. Either there are references, or
    ``out_of_scope`` is the reason why there are none.
    """

    what: str = Field(min_length=1)
    source: str = ""
    id: str = ""
    lectures: str = ""
    out_of_scope: str = ""

    @property
    def all_lectures(self) -> list[str]:
        """The keys of the lectures."""
        systems = [number for number in self.id.split() if number.startswith("A")]
        return self.lectures.split() or lectures_of(", ".join(systems))

    @model_validator(mode="after")
    def _check(self) -> Self:
        if any(True for _ in self.items()) == bool(self.out_of_scope):
            raise ValueError(f"{self.what!r} needs either references or a reason out_of_scope")
        if unknown := set(self.lectures.split()) - set(LECTURES):
            raise ValueError(f"{self.what!r}: there are no lectures {', '.join(sorted(unknown))}")
        return self


class LectureSection(Settings):
    """Lines under a heading."""

    title: str
    lines: tuple[LectureLine, ...]


class LecturePart(Settings):
    """A part of the table."""

    title: str
    sections: tuple[LectureSection, ...]


@cache
def load_parts() -> tuple[LecturePart, ...]:
    """Return all parts in order."""
    folder = resources.files("experiments.lectures")
    files = (folder.joinpath(f"{part}.yaml").read_text(encoding="utf-8") for part in PARTS)
    parts = [yaml.safe_load(file) for file in files]
    return TypeAdapter(tuple[LecturePart, ...]).validate_python(parts)


def all_lines() -> list[LectureLine]:
    """Return the lines of all parts."""
    return [line for part in load_parts() for section in part.sections for line in section.lines]
