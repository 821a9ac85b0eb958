"""Fill the disk under writing verbs.

A verb must end with one sentence and no partial output, and its next run must succeed.
"""

import random
import resource
import shutil
import time
from functools import partial
from pathlib import Path
from typing import Any

from fuzz.forks import run
from fuzz.kills import OUTPUT_FOLDER
from fuzz.workspace import make_workspace
from fuzz.writers import Writer, tree, writers


def full_disks(folder: Path, count: int, seed: int, only: str | None = None) -> dict[str, Any]:
    """Return the report of ``count`` full disks for every writing verb, or for ``only`` one.

    A limit on file sizes simulates a full disk.
    """
    start, findings, num_full = time.monotonic(), list[dict[str, Any]](), 0
    selected = [w for w in writers(make_workspace(folder / "inputs")) if only in (None, w.name)]
    for writer in selected:
        output = folder / OUTPUT_FOLDER
        output.mkdir()
        run(writer.command(output))
        expected = tree(output)
        largest = max(file.stat().st_size for file in output.rglob("*") if file.is_file())
        shutil.rmtree(output)
        for number in range(count):
            rng = random.Random(f"{seed} {writer.name} {number}")
            limit = 0 if not number else int(largest ** rng.random())
            output.mkdir()
            for problem in _fill(writer, output, limit, expected):
                findings.append(
                    {"verb": writer.name, "number": number, "bytes": limit, "problem": problem}
                )
            num_full += 1
            shutil.rmtree(output)
    seconds = round(time.monotonic() - start, 1)
    return {"full_disks": num_full, "findings": findings, "seed": seed, "seconds": seconds}


def _fill(writer: Writer, output: Path, limit: int, expected: dict[str, str]) -> list[str]:
    """Run a writer with a limit in bytes, then again without; return the problems."""
    findings: list[str] = []
    process = run(writer.command(output), prepare=partial(_limit_files, limit))
    if process.code == 0:
        return ["exit code 0 with other output"] if tree(output) != expected else []
    sentences = [line for line in process.errors.splitlines() if line.startswith("bertwright: ")]
    if process.code != 2 or len(sentences) != 1 or "Traceback" in process.errors:
        findings.append(f"exit code {process.code}: {process.errors.strip()[-500:]}")
    if problem := writer.half_written(output, expected):
        findings.append(problem)
    if leftovers := [file.name for file in output.rglob("*") if ".unfinished-" in file.name]:
        findings.append(f"{leftovers[0]} is left behind")
    process = run(writer.command(output, writer.resumes(output)))
    if process.code != 0:
        findings.append(f"not resumed: {process.errors.strip()[-500:]}")
    elif tree(output) != expected:
        findings.append("not resumed: the output differs from that of an uninterrupted run")
    return findings


def _limit_files(size_bytes: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, size_bytes))
