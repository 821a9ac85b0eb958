"""``bertwright pareto``: models of one task, by what they score, weigh and take."""

from pathlib import Path
from typing import Annotated

import typer

from bertwright.cli.output import AsJson, Document, Picture, report_results, say
from bertwright.cli.plugin import Plugin


def pareto(
    folders: Annotated[
        list[str],
        typer.Argument(
            metavar="FOLDER ...",
            help="Fine-tuned models or their ONNX folders; the first is what the others are held "
            "against. FOLDER@float32 computes in float32, FOLDER@int8 in 8 bits.",
        ),
    ],
    data: Annotated[Path, typer.Option(help="What they are scored on: a folder or a file.")],
    picture: Picture = None,
    rounds: Annotated[int, typer.Option(min=3, help="Turns that each takes.")] = 15,
    threads: Annotated[
        int | None, typer.Option(min=1, help="That compute an answer (all).")
    ] = None,
    document: Document = None,
    plugin: Plugin = None,
    as_json: AsJson = False,
) -> None:
    """Score models of one task, weigh them, and time them in turns."""
    from bertwright.bench.artefacts.comparing import COLUMNS, Artefact, compare
    from bertwright.bench.artefacts.picture import draw
    from bertwright.document import table, write_section

    lines = compare([Artefact.of(said) for said in folders], data, rounds, threads, say)
    if picture is not None:
        draw(lines, picture)
    if document is not None:
        told = [f"Scored by {lines[0]['metric']}.", "", *table(COLUMNS, lines)]
        write_section(document, f"pareto {lines[0]['task']}", told)
    report_results(lines, COLUMNS, as_json)
