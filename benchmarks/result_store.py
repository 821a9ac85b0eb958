"""Results of runs, kept by name in a JSON file, so that every run is done once."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bertwright.core.files import read_results, write_text
from bertwright.runtime.parallel import run_parallel

RunResult = dict[str, Any]


class ResultStore:
    """Results by name of the run, in a file that is written atomically."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.results = read_results(file)

    def add(self, name: str, result: RunResult) -> None:
        """Add the result of a run."""
        self.results[name] = result
        write_text(self.file, json.dumps(self.results, indent=1) + "\n")

    def run_missing(
        self,
        jobs: Mapping[str, Callable[[], RunResult]],
        num_processes: int,
        log: Callable[[str, RunResult], None],
    ) -> None:
        """Run the jobs without a result in parallel processes; log each result."""
        missing = {name: job for name, job in jobs.items() if name not in self.results}
        names = list(missing)
        for number, result in run_parallel(list(missing.values()), num_processes):
            self.add(names[number], result)
            log(names[number], result)
