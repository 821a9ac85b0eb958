"""Runs that are done once: what each has found stands in a file, by the name of the run."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bertwright.files import read_findings, write_text
from bertwright.side_by_side import side_by_side

Found = dict[str, Any]


class Runs:
    """Findings by name, in a file that is whole at any time."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.known = read_findings(file)

    def keep(self, name: str, found: Found) -> None:
        """Of one run."""
        self.known[name] = found
        write_text(self.file, json.dumps(self.known, indent=1) + "\n")

    def find(
        self,
        jobs: Mapping[str, Callable[[], Found]],
        processes: int,
        say: Callable[[str, Found], None],
    ) -> None:
        """Do those whose names are not known, so many at once, and ``say`` what each has found."""
        missing = {name: job for name, job in jobs.items() if name not in self.known}
        names = list(missing)
        for number, found in side_by_side(list(missing.values()), processes):
            self.keep(names[number], found)
            say(names[number], found)
