"""``bertwright prompt``: few-shot classification by prompting, without training."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from bertwright.cli.options import ModelArgument, PluginOption
from bertwright.cli.output import JsonOption, print_result


def prompt(
    model: ModelArgument,
    data: Annotated[Path, typer.Option(help="Examples to classify: .tsv, .csv, .jsonl, also .gz.")],
    shots: Annotated[int, typer.Option(min=0, help="Number of solved examples per prompt.")] = 0,
    train: Annotated[
        Path | None, typer.Option(help="File to draw shots from; by default the other examples.")
    ] = None,
    template: Annotated[
        str, typer.Option(help=r"Prompt template with {text}, {pair}, {label}; \n is a new line.")
    ] = r"{text}\nLabel: {label}",
    verbalisers: Annotated[
        list[str] | None,
        typer.Option("--words", help="LABEL=WORDS: words that stand for a label; may be repeated."),
    ] = None,
    separator: Annotated[str, typer.Option(help="Text between examples.")] = r"\n\n",
    compare: Annotated[
        Literal["sum", "mean", "prior"],
        typer.Option(
            help="Compare labels by log-likelihood, by that per token, or less their prior."
        ),
    ] = "sum",
    text: Annotated[str, typer.Option(help="Column of the text.")] = "text",
    pair: Annotated[str | None, typer.Option(help="Column of the second text.")] = None,
    label: Annotated[str, typer.Option(help="Column of the label.")] = "label",
    seeds: Annotated[
        int, typer.Option(min=1, help="Number of random draws of the shots, for mean and interval.")
    ] = 1,
    trained_on: Annotated[
        Path | None,
        typer.Option(help="The model's data folder: report how many of the texts it contains."),
    ] = None,
    plugin: PluginOption = None,
    as_json: JsonOption = False,
) -> None:
    """Classify by few-shot prompting, without training.

    A causal model scores the label after the prompt, a masked one the label in place of masks.
    """
    from bertwright.core.errors import UserError
    from bertwright.data.shards.dataset import Dataset
    from bertwright.interop.loading import load
    from bertwright.tasks.formats.tables import Columns, TableReader
    from bertwright.tasks.zero_shot.prompting import prompt as classify

    table = TableReader(columns=Columns(text, pair, label))
    settings: dict[str, Any] = {"words": {}}
    for verbaliser in verbalisers or []:
        name, equals, words = verbaliser.partition("=")
        if not equals:
            raise UserError(f"--words {verbaliser!r} is not of the form LABEL=WORDS")
        settings["words"][name] = words
    result = classify(
        load(model, "float32"),
        table.read(data),
        shots,
        demonstrations=None if train is None else table.read(train),
        seeds=seeds,
        training_data=None if trained_on is None else Dataset.open(trained_on),
        template=template.replace(r"\n", "\n"),
        separator=separator.replace(r"\n", "\n"),
        comparison=compare,
        **settings,
    )
    print_result(result.as_dict(), as_json)
