"""``bertwright prompt``: classification by a prompt with some solved examples, without training."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from bertwright.cli.output import AsJson, report
from bertwright.cli.plugin import Plugin


def prompt(
    model: Annotated[Path, typer.Argument(help="A model folder, ours or Hugging Face's.")],
    data: Annotated[Path, typer.Option(help="The examples to ask: .tsv, .csv, .jsonl, also .gz.")],
    shots: Annotated[int, typer.Option(min=0, help="Solved examples before each.")] = 0,
    train: Annotated[
        Path | None, typer.Option(help="The file that shots are drawn from; else the other rows.")
    ] = None,
    template: Annotated[
        str, typer.Option(help=r"With {text}, {pair} and {label}; \n begins a new line.")
    ] = r"{text}\nLabel: {label}",
    words: Annotated[
        list[str] | None,
        typer.Option(help="LABEL=WORDS: what stands for a label; may be given several times."),
    ] = None,
    between: Annotated[str, typer.Option(help="What parts the examples.")] = r"\n\n",
    compare: Annotated[
        Literal["sum", "mean", "prior"],
        typer.Option(help="Labels by their log-likelihood, that per piece, or less their prior."),
    ] = "sum",
    text: Annotated[str, typer.Option(help="The column of the text.")] = "text",
    pair: Annotated[str | None, typer.Option(help="The column of the second text.")] = None,
    label: Annotated[str, typer.Option(help="The column of the label.")] = "label",
    seeds: Annotated[
        int, typer.Option(min=1, help="Draws of the shots, for mean and interval.")
    ] = 1,
    trained_on: Annotated[
        Path | None,
        typer.Option(help="The model's data folder: says how many of the texts stand in it."),
    ] = None,
    plugin: Plugin = None,
    as_json: AsJson = False,
) -> None:
    """Let a model choose labels by how likely they are: in a causal model what follows the prompt,
    in a masked one what is hidden."""
    from bertwright.machine.process import tune_process

    tune_process()
    from bertwright.errors import UserError
    from bertwright.interop.loading import load
    from bertwright.tasks.formats.tables import Columns, TableReader
    from bertwright.tasks.prompting import prompt as prompted
    from bertwright.text.shards import Data

    table = TableReader(columns=Columns(text, pair, label))
    settings: dict[str, Any] = {"words": {}}
    for each in words or []:
        name, equals, said = each.partition("=")
        if not equals:
            raise UserError(f"--words {each!r} is not of the form LABEL=WORDS")
        settings["words"][name] = said
    found = prompted(
        load(model, "float32"),
        table.read(data),
        shots,
        solved=None if train is None else table.read(train),
        seeds=seeds,
        training=None if trained_on is None else Data.open(trained_on),
        template=template.replace(r"\n", "\n"),
        between=between.replace(r"\n", "\n"),
        comparison=compare,
        **settings,
    )
    report(found.as_dict(), as_json)
