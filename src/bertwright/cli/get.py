"""``bertwright get``: well-known public data sets, where there is a network."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bertwright.cli.output import AsJson, report, say
from bertwright.errors import UserError

if TYPE_CHECKING:
    from bertwright.text.download import Progress
    from bertwright.text.public_sets import PublicSet


def get(
    name: Annotated[
        str | None, typer.Argument(help="The data set; without a name, all of them are listed.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="The folder to put it in.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List public data sets, or download one: resumed, checked by SHA-256, unpacked.

    What broke off goes on when run again. The digests are written to SHA256SUMS in the folder;
    where none is published, that of the first download is, and later runs must agree with it.
    """
    from bertwright.text.download import DIGESTS, fetch
    from bertwright.text.public_sets import find_public_set, public_sets

    if name is None:
        sets = public_sets().values()
        report({s.name: asdict(s) if as_json else _summary(s) for s in sets}, as_json)
        return
    wanted = find_public_set(name)
    if output is None:
        raise UserError(f"get: say with -o in which folder to put {name}")
    with _progress_bars() as progress:
        files = fetch(wanted, output, progress)
    if not wanted.checked:
        say(f"No SHA-256 of {name} is published: that of this download is in {output / DIGESTS}.")
    received = {"name": name, "folder": str(output), "files": [file.name for file in files]}
    report(received | {"licence": wanted.licence, "use": wanted.use}, as_json)


def _summary(listed: "PublicSet") -> str:
    size = "size not known" if listed.num_bytes is None else f"{listed.num_bytes / 1e6:,.2f} MB"
    known = "" if listed.checked else ", no published SHA-256"
    return f"{listed.about}; {size}{known}; licence: {listed.licence}"


@contextmanager
def _progress_bars() -> Generator["Progress"]:
    """A bar on stderr for every file."""
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
    with progress.Progress(*columns, console=Console(stderr=True)) as shown:

        def show(name: str, done: int, total: int | None) -> None:
            if name not in bars:
                bars[name] = shown.add_task(name)
            shown.update(bars[name], completed=done, total=total)

        yield show
