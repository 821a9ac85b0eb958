"""``bertwright study``: run, list and show experiments; ``bertwright compare``: one of your own."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from bertwright.cli.output import AsJson, report, say
from bertwright.cli.plugin import Plugin
from bertwright.errors import Interrupted, UserError

if TYPE_CHECKING:
    from bertwright.studies.running import Found
    from bertwright.studies.study import Equal, Study

app = typer.Typer(help="Run, list and show studies: arms at equal cost, with a verdict.")

Processes = Annotated[
    int, typer.Option(min=1, help="Runs at once, on this machine; not where time is equal.")
]
On = Annotated[
    Literal["ray"] | None,
    typer.Option(help="Give the runs to a Ray cluster that shares the folder -o."),
]


@app.command("list")
def list_studies(as_json: AsJson = False) -> None:
    """List the studies that come with bertwright."""
    from bertwright.studies.study import all_studies

    found = {study.name: f"{study.system}: {study.question}" for study in all_studies()}
    if as_json:
        report(found, as_json)
        return
    for name, about in found.items():
        typer.echo(f"{name:<24} {about}")


@app.command()
def show(name: str) -> None:
    """Print a study: a file of your own may look like it."""
    from bertwright.studies.study import Study, as_yaml

    typer.echo(as_yaml(Study.load(name)), nl=False)


@app.command()
def run(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="STUDY ...", help="By name, or YAML files of your own; none: all."),
    ] = None,
    output: Annotated[
        Path, typer.Option("-o", "--output", help="A folder for runs and results; may be shared.")
    ] = Path("studies"),
    seeds: Annotated[int | None, typer.Option(min=1, help="In the place of the study's.")] = None,
    budget: Annotated[
        str | None,
        typer.Option(help="Equal time for each arm, 10m, in the place of what is equal."),
    ] = None,
    text: Annotated[
        list[str] | None, typer.Option(help="Your own text in the place of the study's.")
    ] = None,
    processes: Processes = 1,
    on: On = None,
    document: Annotated[
        Path | None,
        typer.Option(
            help="A Markdown file whose section of each study is rewritten.",
            dir_okay=False,
            writable=True,
        ),
    ] = None,
    plugin: Plugin = None,
    as_json: AsJson = False,
) -> None:
    """Run a study: what is finished is not done again, what was interrupted goes on."""
    from bertwright.studies.claims_page import write_result
    from bertwright.studies.corpora import Files
    from bertwright.studies.study import Study, all_studies

    changes: dict[str, Any] = {}
    if seeds is not None:
        changes["seeds"] = seeds
    if budget is not None:
        changes["equal"] = _equal_time(budget)
    if text:
        changes["corpus"] = Files(paths=tuple(text))
    named = [Study.load(name) for name in names] if names else all_studies()
    studies = [study.model_copy(update=changes) for study in named]
    results: dict[str, dict[str, Any]] = {}
    for study in studies:
        found = _found(study, output, None, processes, on)
        results[study.name] = _reported(study, found, output, as_json)
    if document is not None:
        for result in results.values():
            write_result(result, document)
    if as_json:
        report(results, as_json)


@app.command()
def claims(
    results: Annotated[Path, typer.Argument(help="The folder that study run -o was given.")],
    document: Annotated[Path, typer.Option(help="The page to write.")],
) -> None:
    """Write the page of all claims and what has become of them."""
    from bertwright.studies.claims_page import write_claims

    write_claims(results, document)


def compare(
    first: Annotated[str, typer.Argument(metavar="RECIPE", help="A recipe by name or file.")],
    second: Annotated[str, typer.Argument(metavar="RECIPE", help="Another one.")],
    data: Annotated[Path, typer.Option(help="A folder that prepare wrote.")],
    output: Annotated[
        Path, typer.Option("-o", "--output", help="A folder for runs and results.")
    ] = Path("comparison"),
    budget: Annotated[str, typer.Option(help="Time for each run: 90s, 10m, 1h.")] = "10m",
    seeds: Annotated[
        int, typer.Option(min=1, help="Repetitions, paired; fewer than 3 say nothing.")
    ] = 3,
    changes: Annotated[
        list[str] | None,
        typer.Option("--change", help="key.path=value, to both; as often as needed."),
    ] = None,
    plugin: Plugin = None,
    as_json: AsJson = False,
) -> None:
    """Train two recipes on your text for the same time, and say which is better."""
    from bertwright.recipes.loading import changed
    from bertwright.studies.study import Arm, Study
    from bertwright.studies.verdict import which_is_better

    if first == second:
        raise UserError(f"{first} is compared with itself: name another recipe")
    study = Study(
        name=f"{_in_a_name(first)} and {_in_a_name(second)}",
        question=f"Is {first} better than {second}?",
        arms={first: Arm(recipe=first), second: Arm(recipe=second)},
        changes=changed({}, changes or []),
        equal=_equal_time(budget),
        seeds=seeds,
    )
    found = _found(study, output, data, 1, None)
    study = study.model_copy(update={"expected": which_is_better(found)})
    result = _reported(study, found, output, as_json)
    if as_json:
        report(result, as_json)


def _in_a_name(recipe: str) -> str:
    """A recipe's name; that of a file has its folder's before it, since those of models are all
    called alike."""
    path = Path(recipe)
    return f"{path.absolute().parent.name}-{path.stem}" if path.suffix else recipe


def _equal_time(budget: str) -> "Equal":
    from bertwright.studies.study import Equal
    from bertwright.training.clock import seconds_of

    seconds_of(budget)  # refuses what is none
    return Equal(time=budget)


def _found(
    study: "Study", output: Path, data: Path | None, processes: int, on: str | None
) -> "Found":
    """Run a study."""
    from bertwright.studies.running import run_study

    try:
        return run_study(study, output, data=data, processes=processes, on=on, say=say)
    except Interrupted as interrupted:
        say(f"bertwright: {interrupted}; the same command goes on")
        raise typer.Exit(interrupted.exit_code) from None
    except KeyboardInterrupt:
        say("bertwright: stopped; the same command goes on")
        raise typer.Exit(130) from None


def _reported(study: "Study", found: "Found", output: Path, quiet: bool) -> dict[str, Any]:
    """Write the report of a study; prints it unless ``quiet``."""
    from bertwright.studies.report import lines, write_report

    result = write_report(study, found, output / study.name)
    if not quiet:
        typer.echo("\n".join(["", *lines(result)]))
    return result
