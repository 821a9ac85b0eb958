"""Fill the disk under writing verbs: one sentence, nothing half-written, and the next run ends
well."""

import random
import resource
import shutil
import time
from functools import partial
from pathlib import Path
from typing import Any

from fuzz.forks import run
from fuzz.kills import PLACE
from fuzz.workspace import make_workspace
from fuzz.writers import Writer, tree, writers


def full_disks(folder: Path, count: int, seed: int, only: str | None = None) -> dict[str, Any]:
    """Return what so many full disks for each writing verb, or for ``only`` one, have come to.

    A limit on the size of files stands for the end of a disk.
    """
    began, findings, num_full = time.monotonic(), list[dict[str, Any]](), 0
    known = [w for w in writers(make_workspace(folder / "inputs")) if only in (None, w.name)]
    for writer in known:
        place = folder / PLACE
        place.mkdir()
        run(writer.command(place))
        whole = tree(place)
        largest = max(file.stat().st_size for file in place.rglob("*") if file.is_file())
        shutil.rmtree(place)
        for number in range(count):
            draw = random.Random(f"{seed} {writer.name} {number}")
            limit = 0 if not number else int(largest ** draw.random())
            place.mkdir()
            for what in _fill(writer, place, limit, whole):
                findings.append(
                    {"verb": writer.name, "number": number, "bytes": limit, "what": what}
                )
            num_full += 1
            shutil.rmtree(place)
    seconds = round(time.monotonic() - began, 1)
    return {"full_disks": num_full, "findings": findings, "seed": seed, "seconds": seconds}


def _fill(writer: Writer, place: Path, limit: int, whole: dict[str, str]) -> list[str]:
    """Return what is wrong after a disk that holds files of so many bytes."""
    findings: list[str] = []
    ended = run(writer.command(place), prepare=partial(_limit_files, limit))
    if ended.code == 0:
        return ["it ended well"] if tree(place) != whole else []
    sentences = [line for line in ended.errors.splitlines() if line.startswith("bertwright: ")]
    if ended.code != 2 or len(sentences) != 1 or "Traceback" in ended.errors:
        findings.append(f"exit code {ended.code}: {ended.errors.strip()[-500:]}")
    if wrong := writer.half_written(place, whole):
        findings.append(wrong)
    if left := [file.name for file in place.rglob("*") if ".unfinished-" in file.name]:
        findings.append(f"{left[0]} is left behind")
    ended = run(writer.command(place, writer.resumes(place)))
    if ended.code != 0:
        findings.append(f"not resumed: {ended.errors.strip()[-500:]}")
    elif tree(place) != whole:
        findings.append("not resumed: the output is another than without a full disk")
    return findings


def _limit_files(size_bytes: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, size_bytes))
