"""``bertwright finetune``: a pre-trained encoder and examples to a solved task."""

import re
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bertwright.cli.output import AsJson, report, say
from bertwright.cli.plugin import Plugin
from bertwright.cli.stated import refuse
from bertwright.cli.tasks import COLUMNS, Asked
from bertwright.errors import Interrupted, UserError

if TYPE_CHECKING:
    from bertwright.model.text_model import TextModel
    from bertwright.tasks.data import TaskData
    from bertwright.tasks.task_training import Watch

TASK_HELP = (
    "A task by name: cola, sst-2, mrpc, sts-b, qqp, mnli, qnli, rte, wnli, glue (all of these), "
    "squad1, squad2, race, swag, codah, dream, conll2003, ner, iob2, upos, xpos, feats, "
    "restoration, sick, sick-relatedness, sick-similarity, sts-b-similarity, wic, similarity, "
    "retrieval, rank. Several with commas between are learned at once."
)


def finetune(
    context: typer.Context,
    model: Annotated[Path, typer.Argument(help="A model folder, ours or Hugging Face's.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The folder to write.")],
    changes: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[KEY=VALUE ...]",
            help="Further settings: adaptation (full, frozen, last, gradual, adapters, lora), "
            "head.kind, head.read, head.layers, head.mix, head.activation, dropout, decay, warmup, "
            "schedule, perturbation (freelb, smart), language_model, share_power, patience, clip, "
            "bias_correction, calibrate, length, precision, compile, seed; "
            "answer.KEY for those of the answer, such as answer.stride or answer.weights.",
        ),
    ] = None,
    task: Annotated[str | None, typer.Option(help=TASK_HELP)] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            help="A folder with a training and a development file; of several tasks one with a "
            "folder for each."
        ),
    ] = None,
    train: Annotated[Path | None, typer.Option(help="The file to train on.")] = None,
    dev: Annotated[
        Path | None, typer.Option(help="The file to judge by; else a tenth of --train is held out.")
    ] = None,
    text: Annotated[str, typer.Option(help="The column of the text.")] = "text",
    pair: Annotated[str | None, typer.Option(help="The column of the second text.")] = None,
    label: Annotated[str, typer.Option(help="The column of the label.")] = "label",
    other: Annotated[
        list[str] | None,
        typer.Option(help="A column of texts that are no partner of the first."),
    ] = None,
    answer: Annotated[
        str, typer.Option(help="What the label is: class, labels (several at once), number, cloze.")
    ] = "class",
    tags: Annotated[
        str | None,
        typer.Option(help="Tag words, by this column of CoNLL files: tag, upos, xpos, feats."),
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(help="Times that every example is seen (3).")
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option(
            help="Learning rate (5e-5 x 768 / width of the encoder; more where less is trained)."
        ),
    ] = None,
    batch: Annotated[int | None, typer.Option(help="Examples of a step (32).")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Repetitions, for mean and interval.")] = 1,
    search: Annotated[
        str | None,
        typer.Option(
            help="Look for settings: the grid of a paper (bert, roberta, electra), or so many "
            "trials drawn by Optuna."
        ),
    ] = None,
    folds: Annotated[
        int | None, typer.Option(help="Judge every training example once, in so many parts.")
    ] = None,
    sizes: Annotated[
        str | None,
        typer.Option(
            help="Learn from 100,300,all examples, with the pre-trained and an untrained encoder."
        ),
    ] = None,
    plugin: Plugin = None,
    as_json: AsJson = False,
) -> None:
    """Fine-tune a model for a task and write the best of its epochs."""
    from bertwright.machine.process import tune_process

    tune_process()
    from bertwright.files import require_free
    from bertwright.interop.loading import load
    from bertwright.recipes.loading import changed, spelled

    if sum(each is not None for each in (search, folds, sizes)) > 1:
        raise UserError("--search, --folds and --sizes are three questions: ask one at a time")
    stated: dict[str, Any] = {"epochs": epochs, "rate": rate, "batch": batch}
    settings = {name: value for name, value in stated.items() if value is not None}
    paths = [*settings, *(change.partition("=")[0] for change in changes or [])]
    if twice := next((path for path in paths if paths.count(path) > 1), None):
        raise UserError(f"{twice} is stated twice: leave one out")
    settings = changed(settings, changes or [])
    of_answer = settings.pop("answer", {})
    texts = spelled(change for change in changes or [] if change.startswith("answer"))
    if seeds > 1:
        settings["seeds"] = seeds
    if task == "glue":
        refuse(context, "--task glue has its own files", "train", "dev", "search", "folds", "sizes")
        refuse(context, "--task glue says what is read and asked", *COLUMNS, "answer", "tags")
        if of_answer:
            raise UserError(
                f"--task glue says what is asked: leave answer.{next(iter(of_answer))} out"
            )
        if data is None:
            raise UserError("--task glue needs --data DIR, with a folder for each task")
        with uninterrupted():
            report(_glue(load(model), data, output, settings), as_json)
        return
    require_free(output)
    asked = Asked(task, data, train, dev, text, pair, label, other or [], answer, tags)
    several = asked.several(context, of_answer, texts.get("answer", {}))
    with uninterrupted():
        loaded = load(model)
        if folds is not None:
            report(_folds(loaded, several, folds, output, settings), as_json)
        elif sizes is not None:
            report(_sizes(loaded, several, sizes, output, settings), as_json)
        elif search is not None:
            report(_search(loaded, several, search, output, settings), as_json)
        else:
            report(_plain(loaded, several, output, settings), as_json)


@contextmanager
def uninterrupted() -> Generator[None]:
    """Ends with the exit code of a signal where there was one."""
    try:
        yield
    except Interrupted as interrupted:
        say(f"bertwright: {interrupted}; nothing was written")
        raise typer.Exit(interrupted.exit_code) from None


def watching(many: bool) -> "Watch":
    """A line of progress for every run."""
    from bertwright.training.clock import Clock
    from bertwright.training.progress import ProgressLine
    from bertwright.training.reporting import Reporter, Reporters, Speed

    def watch(seed: int, clock: Clock) -> Reporter:
        if many:
            say(f"seed {seed}")
        speed = Speed()
        return Reporters(speed, ProgressLine(clock, speed))

    return watch


def _plain(
    model: "TextModel", several: "Sequence[TaskData]", output: Path, settings: dict[str, Any]
) -> dict[str, Any]:
    from bertwright.tasks.finetuning import finetune_together

    watch = watching("seeds" in settings)
    result = finetune_together(model, several, out=output, watch=watch, **settings)
    for sentence in result.warnings:
        say(sentence)
    return result.as_dict()


def _search(
    model: "TextModel",
    several: "Sequence[TaskData]",
    search: str,
    output: Path,
    settings: dict[str, Any],
) -> dict[str, Any]:
    from bertwright.tasks.search import GRIDS, search_drawn, search_grid

    watch = watching(many=False)
    if search in GRIDS:
        found = search_grid(model, several, search, watch, settings)
    elif search.isdigit() and int(search):
        found = search_drawn(model, several, int(search), watch, settings)
    else:
        raise UserError(f"--search {search}: say {', '.join(GRIDS)}, or a number of trials")
    found.result.write(output, {"search.json": _json(found.as_dict())})
    return {**found.result.as_dict(), **found.as_dict()}


def _folds(
    model: "TextModel",
    several: "Sequence[TaskData]",
    folds: int,
    output: Path,
    settings: dict[str, Any],
) -> dict[str, Any]:
    from bertwright.tasks.folds import cross_validate

    found = cross_validate(
        model, _one(several), folds, watch=watching(False), say=say, settings=settings
    )
    _write_json(output, "folds.json", found.as_dict())
    return found.as_dict()


def _sizes(
    model: "TextModel",
    several: "Sequence[TaskData]",
    sizes: str,
    output: Path,
    settings: dict[str, Any],
) -> dict[str, Any]:
    from bertwright.files import atomic_folder
    from bertwright.tasks.learning_curve import learning_curve

    if not re.fullmatch(r"(\d+|all)(,(\d+|all))*", sizes):
        raise UserError(f"--sizes {sizes}: write numbers with commas between, such as 100,300,all")
    numbers = [None if size == "all" else int(size) for size in sizes.split(",")]
    curve = learning_curve(model, _one(several), numbers, say=say, settings=settings)
    with atomic_folder(output) as folder:
        (folder / "sizes.json").write_text(_json(curve.as_dict()), encoding="utf-8")
        curve.draw(folder / "sizes.png")
    return curve.as_dict()


def _glue(model: "TextModel", data: Path, output: Path, settings: dict[str, Any]) -> dict[str, Any]:
    from bertwright.tasks.glue import run_glue

    return run_glue(model, data, output, watch=watching(False), say=say, settings=settings)


def _one(several: "Sequence[TaskData]") -> "TaskData":
    if len(several) > 1:
        raise UserError("--folds and --sizes are asked of one task: name one")
    return several[0]


def _write_json(output: Path, name: str, found: dict[str, Any]) -> None:
    from bertwright.files import atomic_folder

    with atomic_folder(output) as folder:
        (folder / name).write_text(_json(found), encoding="utf-8")


def _json(found: dict[str, Any]) -> str:
    import json

    return json.dumps(found, indent=1) + "\n"
