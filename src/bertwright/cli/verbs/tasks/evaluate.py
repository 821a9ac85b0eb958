"""``bertwright evaluate``: evaluate a model on data that it was not trained on."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from bertwright.cli.generation_options import GenerationOptions
from bertwright.cli.options import (
    RUN_AGAIN,
    EnsembleOption,
    PluginOption,
    exit_on_interrupt,
    load_predictor,
    refuse_options,
)
from bertwright.cli.output import (
    JsonOption,
    check_output_file,
    check_output_folder,
    log,
    print_result,
)
from bertwright.cli.task_options import with_options
from bertwright.core.errors import UserError

SUITE_OPTIONS = ("suite_file", "tasks", "word_vectors", "with_mteb", "output")
SINGLE_MODEL_OPTIONS = ("errors", "ensemble")


@with_options
def evaluate(
    context: typer.Context,
    models: Annotated[
        list[Path],
        typer.Argument(
            metavar="MODEL...",
            help="Model folder, of bertwright or of Hugging Face, or a name on the Hub: "
            "owner/name, owner/name@revision. Several with --suite.",
        ),
    ],
    data: Annotated[
        Path,
        typer.Option(
            help="Prepared data folder (pre-trained model), or a "
            "file of the task or a folder with a "
            "development file (fine-tuned model); with --suite the folder of its data sets."
        ),
    ],
    suite: Annotated[
        bool,
        typer.Option(
            "--suite",
            help="Run many tasks with simple baselines, and write one report that compares the "
            "models.",
        ),
    ] = False,
    suite_file: Annotated[
        Path | None, typer.Option(help="YAML file of your own suite (--suite).")
    ] = None,
    tasks: Annotated[
        str | None,
        typer.Option(help="Tasks of the suite to run, separated by commas; by default all."),
    ] = None,
    word_vectors: Annotated[
        Path | None,
        typer.Option(
            help="Model folder of word vectors for the baseline of --suite; by default the suite "
            "trains them."
        ),
    ] = None,
    with_mteb: Annotated[
        bool,
        typer.Option(
            "--with-mteb",
            help="Run the tasks of --suite that compare text vectors through mteb, too.",
        ),
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            help="Folder of the report of --suite; what it holds already is not computed again.",
            callback=check_output_folder,
        ),
    ] = None,
    errors: Annotated[
        Path | None,
        typer.Option(
            help="Write the wrong predictions of a fine-tuned model as JSON lines, the most "
            "confident first.",
            callback=check_output_file,
        ),
    ] = None,
    ensemble: EnsembleOption = None,
    *,
    options: GenerationOptions,
    plugin: PluginOption = None,
    as_json: JsonOption = False,
) -> None:
    """Evaluate a pre-trained model on held-out text, or a fine-tuned one on its task.

    With --suite, evaluate any models on many tasks. The standard suite needs no network and has
    fifteen: grammar, facts, similarity, retrieval, classes, parts of speech and names.
    """
    if suite or suite_file is not None:
        refuse_options(context, "--suite reports scores", *SINGLE_MODEL_OPTIONS)
        if output is None:
            raise UserError("--suite writes a report: name its folder with -o")
        names = None if tasks is None else [name.strip() for name in tasks.split(",")]
        with exit_on_interrupt(RUN_AGAIN):
            report = _evaluate_suite(
                models, data, suite_file, names, word_vectors, output, with_mteb
            )
        print_result(report, as_json, score_lines(report, output))
        return
    refuse_options(context, "this is for --suite", *SUITE_OPTIONS)
    if len(models) > 1:
        raise UserError("several models are compared by --suite only: name one model")
    _evaluate_model(models[0], data, errors, ensemble, options, as_json)


def _evaluate_model(
    folder: Path,
    data: Path,
    errors: Path | None,
    ensemble: list[Path] | None,
    options: GenerationOptions,
    as_json: bool,
) -> None:
    from bertwright.core.files import atomic_file
    from bertwright.interop.loading import load
    from bertwright.tasks.evaluation import evaluate as evaluation
    from bertwright.tasks.finetuning.result_folder import write_json_lines

    model = load_predictor([folder, *ensemble]) if ensemble else load(folder)
    options.apply(model)
    result = evaluation.evaluate(model, data, with_baselines=True)
    for warning in result.get("warnings", ()):
        log(warning)
    print_result(result, as_json)
    if errors is not None:
        with atomic_file(errors) as temporary:
            write_json_lines(temporary, evaluation.prediction_errors(model, data))


def _evaluate_suite(
    folders: Sequence[Path],
    data: Path,
    suite_file: Path | None,
    tasks: list[str] | None,
    word_vectors: Path | None,
    output: Path,
    with_mteb: bool,
) -> dict[str, Any]:
    from bertwright.interop.loading import load
    from bertwright.suites.report import evaluate_suite
    from bertwright.suites.suite import EvaluationSuite

    suite = EvaluationSuite.load(suite_file)
    if tasks is not None:
        suite = suite.select(tasks)
    if not data.is_dir():
        raise UserError(f"--data {data}: no such folder")
    names = [folder.resolve().name if folder.is_dir() else str(folder) for folder in folders]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UserError(f"two models are called {twice}: rename a folder")
    models = {name: load(folder, "float32") for name, folder in zip(names, folders, strict=True)}
    baseline = None if word_vectors is None else load(word_vectors, "float32")
    return evaluate_suite(
        suite, data, models, output, word_vectors=baseline, with_mteb=with_mteb, log=log
    )


def score_lines(report: dict[str, Any], output: Path) -> list[str]:
    """Return a table of the scores, with those of mteb if it ran, and where the report is."""
    from bertwright.runtime.markdown_report import markdown_table
    from bertwright.suites.report import PAGE_FILE, REPORT_FILE

    names = [system["name"] for system in report["systems"]]
    mteb_columns = {name: f"{name} in mteb" for name in report["summary"] if "mteb" in report}
    rows: list[dict[str, str]] = []
    for task in report["tasks"]:
        row = {
            "task": task["title"],
            "metric": task.get("metric", f"not run: {task.get('not_run')}"),
        }
        mteb_scores = report.get("mteb", {}).get(task["name"], {})
        for name in names:
            row[name] = _format_score(task.get("results", {}).get(name, {}))
            if name in mteb_columns:
                row[mteb_columns[name]] = _format_score({"score": mteb_scores.get(name)})
        rows.append(row)
    columns = {name: name for row in rows for name in row}
    return [*markdown_table(columns, rows), "", f"{output / PAGE_FILE}, {output / REPORT_FILE}"]


def _format_score(result: dict[str, Any]) -> str:
    """Return a score with its interval, as percentages; "" without a score."""
    score, interval = result.get("score"), result.get("interval")
    if score is None:
        return ""
    bounds = "" if interval is None else " [{:.1f}, {:.1f}]".format(*(100 * b for b in interval))
    return f"{100 * score:.1f}{bounds}"
