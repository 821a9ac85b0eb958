"""``bertwright get``: download public data sets."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bertwright.cli.output import JsonOption, log, print_result
from bertwright.core.errors import UserError

if TYPE_CHECKING:
    from bertwright.data.download import ProgressCallback
    from bertwright.data.public_datasets import PublicDataset


def get(
    name: Annotated[
        str | None, typer.Argument(help="Name of the data set; without it, list them.")
    ] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Output folder.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Download a public data set, or list them; downloads resume and are verified by SHA-256.

    The digests are written to SHA256SUMS in the folder. Where none is published, later runs must
    agree with that of the first download.
    """
    from bertwright.data.download import DIGESTS_FILE, fetch
    from bertwright.data.public_datasets import find_public_dataset, public_datasets

    if name is None:
        sets = public_datasets().values()
        print_result({s.name: asdict(s) if as_json else _describe(s) for s in sets}, as_json)
        return
    dataset = find_public_dataset(name)
    if output is None:
        raise UserError(f"get: name the output folder of {name} with -o")
    with _progress_bars() as progress:
        files = fetch(dataset, output, progress)
    if not dataset.has_checksums:
        log(f"{name} has no published SHA-256: {output / DIGESTS_FILE} holds that of this download")
    result = {"name": name, "folder": str(output), "files": [file.name for file in files]}
    print_result(result | {"licence": dataset.licence, "usage": dataset.usage}, as_json)


def _describe(public_set: "PublicDataset") -> str:
    size = (
        "size unknown" if public_set.num_bytes is None else f"{public_set.num_bytes / 1e6:,.2f} MB"
    )
    note = "" if public_set.has_checksums else ", no published SHA-256"
    return f"{public_set.description}; {size}{note}; licence: {public_set.licence}"


@contextmanager
def _progress_bars() -> Generator["ProgressCallback"]:
    """Show a progress bar for every file on stderr."""
    from rich import progress
    from rich.console import Console

    columns = (
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.DownloadColumn(),
        progress.TransferSpeedColumn(),
        progress.TimeRemainingColumn(),
    )
    bars: dict[str, progress.TaskID] = {}
    with progress.Progress(*columns, console=Console(stderr=True)) as display:

        def show(name: str, done: int, total: int | None) -> None:
            if name not in bars:
                bars[name] = display.add_task(name)
            display.update(bars[name], completed=done, total=total)

        yield show
