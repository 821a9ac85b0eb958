"""``bertwright doctor``: what makes training fail, found before it does."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bertwright.cli.output import AsJson, report, say
from bertwright.cli.plugin import Plugin
from bertwright.cli.recipes import recipe_and_changes
from bertwright.errors import Interrupted, UserError

if TYPE_CHECKING:
    from bertwright.training.doctor import Finding

COLOURS = {"ok": "green", "note": "blue", "warning": "yellow", "error": "red"}


def doctor(
    data: Annotated[
        Path | None, typer.Argument(help="A folder that prepare wrote; none with --machine.")
    ] = None,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RECIPE] [KEY.PATH=VALUE ...]",
            help="A recipe (modern-mini, if none is named), and changes to it.",
        ),
    ] = None,
    minutes: Annotated[float, typer.Option(min=0.05, help="The time of the trials.")] = 4.0,
    quick: Annotated[bool, typer.Option("--quick", help="Leave the trials out.")] = False,
    machine: Annotated[
        bool,
        typer.Option(
            "--machine",
            help="Check this machine instead: processor, compiler, compiled steps against "
            "uncompiled ones, 8-bit kernels, speed of products, folders, versions.",
        ),
    ] = False,
    plugin: Plugin = None,
    as_json: AsJson = False,
) -> None:
    """Find what makes training fail: in the text, the recipe, its masks, and a few trials; or, with
    --machine, whether this machine computes right.

    The exit code is 0 where nothing is worse than a note, 1 where a check warns or fails, and 2, as
    everywhere, where the data or the recipe cannot be read.
    """
    from bertwright.machine.process import tune_process

    tune_process()
    if machine:
        if data is not None:
            raise UserError(f"--machine reads no data: leave {data} out")
        _check_machine(as_json)
        return
    if data is None:
        raise UserError("name a data folder that prepare wrote, or add --machine")
    from bertwright.training.doctor import examine

    name, changes = recipe_and_changes(words)
    try:
        found = examine(data, name, changes=changes, minutes=minutes, quick=quick, say=say)
    except Interrupted as interrupted:
        say("bertwright: the examination was stopped")
        raise typer.Exit(interrupted.exit_code) from None
    if as_json:
        report(found.as_dict(), as_json)
    else:
        _print(found.findings)
    if found.verdict in ("warning", "error"):
        raise typer.Exit(1)


def _check_machine(as_json: bool) -> None:
    """Report the checks of this machine; exit code 1 where one fails."""
    from rich.console import Console
    from rich.text import Text

    from bertwright.training.doctor.machine_checks import MachineCheck, machine_checks

    checks = list[MachineCheck]()
    console = Console(soft_wrap=True)
    for check in machine_checks():
        checks.append(check)
        if not as_json:
            mark = Text("ok   " if check.ok else "wrong", "green" if check.ok else "red")
            console.print(mark, Text(check.name, "bold"), Text(check.detail))
    if as_json:
        report({"checks": [asdict(check) for check in checks]}, as_json)
    if not all(check.ok for check in checks):
        raise typer.Exit(1)


def _print(findings: "tuple[Finding, ...]") -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table("check", "verdict", "seen, and what to do", box=None, pad_edge=False)
    for finding in findings:
        told = Text(finding.seen)
        if finding.advice:
            told.append(f"\n-> {finding.advice}", style="bold")
        table.add_row(finding.check, Text(finding.verdict, COLOURS[finding.verdict]), told)
    Console().print(table)
