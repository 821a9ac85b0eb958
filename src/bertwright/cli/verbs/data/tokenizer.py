"""``bertwright tokenizer``: train a tokenizer."""

from typing import Annotated

import typer

from bertwright.cli.options import (
    ColumnOption,
    DocumentedCommand,
    FormatOption,
    NumWorkersOption,
    OutputOption,
)
from bertwright.cli.output import JsonOption, print_result
from bertwright.cli.verbs.data.prepare import (
    LanguageColumnOption,
    SplitOption,
    TextsArgument,
)

app = typer.Typer(help="Train a tokenizer.", no_args_is_help=True)


@app.callback()
def tokenizer() -> None:
    """Train a tokenizer."""


@app.command(cls=DocumentedCommand)
def train(
    texts: TextsArgument,
    output: OutputOption,
    kind: Annotated[
        str, typer.Option(help="Algorithm: wordpiece, byte-bpe, unigram or words.")
    ] = "wordpiece",
    vocab_size: Annotated[int, typer.Option(help="Maximum vocabulary size.")] = 16_384,
    lowercase: Annotated[
        bool, typer.Option("--lowercase", help="Lower-case and strip accents (not byte-bpe).")
    ] = False,
    sentinels: Annotated[int, typer.Option(help="Number of sentinel tokens (T5: 100).")] = 0,
    column: ColumnOption = "text",
    split: SplitOption = "train",
    format: FormatOption = None,
    language_column: LanguageColumnOption = None,
    alpha: Annotated[
        float,
        typer.Option(
            help="Exponent of the language sampling weights; below 1, small languages count more."
        ),
    ] = 1.0,
    num_workers: NumWorkersOption = None,
    as_json: JsonOption = False,
) -> None:
    """Train a tokenizer; the result does not depend on the number of processes.

    WordPiece vocabularies are trained, as in the tokenizers library, by merging pairs of
    characters; words are then split into the longest known tokens.
    """
    from bertwright.data.vocabulary_training import train_tokenizer_on_files

    tokenizer = train_tokenizer_on_files(
        texts,
        output,
        {"kind": kind, "vocab_size": vocab_size, "lowercase": lowercase, "sentinels": sentinels},
        column=column,
        split=split,
        format=format,
        language_column=language_column,
        alpha=alpha,
        num_workers=num_workers,
    )
    result = {"kind": tokenizer.kind, "size": tokenizer.vocab_size, "hash": tokenizer.hash}
    print_result(result, as_json)
