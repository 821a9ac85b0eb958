"""``bertwright sample``: real text without a download."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from bertwright.cli.output import AsJson, report
from bertwright.cli.prepare import Workers


def sample(
    output: Annotated[Path, typer.Option("-o", "--output", help="The folder to make.")],
    num_workers: Workers = None,
    as_json: AsJson = False,
) -> None:
    """Gather English prose from the documentation on this machine: of Python and its packages."""
    from bertwright.text.sample import gather_sample

    gathered = asdict(gather_sample(output, num_workers))
    if not as_json:  # too long to read: they stand in sample.json
        del gathered["packages"], gathered["words_by_package"]
    report({"text": str(output / "sample.txt")} | gathered, as_json)
