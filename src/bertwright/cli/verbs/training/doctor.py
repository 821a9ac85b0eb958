"""``bertwright doctor``: find causes of failed training before training."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bertwright.cli.options import PluginOption
from bertwright.cli.output import JsonOption, log, print_result
from bertwright.cli.verbs.recipes.recipes import RecipeArgument, split_recipe_and_overrides
from bertwright.core.errors import TrainingInterrupted, UserError

if TYPE_CHECKING:
    from bertwright.training.diagnostics.doctor import Diagnostic

COLOURS = {"ok": "green", "note": "blue", "warning": "yellow", "error": "red"}


def doctor(
    data: Annotated[
        Path | None, typer.Argument(help="Prepared data folder; none with --machine.")
    ] = None,
    recipe_and_overrides: RecipeArgument = None,
    minutes: Annotated[float, typer.Option(min=0.05, help="Minutes for the trial runs.")] = 4.0,
    quick: Annotated[bool, typer.Option("--quick", help="Skip the trial runs.")] = False,
    machine: Annotated[
        bool,
        typer.Option(
            "--machine",
            help="Check this machine instead: processor, compiler, compiled against uncompiled "
            "steps, int8 kernels, speed of matrix products, cache folder, versions.",
        ),
    ] = False,
    plugin: PluginOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check data and recipe for what makes training fail; with --machine, check this machine.

    The exit code is 0 where nothing is worse than a note, 1 after a warning or an error, and 2
    where the data or the recipe cannot be read.
    """
    if machine:
        if data is not None:
            raise UserError(f"--machine reads no data: leave {data} out")
        _print_machine_checks(as_json)
        return
    if data is None:
        raise UserError("name a prepared data folder, or add --machine")
    from bertwright.training.diagnostics.doctor import diagnose

    name, overrides = split_recipe_and_overrides(recipe_and_overrides)
    try:
        report = diagnose(data, name, overrides=overrides, minutes=minutes, quick=quick, log=log)
    except TrainingInterrupted as interrupted:
        log("bertwright: doctor was stopped")
        raise typer.Exit(interrupted.exit_code) from None
    if as_json:
        print_result(report.as_dict(), as_json)
    else:
        _print_diagnostics(report.diagnostics)
    if report.severity in ("warning", "error"):
        raise typer.Exit(1)


def _print_machine_checks(as_json: bool) -> None:
    """Print the checks of this machine; exit with code 1 if one fails."""
    from rich.console import Console
    from rich.text import Text

    from bertwright.training.diagnostics.hardware.checks import MachineCheck, machine_checks

    checks = list[MachineCheck]()
    console = Console(soft_wrap=True)
    for check in machine_checks():
        checks.append(check)
        if not as_json:
            mark = Text("ok   " if check.ok else "wrong", "green" if check.ok else "red")
            console.print(mark, Text(check.name, "bold"), Text(check.detail))
    if as_json:
        print_result({"checks": [asdict(check) for check in checks]}, as_json)
    if not all(check.ok for check in checks):
        raise typer.Exit(1)


def _print_diagnostics(diagnostics: "tuple[Diagnostic, ...]") -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table("check", "severity", "message and advice", box=None, pad_edge=False)
    for diagnostic in diagnostics:
        message = Text(diagnostic.message)
        if diagnostic.advice:
            message.append(f"\n-> {diagnostic.advice}", style="bold")
        severity = Text(diagnostic.severity, COLOURS[diagnostic.severity])
        table.add_row(diagnostic.check, severity, message)
    Console().print(table)
