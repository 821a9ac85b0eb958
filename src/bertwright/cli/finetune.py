"""``bertwright finetune``: a pre-trained encoder and examples to a solved task."""

from pathlib import Path
from typing import Annotated, Any

import typer

from bertwright.cli.output import AsJson, report, say
from bertwright.cli.plugin import Plugin
from bertwright.cli.stated import refuse


def finetune(
    context: typer.Context,
    model: Annotated[Path, typer.Argument(help="A model folder, ours or Hugging Face's.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The model folder to write.")],
    changes: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[KEY=VALUE ...]",
            help="Further settings: dropout, decay, layer_decay, unfreeze, warmup, clip, length, "
            "head.kind, head.read, precision, compile, seed.",
        ),
    ] = None,
    task: Annotated[
        str | None,
        typer.Option(help="A task by name: cola, sst-2, mrpc, sts-b, rte, ner, upos ..."),
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="A folder with a training and a development file.")
    ] = None,
    train: Annotated[Path | None, typer.Option(help="The file to train on.")] = None,
    dev: Annotated[
        Path | None, typer.Option(help="The file to judge by; else a tenth of --train is held out.")
    ] = None,
    text: Annotated[str, typer.Option(help="The column of the text.")] = "text",
    pair: Annotated[str | None, typer.Option(help="The column of the second text.")] = None,
    label: Annotated[str, typer.Option(help="The column of the label.")] = "label",
    number: Annotated[
        bool, typer.Option("--number", help="The label is a number (regression).")
    ] = False,
    tags: Annotated[
        str | None,
        typer.Option(help="Tag words, by this column of CoNLL files: tag, upos, xpos, feats."),
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(help="Times that every example is seen (3).")
    ] = None,
    rate: Annotated[
        float | None, typer.Option(help="Learning rate (5e-5 x 768 / width of the encoder).")
    ] = None,
    batch: Annotated[int | None, typer.Option(help="Rows of a step (32).")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Repetitions, for mean and interval.")] = 1,
    plugin: Plugin = None,
    as_json: AsJson = False,
) -> None:
    """Fine-tune a model for a task and write the best of its epochs."""
    from bertwright.machine import tune_allocator

    tune_allocator()
    from bertwright.errors import UserError
    from bertwright.interop.loading import load
    from bertwright.recipes.loading import changed
    from bertwright.tasks import finetuning
    from bertwright.tasks.catalogue import find_task, table_task, tagging_task
    from bertwright.tasks.formats.tables import Columns
    from bertwright.training.clock import Clock
    from bertwright.training.interruption import Interrupted
    from bertwright.training.progress import ProgressLine
    from bertwright.training.reporting import Reporter, Reporters, Speed

    columns = ("text", "pair", "label", "number")
    if task is not None:
        refuse(context, f"--task {task} says what is read and asked", *columns, "tags")
        chosen = find_task(task)
    elif tags is not None:
        refuse(context, "--tags reads words and their tags", *columns)
        chosen = tagging_task(tags, tags) if tags == "tag" else find_task(tags)
        if chosen.answer != "tags":
            raise UserError(f"--tags {tags}: {tags} is no task of tagged words: say --task {tags}")
    else:
        name = (data or train or Path("task")).name.split(".")[0]
        chosen = table_task(name, Columns(text, pair, label), "number" if number else "class")

    def watch(seed: int, clock: Clock) -> Reporter:
        if seeds > 1:
            say(f"seed {seed}")
        speed = Speed()
        return Reporters(speed, ProgressLine(clock, speed))

    stated: dict[str, Any] = {"epochs": epochs, "rate": rate, "batch": batch, "seeds": seeds}
    settings = {name: value for name, value in stated.items() if value is not None}
    try:
        result = finetuning.finetune(
            load(model),
            chosen,
            data,
            train=train,
            dev=dev,
            out=output,
            watch=watch,
            **changed(settings, changes or []),
        )
    except Interrupted as interrupted:
        say(f"bertwright: {interrupted}; nothing was written")
        raise typer.Exit(interrupted.exit_code) from None
    report(result.as_dict(), as_json)
