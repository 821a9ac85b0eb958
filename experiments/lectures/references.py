"""References to where something is: checked, and shown as links."""

import pkgutil
import shlex
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import typer

from bertwright.analysis.core.runner import select_analyses
from bertwright.cli.app import app
from bertwright.cli.task_options import FineTuningOptions
from bertwright.compression.distillation.recipe import RECIPES_PACKAGE
from bertwright.compression.method import METHODS_PACKAGE, resource_names
from bertwright.core.config import did_you_mean
from bertwright.core.errors import UserError
from bertwright.objectives import Objective
from bertwright.recipes.loading import system_names
from bertwright.studies.study import list_studies
from bertwright.tasks.finetuning.config import FineTuningConfig
from bertwright.tasks.outputs.output_type import OutputType
from experiments.compressions.checks import all_checks
from experiments.lectures.lines import LectureLine
from experiments.lectures.recipe_settings import (
    check_setting,
    recipes_with_objective,
    recipes_with_setting,
)

DOCUMENTS = Path(__file__).parents[2] / "docs"

MAX_RECIPES_SHOWN = 3


@dataclass(frozen=True)
class ReferenceKind:
    """A kind of reference: ``check`` raises UserError for a wrong one, ``show`` is its link."""

    check: Callable[[str], None]
    show: Callable[[str], str]


def check_references(lines: Iterable[LectureLine]) -> None:
    """Check every reference. Errors: UserError for the first that leads nowhere."""
    for line in lines:
        for kind, name in line.items():
            try:
                REFERENCE_KINDS[kind].check(name)
            except UserError as error:
                raise UserError(f"{line.what}: {kind}: {error}") from error


def show_references(line: LectureLine) -> str:
    """Return where something is, as Markdown."""
    if line.out_of_scope:
        return f"out of scope: {line.out_of_scope}"
    return ", ".join(REFERENCE_KINDS[kind].show(name) for kind, name in line.items())


def _require_known(known: Callable[[], Collection[str]]) -> Callable[[str], None]:
    """Return a check that a name is known."""

    def check(name: str) -> None:
        if name not in known():
            raise UserError(f"there is no {name!r}{did_you_mean(name, known())}")

    return check


def _analysis_names() -> list[str]:
    return [analysis.kind_name() for analysis in select_analyses([])]


def _check_command(line: str) -> None:
    """Raise UserError for a command of bertwright that would end with a usage error.

    ``--output`` may be missing.
    """
    program, *words = shlex.split(line)
    if program != "bertwright":
        raise UserError(f"{line!r} is no command of bertwright")
    command = _root_command()
    while hasattr(command, "list_commands"):
        known = command.list_commands(typer.Context(command))
        name = words.pop(0) if words else ""
        _require_known(lambda known=known: known)(name)
        command = command.get_command(typer.Context(command), name)
    try:
        values, _, _ = command.make_parser(typer.Context(command)).parse_args(words)
    except _UsageError as error:
        raise UserError(f"{line!r}: {error}") from error
    required = [parameter.name for parameter in command.params if parameter.required]
    if missing := [name for name in required if name != "output" and not values.get(name)]:
        raise UserError(f"{line!r} needs {', '.join(missing)}")
    if values.get("settings"):
        _check_fine_tuning_settings(list(values["settings"]))


@cache
def _root_command() -> Any:
    return typer.main.get_command(app)


_UsageError: type[Exception] = typer.BadParameter.__mro__[1]


def _check_fine_tuning_settings(settings: list[str]) -> None:
    parsed = FineTuningOptions(settings).parse_settings()
    FineTuningConfig.from_settings(parsed.finetuning)
    known = {key for output in OutputType.kinds().values() for key in output.model_fields}
    for key in parsed.output_type:
        _require_known(lambda: known)(key)


def _check_code(name: str) -> None:
    try:
        pkgutil.resolve_name(name)
    except (ImportError, AttributeError) as error:
        raise UserError(f"there is no {name}") from error


def _check_report(report: str) -> None:
    page, _, section = report.partition(" ")
    file = DOCUMENTS / "results" / f"{page}.md"
    if not file.is_file() or f"<!-- {section}: written by command -->" not in file.read_text():
        raise UserError(f"there is no section {section!r} in {file}")


def _link(page: str, prefix: str = "") -> Callable[[str], str]:
    return lambda name: f"{prefix}[`{name}`]({page})"


def _show_setting(setting: str) -> str:
    return f"`{setting}`{_recipe_note(recipes_with_setting(setting))}"


def _show_objective(objective: str) -> str:
    return f"objective `{objective}`{_recipe_note(recipes_with_objective(objective))}"


def _recipe_note(recipes: list[str]) -> str:
    """Return the first of these recipes, in brackets."""
    shown = [f"`{name}`" for name in recipes[:MAX_RECIPES_SHOWN]]
    if len(recipes) > MAX_RECIPES_SHOWN:
        shown.append(f"{len(recipes) - MAX_RECIPES_SHOWN} more")
    return f" ({', '.join(shown)})" if shown else ""


def _show_study(study: str) -> str:
    is_run = (DOCUMENTS / "results" / "studies" / study).is_dir()
    return f"study [`{study}`](../claims.md{f'#{study}' if is_run else ''})"


REFERENCE_KINDS: dict[str, ReferenceKind] = {
    "recipe": ReferenceKind(_require_known(system_names), _link("../reference/recipes.md")),
    "objective": ReferenceKind(_require_known(lambda: Objective.kinds()), _show_objective),
    "setting": ReferenceKind(check_setting, _show_setting),
    "study": ReferenceKind(_require_known(list_studies), _show_study),
    "analysis": ReferenceKind(
        _require_known(_analysis_names), _link("../how-to/analyse.md", "analysis ")
    ),
    "check": ReferenceKind(
        _require_known(lambda: [check.number for check in all_checks()]),
        lambda number: f"[check {number}](../results/small.md)",
    ),
    "method": ReferenceKind(
        _require_known(lambda: resource_names(METHODS_PACKAGE)),
        _link("../how-to/compress.md", "method "),
    ),
    "distillation": ReferenceKind(
        _require_known(lambda: resource_names(RECIPES_PACKAGE)),
        _link("../how-to/compress.md#distil-in-pre-training", "distillation "),
    ),
    "command": ReferenceKind(_check_command, lambda command: f"`{command}`"),
    "code": ReferenceKind(_check_code, lambda name: f"`{name}`"),
    "report": ReferenceKind(_check_report, lambda report: f"`{report.partition(' ')[2]}`"),
}
