"""``bertwright study`` and ``bertwright compare``: compare recipes at equal cost."""

import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from bertwright.cli.options import (
    RUN_AGAIN,
    ComputingCommand,
    DocumentedCommand,
    PluginOption,
    exit_on_interrupt,
)
from bertwright.cli.output import JsonOption, check_output_folder, log, print_result
from bertwright.core.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bertwright.studies.study import EqualCost, Study, StudyResults

app = typer.Typer(help="Run, list and show studies: arms at equal cost, with a verdict.")

DEFAULT_MAX_SEEDS = 12
"""Maximum number of repetitions with ``--until``."""

ProcessesOption = Annotated[
    int, typer.Option(min=1, help="Number of runs in parallel; not where time is equal.")
]
BackendOption = Annotated[
    Literal["ray"] | None,
    typer.Option(help="Run on a Ray cluster that shares the output folder."),
]


@app.command("list", cls=DocumentedCommand)
def list_studies(as_json: JsonOption = False) -> None:
    """List the studies that come with bertwright."""
    from bertwright.studies.study import load_all_studies

    studies = {study.name: f"{study.system}: {study.question}" for study in load_all_studies()}
    print_result(studies, as_json, (f"{name:<24} {text}" for name, text in studies.items()))


@app.command(cls=DocumentedCommand)
def show(study: str) -> None:
    """Print a study as YAML, a template for your own."""
    from bertwright.studies.study import Study, to_yaml

    typer.echo(to_yaml(Study.load(study)), nl=False)


@app.command(cls=ComputingCommand)
def run(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="STUDY ...", help="Studies by name, or your own YAML files; all by default."
        ),
    ] = None,
    output: Annotated[
        Path,
        typer.Option(
            "-o",
            "--output",
            help="Folder for runs and results; may be shared.",
            callback=check_output_folder,
        ),
    ] = Path("studies"),
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Number of repetitions, instead of the study's.")
    ] = None,
    until: Annotated[
        Literal["decided"] | None,
        typer.Option(
            help="Add three seeds at a time until every verdict is decided; intervals are wider, "
            "so that all looks together err in 5 % of the cases."
        ),
    ] = None,
    max_seeds: Annotated[
        int | None,
        typer.Option(
            help="Maximum number of repetitions with --until: 3, 6, 9, ... 24; 12 by default."
        ),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(help="Equal training time (10m), instead of what the study equalises."),
    ] = None,
    text: Annotated[
        list[str] | None,
        typer.Option(help="Your own text instead of the study's; may be repeated."),
    ] = None,
    processes: ProcessesOption = 1,
    on: BackendOption = None,
    plugin: PluginOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run studies; finished runs are kept, interrupted ones continue."""
    from bertwright.studies.corpora import FileCorpus
    from bertwright.studies.study import Study, load_all_studies

    changes: dict[str, Any] = {}
    if until is not None and seeds is not None:
        raise UserError("--seeds is a fixed number: leave it out, or --until")
    if until is None and max_seeds is not None:
        raise UserError("--max-seeds limits --until decided: add it, or set --seeds")
    most = DEFAULT_MAX_SEEDS if max_seeds is None else max_seeds
    limit = None if until is None else _checked_max_seeds(most)
    if seeds is not None:
        changes["seeds"] = seeds
    if budget is not None:
        changes["equal"] = _equal_time(budget)
    if text:
        changes["corpus"] = FileCorpus(paths=tuple(text))
    named = [Study.load(name) for name in names] if names else load_all_studies()
    studies = [study.model_copy(update=changes) for study in named]
    _require_different_names(studies)
    results: dict[str, dict[str, Any]] = {}
    for study in studies:
        outcome = _run_study(study, output, None, processes, on, limit)
        results[study.name] = _write_report(study, outcome, output, as_json, limit)
    if as_json:
        print_result(results, as_json)


def compare(
    first: Annotated[str, typer.Argument(metavar="RECIPE", help="Recipe, by name or file.")],
    second: Annotated[str, typer.Argument(metavar="RECIPE", help="Another recipe.")],
    data: Annotated[Path, typer.Option(help="Prepared data folder.")],
    output: Annotated[
        Path,
        typer.Option(
            "-o",
            "--output",
            help="Folder for runs and results.",
            callback=check_output_folder,
        ),
    ] = Path("comparison"),
    budget: Annotated[str, typer.Option(help="Training time of each run: 90s, 10m, 1h.")] = "10m",
    seeds: Annotated[
        int, typer.Option(min=1, help="Number of paired repetitions; fewer than 3 prove nothing.")
    ] = 3,
    overrides: Annotated[
        list[str] | None,
        typer.Option("--override", help="KEY.PATH=VALUE for both; may be repeated."),
    ] = None,
    plugin: PluginOption = None,
    as_json: JsonOption = False,
) -> None:
    """Train two recipes on your data for the same time and report which is better."""
    from pydantic import ValidationError

    from bertwright.core.config import to_user_error
    from bertwright.recipes.loading import apply_overrides
    from bertwright.studies.study import Arm, Study
    from bertwright.studies.verdict import default_expectation

    if first == second:
        raise UserError(f"{first} is compared with itself: name another recipe")
    changes, equal = apply_overrides({}, overrides or []), _equal_time(budget)
    try:
        study = Study(
            name=f"{_recipe_label(first)} and {_recipe_label(second)}",
            question=f"Is {first} better than {second}?",
            arms={first: Arm(recipe=first), second: Arm(recipe=second)},
            changes=changes,
            equal=equal,
            seeds=seeds,
        )
    except ValidationError as error:
        raise to_user_error(error, f"{first} and {second}") from error
    results = _run_study(study, output, data, 1, None)
    study = study.model_copy(update={"expected": default_expectation(results)})
    result = _write_report(study, results, output, as_json)
    if as_json:
        print_result(result, as_json)


def _require_different_names(studies: "Sequence[Study]") -> None:
    """Raise UserError for two studies of one name, whose results would replace each other."""
    names = [study.name for study in studies]
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"two studies are called {name}: rename one, or run it once")


def _checked_max_seeds(max_seeds: int) -> int:
    from bertwright.core.verdicts import look_error

    try:
        look_error(max_seeds)
    except ValueError as error:
        raise UserError(f"--max-seeds {max_seeds}: {error}") from None
    return max_seeds


def _recipe_label(recipe: str) -> str:
    """Return a label for a recipe: its name, or the folder and name of its file."""
    from bertwright.recipes.loading import is_recipe_file

    path = Path(recipe).absolute()
    return f"{path.parent.name}-{path.stem}" if is_recipe_file(recipe) else recipe


def _equal_time(budget: str) -> "EqualCost":
    from bertwright.studies.study import EqualCost
    from bertwright.training.clock import parse_duration

    parse_duration(budget)  # raises UserError for anything else
    return EqualCost(time=budget)


def _run_study(
    study: "Study",
    output: Path,
    data: Path | None,
    processes: int,
    backend: str | None,
    max_seeds: int | None = None,
) -> "StudyResults":
    """Run a study."""
    from bertwright.studies.run import run_study

    with exit_on_interrupt(RUN_AGAIN):
        try:
            return run_study(
                study,
                output,
                data=data,
                max_seeds=max_seeds,
                num_processes=processes,
                backend=backend,
                log=log,
            )
        except KeyboardInterrupt as interrupt:
            (number,) = interrupt.args or (signal.SIGINT,)
            log(f"bertwright: stopped by {signal.Signals(number).name}; {RUN_AGAIN}")
            raise typer.Exit(128 + number) from None


def _write_report(
    study: "Study",
    result: "StudyResults",
    output: Path,
    quiet: bool,
    max_seeds: int | None = None,
) -> dict[str, Any]:
    """Write the report of a study, print it unless ``quiet``, and return it."""
    from bertwright.studies.report import report_lines, write_report

    report = write_report(study, result, output / study.name, max_seeds)
    if not quiet:
        typer.echo("\n".join(["", *report_lines(report)]))
    return report
