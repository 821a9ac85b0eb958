"""``bertwright prepare``: text to a data set that training reads."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from bertwright.cli.output import AsJson, report, say
from bertwright.cli.stated import refuse
from bertwright.errors import UserError

Texts = Annotated[
    list[str],
    typer.Argument(
        metavar="TEXT...",
        help="Files, folders, quoted patterns, or - for standard input: .txt (a blank line ends a "
        "document), .jsonl, .csv, .tsv, .parquet, and .json where it is named (one list of rows), "
        "each also .gz or .zst. en=FILE states the language; en,de=FILE,FILE are translations line "
        "by line, en,de=TABLE column by column.",
    ),
]
Column = Annotated[str, typer.Option(help="The column (or key) that holds the text of tables.")]
Format = Annotated[
    str | None, typer.Option(help="txt, json, jsonl, csv, tsv or parquet, whatever the names say.")
]
LanguageColumn = Annotated[
    str | None, typer.Option(help="The column (or key) of tables that holds the language.")
]
Workers = Annotated[
    int | None, typer.Option(min=1, help="Processes that do the work; as many as there are cores.")
]


def texts_in(texts: list[str], column: str, format: str | None) -> Iterator[str]:
    """What stands in such files, in whatever language."""
    from bertwright.text.documents import ReadCounts
    from bertwright.text.readers import read_documents
    from bertwright.text.sources import find_sources

    met = ReadCounts()
    for document in read_documents(find_sources(texts, column, format, met), met):
        yield from (side.text for side in document.sides)


OF_TEXTS = (
    *("heldout", "near_duplicates", "column", "language_column", "num_workers", "annotations"),
    *("phrases", "tagger", "dialogues", "dialogue_column", "capitals"),
)
"""Options that mean nothing where histories are read."""


def prepare(
    context: typer.Context,
    texts: Texts,
    output: Annotated[Path, typer.Option("-o", "--output", help="The data folder to make.")],
    tokenizer: Annotated[
        Path | None, typer.Option(help="A folder with a tokenizer (or a model); text needs one.")
    ] = None,
    heldout: Annotated[
        float, typer.Option(help="The fraction of the text that is held out.")
    ] = 0.05,
    near_duplicates: Annotated[
        bool,
        typer.Option(
            "--near-duplicates",
            help="Also drop documents that share 80 % of their runs of five words with an earlier "
            "one (MinHash; takes about 1 KB of memory a document).",
        ),
    ] = False,
    column: Column = "text",
    format: Format = None,
    language_column: LanguageColumn = None,
    num_workers: Workers = None,
    annotations: Annotated[
        str | None,
        typer.Option(
            help="The column of tables that says what is known of a text: a list of "
            '{"start": 0, "stop": 5, "label": "phrase"}, in characters; other labels are entities. '
            "Beside plain text, whatever is named here, story.txt.json holds the same of story.txt."
        ),
    ] = None,
    phrases: Annotated[
        Path | None,
        typer.Option(help="A file of phrases, one a line; behind a tab the kind of an entity."),
    ] = None,
    tagger: Annotated[
        str | None,
        typer.Option(help="A spaCy pipeline that finds phrases and entities; needs the extra."),
    ] = None,
    dialogues: Annotated[
        list[str] | None,
        typer.Option(
            help="A file of dialogues beside the texts: a table with lists of turns, or plain text "
            "with a turn on each line. Where each begins with a name and a colon, that is who says "
            "it. May be given several times."
        ),
    ] = None,
    dialogue_column: Annotated[
        str,
        typer.Option(help="Holds the turns: texts, or objects with a text and perhaps a speaker."),
    ] = "dialogue",
    capitals: Annotated[
        bool,
        typer.Option("--capitals", help="Keep which words have a capital that the pieces lack."),
    ] = False,
    item: Annotated[
        str | None,
        typer.Option(
            help="For histories in the place of texts: the column of what users have dealt with. "
            "Its values become the pieces, so there is no tokenizer; the last two of each user are "
            "held out."
        ),
    ] = None,
    user: Annotated[str, typer.Option(help="The column of whose history it is.")] = "user",
    time: Annotated[str, typer.Option(help="The column of when: numbers, or ISO dates.")] = "time",
    least: Annotated[
        int, typer.Option(min=1, help="Leave out users and items with fewer events.")
    ] = 5,
    as_json: AsJson = False,
) -> None:
    """Turn text into a data set: pieces with their documents, sentences and words."""
    if item is not None:
        refuse(context, "--item reads histories, not texts", *OF_TEXTS)
        from bertwright.text.histories import prepare_histories

        data = prepare_histories(
            texts,
            output,
            user=user,
            item=item,
            time=time,
            tokenizer=tokenizer,
            least=least,
            format=format,
        )
        report(data.report, as_json)
        return
    refuse(context, "this is of histories, which --item asks for", "user", "time", "least")
    if not dialogues:
        refuse(context, "this is of --dialogues, and there are none", "dialogue_column")
    if tokenizer is None:
        raise UserError(
            "text needs a tokenizer: name its folder with --tokenizer, or make one with "
            "'bertwright tokenizer train'"
        )
    from bertwright.text.preparation import prepare
    from bertwright.text.splitting import heldout_warning

    data = prepare(
        texts,
        output,
        tokenizer,
        heldout=heldout,
        near_duplicates=near_duplicates,
        column=column,
        format=format,
        language_column=language_column,
        annotations=annotations,
        phrases=phrases,
        tagger=tagger,
        dialogues=dialogues or (),
        dialogue_column=dialogue_column,
        capitals=capitals,
        num_workers=num_workers,
    )
    report(data.report, as_json)
    if warning := heldout_warning(heldout, data.report.get("heldout_achieved", 0.0)):
        say(f"warning: {warning}")
