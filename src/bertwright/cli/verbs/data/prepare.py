"""``bertwright prepare``: tokenize text into a data folder for pre-training."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from bertwright.cli.options import (
    ColumnOption,
    FormatOption,
    NumWorkersOption,
    OutputOption,
    refuse_options,
)
from bertwright.cli.output import JsonOption, log, print_result
from bertwright.core.errors import UserError

TextsArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="TEXT...",
        help="Files, folders, quoted patterns, or - for standard input: .txt (a blank line ends a "
        "document), .jsonl, .csv, .tsv, .parquet, and .json where it is named (one list of "
        "objects), each also .gz or .zst. en=FILE states the language; en,de=FILE,FILE are "
        "translations line by line, en,de=TABLE column by column. hf:owner/name, "
        "hf:owner/name:config and hf:owner/name@revision are data sets on the Hub, streamed.",
    ),
]
SplitOption = Annotated[str, typer.Option(help="Split of data sets on the Hub.")]
LanguageColumnOption = Annotated[
    str | None, typer.Option(help="Column (or key) of tables that holds the language.")
]


TEXT_OPTIONS = (
    *("heldout", "near_duplicates", "column", "split", "language_column", "num_workers", "on"),
    *("annotations", "phrases", "tagger", "dialogues", "dialogue_column", "capitals"),
)
"""Options for texts, which cannot be combined with --item."""


def prepare(
    context: typer.Context,
    texts: TextsArgument,
    output: OutputOption,
    tokenizer: Annotated[
        Path | None,
        typer.Option(help="Tokenizer or model, a folder or a name on the Hub; text needs one."),
    ] = None,
    heldout: Annotated[float, typer.Option(help="Fraction of the text to hold out.")] = 0.05,
    near_duplicates: Annotated[
        bool,
        typer.Option(
            "--near-duplicates",
            help="Drop documents that share 80 % of their 5-grams with an earlier one (MinHash; "
            "about 1 KB of memory per document).",
        ),
    ] = False,
    column: ColumnOption = "text",
    split: SplitOption = "train",
    format: FormatOption = None,
    language_column: LanguageColumnOption = None,
    num_workers: NumWorkersOption = None,
    on: Annotated[
        Literal["ray"] | None,
        typer.Option(
            help="Tokenize on the Ray cluster at RAY_ADDRESS instead of this machine; needs "
            "bertwright\\[ray]. The result is the same, byte for byte.",
        ),
    ] = None,
    annotations: Annotated[
        str | None,
        typer.Option(
            help="Column of phrase and entity annotations: a list of "
            '{"start": 0, "stop": 5, "label": "phrase"}, in characters; other labels are entities. '
            "For plain text, story.txt.json holds those of story.txt."
        ),
    ] = None,
    phrases: Annotated[
        Path | None,
        typer.Option(help="File of phrases, one per line; the type of an entity after a tab."),
    ] = None,
    tagger: Annotated[
        str | None,
        typer.Option(
            help="spaCy pipeline that finds phrases and entities; needs bertwright\\[tagger]."
        ),
    ] = None,
    dialogues: Annotated[
        list[str] | None,
        typer.Option(
            help="Dialogue file: a table with lists of turns, or plain text with a turn per line, "
            "which may begin with the name of the speaker and a colon. May be repeated."
        ),
    ] = None,
    dialogue_column: Annotated[
        str,
        typer.Option(help="Column of turns: texts, or objects with a text and perhaps a speaker."),
    ] = "dialogue",
    capitals: Annotated[
        bool,
        typer.Option(
            "--capitals", help="Record which words are capitalised, for lower-cased tokens."
        ),
    ] = False,
    item: Annotated[
        str | None,
        typer.Option(
            help="Read histories of users instead of texts (BERT4Rec): the column of items, which "
            "become the vocabulary. The last two items of each user are held out."
        ),
    ] = None,
    user: Annotated[str, typer.Option(help="Histories: column of the user.")] = "user",
    time: Annotated[
        str, typer.Option(help="Histories: column of the time, numbers or ISO dates.")
    ] = "time",
    min_events: Annotated[
        int, typer.Option(min=1, help="Histories: drop users and items with fewer events.")
    ] = 5,
    as_json: JsonOption = False,
) -> None:
    """Tokenize text into a data folder for pre-training."""
    if item is not None:
        refuse_options(context, "--item reads histories, not texts", *TEXT_OPTIONS)
        from bertwright.data.interaction_histories import prepare_histories

        data = prepare_histories(
            texts,
            output,
            user_column=user,
            item_column=item,
            time_column=time,
            tokenizer=tokenizer,
            min_events=min_events,
            format=format,
        )
        print_result(data.report, as_json)
        return
    refuse_options(
        context, "this is for histories, which --item reads", "user", "time", "min_events"
    )
    if on is not None:
        refuse_options(context, "--on ray uses every core of the cluster", "num_workers")
    if not dialogues:
        refuse_options(context, "this is for --dialogues", "dialogue_column")
    if tokenizer is None:
        raise UserError(
            "text needs a tokenizer: name its folder with --tokenizer, or make one with "
            "'bertwright tokenizer train'"
        )
    from bertwright.data.holdout import heldout_warning
    from bertwright.data.hub.reference import HubDataset
    from bertwright.data.preparation import prepare
    from bertwright.interop.imported_folder import bertwright_folder

    if not any(map(HubDataset.is_named, (*texts, *(dialogues or ())))):
        refuse_options(context, "this is for data sets on the Hub, hf:owner/name", "split")
    data = prepare(
        texts,
        output,
        bertwright_folder(tokenizer),
        heldout=heldout,
        near_duplicates=near_duplicates,
        column=column,
        split=split,
        format=format,
        language_column=language_column,
        annotations_column=annotations,
        phrases=phrases,
        tagger=tagger,
        dialogues=dialogues or (),
        dialogue_column=dialogue_column,
        capitals=capitals,
        num_workers=num_workers,
        backend=on,
    )
    print_result(data.report, as_json)
    if warning := heldout_warning(heldout, data.report.get("heldout_achieved", 0.0)):
        log(f"warning: {warning}")
