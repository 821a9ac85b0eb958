"""Checks and tables of recipes, analyses and compressions: ``python -m experiments NAME``."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.markdown_sections import DocumentOption
from bertwright.cli.errors import run_app
from bertwright.cli.output import (
    JsonOption,
    PlotOption,
    check_output_folder,
    log,
    print_result,
)

app = typer.Typer(
    help="Check every recipe, analysis and compression, and write their tables.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

NamesArgument = Annotated[
    list[str] | None, typer.Argument(metavar="[NAME ...]", help="All if none.")
]
QuickOption = Annotated[
    bool, typer.Option("--quick", help="Train for a few steps and measure less.")
]


def _print_outcomes(key: str, outcomes: Iterator[Any], as_json: bool) -> list[Any]:
    """Print every outcome when it is known; return all."""
    printed: list[Any] = []
    for outcome in outcomes:
        printed.append(outcome)
        if not as_json:
            print(outcome, flush=True)
    if as_json:
        print_result({key: [outcome.as_dict() for outcome in printed]}, as_json)
    return printed


def _exit_on_miss(outcomes: list[Any]) -> None:
    if not all(outcome.ok for outcome in outcomes):
        raise typer.Exit(1)


@app.command()
def recipes(
    names: NamesArgument = None,
    data: Annotated[
        Path | None, typer.Option(help="A folder that prepare wrote; else the sample text.")
    ] = None,
    quick: QuickOption = False,
    document: DocumentOption = None,
    as_json: JsonOption = False,
) -> None:
    """Count, train, resume, export and reload every recipe at 2x128."""
    from experiments.recipe_checks import QUICK_STEPS, STEPS, check_recipes
    from experiments.recipe_page import write_recipe_table

    steps = QUICK_STEPS if quick else STEPS
    outcomes = check_recipes(names or [], data, steps, lambda outcome: log(str(outcome)))
    if document is not None:
        write_recipe_table(outcomes, document)
    if as_json:
        print_result({"recipes": [outcome.as_dict() for outcome in outcomes]}, as_json)
    _exit_on_miss(outcomes)


@app.command()
def analyses(
    names: NamesArgument = None, quick: QuickOption = False, as_json: JsonOption = False
) -> None:
    """Check that every analysis recovers a planted effect."""
    from bertwright.analysis.core.runner import select_analyses
    from bertwright.runtime.process import configure_process
    from experiments.analyses.checking import check_analyses

    configure_process()
    checks = check_analyses(select_analyses(names or []), quick, log)
    _exit_on_miss(_print_outcomes("analyses", checks, as_json))


@app.command()
def compressions(
    names: NamesArgument = None,
    quick: QuickOption = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            help="A folder that keeps finished checks.",
            callback=check_output_folder,
        ),
    ] = None,
    document: DocumentOption = None,
    plot: PlotOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check every compression method on a toy model."""
    from bertwright.runtime.process import configure_process
    from experiments.compressions import page
    from experiments.compressions.checks import select_checks
    from experiments.compressions.run_checks import run_checks

    configure_process()
    checks = run_checks(select_checks(names or []), quick, log, output)
    outcomes = _print_outcomes("checks", checks, as_json)
    if document is not None:
        page.write_checks(outcomes, document)
    if plot is not None:
        page.plot(outcomes, plot)
    _exit_on_miss(outcomes)


@app.command()
def compression_table(
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            help="A folder for times measured here.",
            callback=check_output_folder,
        ),
    ] = None,
    document: DocumentOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print published compressed models: reported, counted and timed here."""
    from bertwright.runtime.markdown_report import markdown_table
    from experiments.compression_table.page import COLUMNS, table_rows, write_table
    from experiments.compression_table.published import load_published
    from experiments.compression_table.timing import time_all

    if output is not None:
        time_all(load_published(), output, log)
    rows = table_rows(output)
    if document is not None:
        write_table(rows, document)
    if as_json:
        print_result({"rows": rows}, as_json)
    else:
        print(*markdown_table(COLUMNS, rows), sep="\n")


@app.command()
def claims(
    results: Annotated[Path, typer.Argument(help="The folder that study run -o wrote.")],
    document: Annotated[Path, typer.Option(help="The page to write.")],
) -> None:
    """Write the page of all claims and their verdicts."""
    from experiments.claims_page import write_claims

    write_claims(results, document)


@app.command()
def analysis_claims(
    folder: Annotated[Path, typer.Argument(help="The folder that bertwright analyse -o wrote.")],
    output: Annotated[
        Path, typer.Option("-o", "--output", help="The file, docs/results/analyses/MODEL.json.")
    ],
) -> None:
    """Collect the claims that an analysis of a model has decided into one file."""
    from experiments.analyses.stored_claims import write_claims

    write_claims(folder, output)


@app.command()
def analysis_tables(
    results: Annotated[Path, typer.Argument(help="The folder of claims, docs/results/analyses.")],
    document: Annotated[Path, typer.Option(help="The page to write.")],
) -> None:
    """Write the tables of the claims that the analyses of each model have decided."""
    from experiments.analyses.claims_table import write_claim_tables

    write_claim_tables(results, document)


@app.command()
def lectures(
    results: Annotated[Path, typer.Argument(help="The folder of stored results, docs/results.")],
    document: Annotated[Path, typer.Option(help="The page to write.")],
) -> None:
    """Write the table of what the lectures hold, with where it is and its results."""
    from experiments.lectures.page import write_lectures

    write_lectures(results, document)


if __name__ == "__main__":
    run_app(app, "experiments")
