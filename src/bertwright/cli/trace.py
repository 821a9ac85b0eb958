"""``bertwright trace``: a text's way through training, one line a token."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bertwright.cli.output import AsJson, report, say
from bertwright.cli.plugin import Plugin
from bertwright.cli.recipes import recipe_and_changes

if TYPE_CHECKING:
    from bertwright.training.tracing import Trace


def trace(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RECIPE] [KEY.PATH=VALUE ...]",
            help="A recipe and changes to it; that of --model where none is named.",
        ),
    ] = None,
    text: Annotated[
        list[str] | None, typer.Option(help="A document; may be given several times.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="A folder that prepare wrote, instead of a text.")
    ] = None,
    tokenizer: Annotated[
        Path | None, typer.Option(help="A folder with a tokenizer; else one learns from the text.")
    ] = None,
    model: Annotated[
        Path | None, typer.Option(help="A model folder: its answers, and its tokenizer.")
    ] = None,
    phase: Annotated[
        int | None, typer.Option(min=0, help="One phase of the recipe; else all that differ.")
    ] = None,
    row: Annotated[int, typer.Option(min=0, help="Which row of the text.")] = 0,
    epoch: Annotated[int, typer.Option(min=0, help="Which time the text is read.")] = 0,
    top_k: Annotated[int, typer.Option(min=1, help="How many answers of the model.")] = 3,
    html: Annotated[Path | None, typer.Option(help="Write a page that needs nothing else.")] = None,
    plugin: Plugin = None,
    as_json: AsJson = False,
) -> None:
    """Show what training makes of a text: what is hidden, and what is asked where.

    Each line is a place: its piece, what is shown there instead, its coordinates, and what is asked
    for; with --model also the best answers.
    """
    from bertwright.errors import UserError
    from bertwright.interop.loading import load
    from bertwright.recipes import Recipe
    from bertwright.text.tokenizers import Tokenizer
    from bertwright.training.traced_text import traced_data, traced_texts
    from bertwright.training.tracing import check_phase, different_phases, shortened_to
    from bertwright.training.tracing import trace as traced

    if (data is None) == (not text):
        raise UserError("trace follows a text or a data set: give --text or --data, one of the two")
    if model is not None and tokenizer is not None:
        raise UserError("--model brings its own tokenizer: leave --tokenizer out")
    name, changes = recipe_and_changes(words)
    loaded = None if model is None else load(model, "float32")
    if name is None and loaded is not None and changes:
        raise UserError("changes are made to a recipe: name one beside --model")
    own = loaded is not None and name is None
    recipe = loaded.model.recipe if loaded and own else Recipe.load(name or "modern-mini", *changes)
    known = loaded.tokenizer if loaded else tokenizer and Tokenizer.load(tokenizer)
    opened = traced_data(data, known) if data else traced_texts(recipe, text or [], known)
    with opened as source:
        recipe = shortened_to(recipe, source)
        if phase is not None:
            check_phase(recipe, phase)
        phases = different_phases(recipe) if phase is None else [phase]
        asked = None if loaded is None else loaded.model
        traces = [
            traced(recipe, source, each, row, epoch, asked, top_k, turn)
            for each in phases
            for turn in range(len(recipe.turns_of(each)))
        ]
    if html is not None:
        from bertwright.files import write_text
        from bertwright.training.trace_page import page

        write_text(html, page(traces))
        say(f"wrote {html}")
    if as_json:
        report({"recipe": recipe.name, "phases": [each.as_dict() for each in traces]}, as_json)
    elif html is None:
        for each in traces:
            _print(each)


def _print(trace: "Trace") -> None:
    """A table: coloured on a terminal, plain and as wide as it needs to be in a pipe."""
    from rich.console import Console

    from bertwright.training.trace_table import table

    console = Console(width=None if sys.stdout.isatty() else 240)
    console.print(*table(trace), sep="\n")
