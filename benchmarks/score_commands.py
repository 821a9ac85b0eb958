"""Commands that train many models; every run is kept in a folder and done once."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from benchmarks.markdown_sections import DocumentOption
from benchmarks.options import parse_numbers, publish, write_experiment
from bertwright.cli.output import JsonOption, log, print_result, print_results
from bertwright.core.files import output_lock, require_writable_folder

app = typer.Typer()

PartsOption = Annotated[
    str,
    typer.Option(help='Figures to compute now: scores; times, on a quiet machine; "" for none.'),
]
ProcessesOption = Annotated[
    int, typer.Option(min=1, help="Parallel runs, which share the threads of the processor.")
]


@contextmanager
def _locked(output: Path) -> Generator[None]:
    """Lock the folder of the results."""
    require_writable_folder(output)
    output.mkdir(parents=True, exist_ok=True)
    with output_lock(output):
        yield


@app.command()
def learn(
    data: Annotated[Path, typer.Option(help="Prepared data folder.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder of models and results.")],
    size: Annotated[str, typer.Option(help="Size of the BERT that the Trainer trains.")] = "mini",
    recipe: Annotated[
        str | None, typer.Option(help="Recipe of bertwright; by default modern in the same size.")
    ] = None,
    minutes: Annotated[float, typer.Option(help="Training time.")] = 10,
    grid_minutes: Annotated[
        float | None, typer.Option(help="Training time in the grid; by default the same.")
    ] = None,
    peer: Annotated[
        Literal["bert", "modernbert"],
        typer.Option(help="Stock model: BERT with AdamW, or ModernBERT set up like modern."),
    ] = "bert",
    seeds: Annotated[int, typer.Option(min=2, help="Number of seeds.")] = 3,
    learning_rates: Annotated[
        str, typer.Option(help="Learning rates of the grid.")
    ] = "5e-4,1e-3,2e-3",
    parts: Annotated[str, typer.Option(help="Parts to run now.")] = "hf-grid,hf-best,ours",
    document: DocumentOption = None,
    as_json: JsonOption = False,
) -> None:
    """Held-out loss after some minutes, against the best of a grid of Transformers' Trainer."""
    from benchmarks.learning import compare as learning
    from benchmarks.learning import report
    from benchmarks.learning.arms import LearningPlan
    from benchmarks.markdown_sections import write_section
    from bertwright.data.shards.dataset import Dataset

    plan = LearningPlan(
        size,
        recipe or f"modern-{size}",
        minutes,
        grid_minutes or minutes,
        seeds,
        tuple(parse_numbers("--learning-rates", learning_rates, float)),
        peer,
    )
    with _locked(output):
        results = learning.LearningResults(output, Dataset.open(data), plan)
        learning.run_groups(plan, parts.split(","), results, log)
    lines = report.report_lines(plan, results)
    if document is not None and lines:
        name = size if peer == "bert" else f"{size} {peer}"
        write_section(document, f"bench learn {name}", lines)
    print_result(report.make_report(plan, results), as_json)


@app.command()
def finetune(
    plan: Annotated[Path, typer.Argument(help="YAML file of tasks and settings.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder of the results.")],
    parts: PartsOption = "scores,times",
    rounds: Annotated[int, typer.Option(min=1, help="Number of interleaved timing rounds.")] = 3,
    processes: ProcessesOption = 1,
    document: DocumentOption = None,
    as_json: JsonOption = False,
) -> None:
    """Scores and time of fine-tuning, against Transformers' Trainer."""
    from benchmarks.finetuning import compare as finetuning

    kinds = parts.split(",") if parts else []
    with _locked(output):
        results = finetuning.compare(plan, output, kinds, rounds, log, processes)
    publish("finetune", results, finetuning.COLUMNS, document, as_json)


@app.command()
def adapt(
    plan: Annotated[Path, typer.Argument(help="YAML file of encoders, tasks and methods.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder of the results.")],
    processes: ProcessesOption = 1,
    document: DocumentOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare methods of fine-tuning over encoders, tasks and seeds."""
    from benchmarks.adaptation import compare as adaptation
    from benchmarks.adaptation.plan import AdaptationPlan

    loaded = AdaptationPlan.load(plan)
    with _locked(output):
        results = adaptation.compare(loaded, output, log, processes)
    if document is not None:
        table = (adaptation.COLUMNS, results)
        name = f"bench adapt {plan.stem}"
        write_experiment(document, name, loaded.description, loaded.source, table)
    print_results(results, adaptation.COLUMNS, as_json)


@app.command()
def compress(
    plan: Annotated[Path, typer.Argument(help="YAML file of tasks and compression variants.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder of the results.")],
    models: Annotated[
        Path, typer.Option(help="Folder of the models, which --parts times reads.")
    ] = Path("models"),
    parts: PartsOption = "scores,times",
    rounds: Annotated[int, typer.Option(min=3, help="Number of interleaved timing rounds.")] = 15,
    processes: ProcessesOption = 1,
    document: DocumentOption = None,
    as_json: JsonOption = False,
) -> None:
    """Score, size and latency of compressed models over tasks and seeds."""
    from benchmarks.compression import claims, summary
    from benchmarks.compression import compare as compression
    from benchmarks.compression.plan import CompressionPlan

    loaded = CompressionPlan.load(plan)
    kinds = parts.split(",") if parts else []
    with _locked(output):
        results = compression.run_plan(loaded, output, models, kinds, rounds, log, processes)
    if document is not None:
        tables = [
            (claims.COLUMNS, claims.evaluate_claims(loaded, results)),
            (summary.COLUMNS, summary.summarise_variants(results)),
            (compression.COLUMNS, results),
        ]
        name = f"bench compress {plan.stem}"
        write_experiment(
            document, name, loaded.description, loaded.source, *(t for t in tables if t[1])
        )
    print_results(results, compression.COLUMNS, as_json)


@app.command()
def frozen(
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder of the results.")],
    data: Annotated[
        Path, typer.Option(help="Folder of the data sets glue, sick and movie_reviews.")
    ] = Path("../shared/data"),
    model: Annotated[
        Path | None, typer.Argument(help="Model folder; by default all-MiniLM-L6-v2.")
    ] = None,
    tasks: Annotated[str, typer.Option(help="Tasks, separated by commas.")] = (
        "sst-2,mrpc,cola,sick,sick-relatedness,movie-reviews"
    ),
    sizes: Annotated[str, typer.Option(help="Numbers of training examples.")] = "100,300,1000",
    seeds: Annotated[
        int, typer.Option(min=2, help="Number of random samples of the training examples.")
    ] = 5,
    document: DocumentOption = None,
    as_json: JsonOption = False,
) -> None:
    """Heads on frozen features of few examples, against scikit-learn on the same vectors."""
    from benchmarks import frozen_features
    from bertwright.core.config import did_you_mean
    from bertwright.core.errors import UserError

    names = tasks.split(",")
    if unknown := next((name for name in names if name not in frozen_features.TASK_FOLDERS), None):
        raise UserError(
            f"--tasks has no {unknown!r}{did_you_mean(unknown, frozen_features.TASK_FOLDERS)}"
        )
    plan = frozen_features.FrozenFeaturesPlan(
        data, model, parse_numbers("--sizes", sizes, int), seeds, names
    )
    publish(
        "frozen",
        frozen_features.compare(plan, output, log),
        frozen_features.COLUMNS,
        document,
        as_json,
    )


@app.command()
def default(
    result: Annotated[Path, typer.Argument(help="Result of a study: its folder or result.json.")],
    selected_on: Annotated[
        str, typer.Option(help="Metric whose best mean decides.")
    ] = "first-half.bits_per_byte",
    evaluated_on: Annotated[
        str, typer.Option(help="Metric that evaluates the choice.")
    ] = "second-half.bits_per_byte",
    is_score: Annotated[
        bool, typer.Option("--higher-is-better", help="The metrics are scores, not losses.")
    ] = False,
    document: DocumentOption = None,
    as_json: JsonOption = False,
) -> None:
    """Choose the best arm of a study on one half of the held-out text; evaluate it on the other."""
    from benchmarks import default_recipe
    from benchmarks.markdown_sections import write_section

    stored = default_recipe.read_result(result)
    choice = default_recipe.choose(stored, selected_on, evaluated_on, is_score)
    lines = default_recipe.report_lines(stored, choice)
    if document is not None:
        write_section(document, "bench default", lines, stored["provenance"])
    print_results(choice.rows(), choice.columns(), as_json)


@app.command()
def stored(
    folders: Annotated[list[Path], typer.Argument(help="Model folders that finetune wrote.")],
    section: Annotated[str, typer.Option(help="Name of the section in the document.")] = "scores",
    document: DocumentOption = None,
    as_json: JsonOption = False,
) -> None:
    """Collect the scores that finetune stored with its models."""
    from benchmarks.markdown_sections import write_section
    from benchmarks.stored_scores import COLUMNS, score_rows
    from bertwright.runtime.markdown_report import markdown_table

    rows = score_rows(folders)
    if document is not None:
        write_section(document, section, markdown_table(COLUMNS, rows))
    print_results(rows, COLUMNS, as_json)


@app.command()
def vocabulary(
    model: Annotated[Path, typer.Argument(help="Folder of a pre-trained model.")],
    text: Annotated[list[str], typer.Option(help="Text to train on, as prepare reads.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder of models and results.")],
    add: Annotated[int, typer.Option(min=1, help="Number of tokens to add.")] = 3_000,
    minutes: Annotated[float, typer.Option(help="Training time of each run.")] = 10,
    seeds: Annotated[int, typer.Option(min=2, help="Number of seeds.")] = 3,
    init: Annotated[str, typer.Option(help="Rows of new tokens, as in vocab extend.")] = "mean",
    document: DocumentOption = None,
    as_json: JsonOption = False,
) -> None:
    """Bits per byte after some minutes of training, with and without an extended vocabulary."""
    from benchmarks import vocabulary as vocabularies
    from benchmarks.markdown_sections import write_section

    plan = vocabularies.VocabularyPlan(model, text, add, minutes, seeds, init)
    with _locked(output):
        comparison = vocabularies.compare(plan, output, log)
    if document is not None:
        write_section(document, f"bench vocabulary {model.name}", comparison.lines())
    print_result(comparison.as_dict(), as_json, comparison.lines())


@app.command()
def conformal(
    models: Annotated[
        list[str], typer.Argument(metavar="MODEL=FILE ...", help="Models with labelled files.")
    ],
    coverages: Annotated[str, typer.Option(help="Promised coverages.")] = "0.8,0.9,0.95",
    repetitions: Annotated[int, typer.Option(min=2, help="Number of random halves.")] = 100,
    document: DocumentOption = None,
    as_json: JsonOption = False,
) -> None:
    """Coverage of prediction sets and risk of abstention, over random halves of a labelled file."""
    from benchmarks import conformal
    from bertwright.core.errors import UserError

    results: list[dict[str, Any]] = []
    promised = parse_numbers("--coverages", coverages, float)
    for model in models:
        folder, separator, file = model.partition("=")
        if not separator:
            raise UserError(f"{model}: write MODEL=FILE, a model folder and a labelled file")
        results += conformal.measure(Path(folder), Path(file), promised, repetitions)
    publish("conformal", results, conformal.COLUMNS, document, as_json)


@app.command()
def suite(
    folder: Annotated[Path, typer.Argument(help="Folder that evaluate --suite wrote.")],
    document: DocumentOption = None,
) -> None:
    """The report of ``bertwright evaluate --suite`` as tables."""
    from benchmarks.markdown_sections import write_section
    from benchmarks.suite_scores import read_report, report_lines

    report = read_report(folder)
    lines = report_lines(report)
    if document is not None:
        write_section(document, f"bench suite {report['suite']}", lines, report["provenance"])
    print("\n".join(lines))
