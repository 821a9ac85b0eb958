"""What training comes to: many runs, each kept in a folder and done once."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from bertwright.cli.bench.publishing import answer, numbers_of, publish
from bertwright.cli.output import AsJson, Document, report, report_results, say
from bertwright.files import held_alone

app = typer.Typer()

Parts = Annotated[
    str,
    typer.Option(
        help='What to find now: scores; times, on a quiet machine; "" to tell what is known.'
    ),
]
Processes = Annotated[
    int, typer.Option(min=1, help="Runs at once; each has its share of the processor's threads.")
]


@contextmanager
def _held(output: Path) -> Generator[None]:
    """Lock the folder that results are added to."""
    output.mkdir(parents=True, exist_ok=True)
    with held_alone(output):
        yield


@app.command()
def learn(
    data: Annotated[Path, typer.Option(help="A prepared data folder.")],
    output: Annotated[
        Path, typer.Option("-o", "--output", help="Where arms and results are kept.")
    ],
    size: Annotated[str, typer.Option(help="Size of BERT for the peer.")] = "mini",
    recipe: Annotated[
        str | None, typer.Option(help="Our recipe; none: modern of the same size.")
    ] = None,
    minutes: Annotated[float, typer.Option(help="The time of a training.")] = 10,
    grid_minutes: Annotated[
        float | None, typer.Option(help="The time of a training in the grid; none: the same.")
    ] = None,
    seeds: Annotated[int, typer.Option(min=2, help="Trainings of either.")] = 3,
    rates: Annotated[str, typer.Option(help="Learning rates of the grid.")] = "5e-4,1e-3,2e-3",
    arms: Annotated[str, typer.Option(help="What to run now.")] = "hf-grid,hf-best,ours",
    document: Document = None,
    as_json: AsJson = False,
) -> None:
    """Held-out loss after some minutes, against Transformers' Trainer at its best of a grid."""
    from bertwright.bench.learning import report as reporting
    from bertwright.bench.learning import running
    from bertwright.bench.learning.arms import Plan
    from bertwright.document import write_section
    from bertwright.text.shards import Data

    plan = Plan(
        size,
        recipe or f"modern-{size}",
        minutes,
        grid_minutes or minutes,
        seeds,
        tuple(numbers_of("--rates", rates, float)),
    )
    with _held(output):
        results = running.Results(output, Data.open(data), plan)
        running.run_parts(plan, arms.split(","), results, say)
    lines = reporting.lines(plan, results)
    if document is not None and lines:
        write_section(document, f"bench learn {size}", lines)
    report(reporting.report(plan, results), as_json)


@app.command()
def finetune(
    plan: Annotated[Path, typer.Argument(help="A YAML file: the tasks, and the settings of both.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Where figures are kept.")],
    parts: Parts = "scores,times",
    rounds: Annotated[int, typer.Option(min=1, help="Epochs of each side that are timed.")] = 3,
    processes: Processes = 1,
    document: Document = None,
    as_json: AsJson = False,
) -> None:
    """What fine-tuning scores and how long it takes, against Transformers' Trainer."""
    from bertwright.bench.finetuning import comparing

    chosen = parts.split(",") if parts else []
    with _held(output):
        results = comparing.compare(plan, output, chosen, rounds, say, processes)
    publish("finetune", results, comparing.COLUMNS, document, as_json)


@app.command()
def adapt(
    plan: Annotated[Path, typer.Argument(help="A YAML file: encoders, tasks, ways to adapt.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Where figures are kept.")],
    processes: Processes = 1,
    document: Document = None,
    as_json: AsJson = False,
) -> None:
    """Ways to adapt encoders to tasks, held against each other over several seeds."""
    from bertwright.bench.adapting import comparing
    from bertwright.bench.adapting.plan import Plan

    known = Plan.load(plan)
    with _held(output):
        results = comparing.compare(known, output, say, processes)
    if document is not None:
        asked = (known.question, known.source)
        answer(document, f"bench adapt {plan.stem}", *asked, (comparing.COLUMNS, results))
    report_results(results, comparing.COLUMNS, as_json)


@app.command()
def compress(
    plan: Annotated[
        Path, typer.Argument(help="A YAML file: tasks, and ways to make a model small.")
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="Where figures are kept.")],
    models: Annotated[
        Path, typer.Option(help="A folder that keeps the models, which are timed by --parts times.")
    ] = Path("models"),
    parts: Parts = "scores,times",
    rounds: Annotated[int, typer.Option(min=3, help="Turns that each model takes.")] = 15,
    processes: Processes = 1,
    document: Document = None,
    as_json: AsJson = False,
) -> None:
    """Ways to make a fine-tuned model small: what they score, weigh and take, over several
    seeds."""
    from bertwright.bench.ladder import climbing, overview
    from bertwright.bench.ladder.plan import Plan

    known = Plan.load(plan)
    chosen = parts.split(",") if parts else []
    with _held(output):
        results = climbing.climb(known, output, models, chosen, rounds, say, processes)
    if document is not None:
        asked = (known.question, known.source)
        means = (overview.COLUMNS, overview.overview(results))
        whole = (climbing.COLUMNS, results)
        answer(document, f"bench compress {plan.stem}", *asked, means, whole)
    report_results(results, climbing.COLUMNS, as_json)


@app.command()
def frozen(
    output: Annotated[Path, typer.Option("-o", "--output", help="Where figures are kept.")],
    data: Annotated[
        Path, typer.Option(help="A folder with the data sets glue, sick and movie_reviews.")
    ] = Path("../shared/data"),
    model: Annotated[
        Path | None, typer.Argument(help="A model folder; none: all-MiniLM-L6-v2.")
    ] = None,
    tasks: Annotated[str, typer.Option(help="Tasks, with commas between.")] = (
        "sst-2,mrpc,cola,sick,sick-relatedness,movie-reviews"
    ),
    sizes: Annotated[str, typer.Option(help="Numbers of training examples.")] = "100,300,1000",
    seeds: Annotated[int, typer.Option(min=2, help="Draws of the training examples.")] = 5,
    document: Document = None,
    as_json: AsJson = False,
) -> None:
    """Heads on frozen features of a few examples, against scikit-learn on the same vectors."""
    from bertwright.axes import did_you_mean
    from bertwright.bench import frozen as comparing
    from bertwright.errors import UserError

    chosen = tasks.split(",")
    if unknown := next((name for name in chosen if name not in comparing.FOLDERS), None):
        raise UserError(f"--tasks has no {unknown!r}{did_you_mean(unknown, comparing.FOLDERS)}")
    plan = comparing.Frozen(data, model, numbers_of("--sizes", sizes, int), seeds, chosen)
    publish("frozen", comparing.compare(plan, output, say), comparing.COLUMNS, document, as_json)
