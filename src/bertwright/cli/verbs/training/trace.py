"""``bertwright trace``: how training masks a text, one line per token."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bertwright.cli.options import PluginOption
from bertwright.cli.output import JsonOption, check_output_file, log, print_result
from bertwright.cli.verbs.recipes.recipes import split_recipe_and_overrides

if TYPE_CHECKING:
    from bertwright.training.diagnostics.trace.trace import SequenceTrace


def trace(
    recipe_and_overrides: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RECIPE] [KEY.PATH=VALUE ...]",
            help="Recipe and overrides; by default the recipe of --model, or modern-mini.",
        ),
    ] = None,
    text: Annotated[list[str] | None, typer.Option(help="Document; may be repeated.")] = None,
    data: Annotated[
        Path | None, typer.Option(help="Prepared data folder, instead of a text.")
    ] = None,
    tokenizer: Annotated[
        Path | None, typer.Option(help="Tokenizer folder; by default trained on the text.")
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(help="Model folder, to show its predictions; brings its tokenizer."),
    ] = None,
    phase: Annotated[
        int | None, typer.Option(min=0, help="Phase of the recipe; by default all that differ.")
    ] = None,
    sequence: Annotated[int, typer.Option(min=0, help="Index of the sequence.")] = 0,
    epoch: Annotated[int, typer.Option(min=0, help="Epoch.")] = 0,
    top_k: Annotated[int, typer.Option(min=1, help="Number of predictions per target.")] = 3,
    html: Annotated[
        Path | None,
        typer.Option(help="Write a self-contained HTML page.", callback=check_output_file),
    ] = None,
    plugin: PluginOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show how training masks a sequence and which targets it predicts.

    Each line is a position: its token, the input token, its token info and its targets; with
    --model also the predictions.
    """
    from bertwright.core.errors import UserError
    from bertwright.data.tokenization.tokenizer import Tokenizer
    from bertwright.interop.imported_folder import bertwright_folder
    from bertwright.interop.loading import load
    from bertwright.recipes import Recipe
    from bertwright.training.diagnostics.trace.data import open_traced_data, prepare_traced_texts
    from bertwright.training.diagnostics.trace.trace import (
        distinct_phases,
        limit_to_data,
        require_phase,
        trace_sequence,
    )

    if (data is None) == (not text):
        raise UserError("trace needs either --text or --data")
    if model is not None and tokenizer is not None:
        raise UserError("--model brings its own tokenizer: leave --tokenizer out")
    name, overrides = split_recipe_and_overrides(recipe_and_overrides)
    loaded = None if model is None else load(model, "float32")
    if name is None and loaded is not None and overrides:
        raise UserError("overrides need a recipe: name one besides --model")
    if loaded is not None and name is None:
        recipe = loaded.model.recipe
    else:
        recipe = Recipe.load(name or "modern-mini", *overrides)
    known = (
        loaded.tokenizer if loaded else tokenizer and Tokenizer.load(bertwright_folder(tokenizer))
    )
    opened = (
        open_traced_data(data, known) if data else prepare_traced_texts(recipe, text or [], known)
    )
    with opened as source:
        recipe = limit_to_data(recipe, source)
        if phase is not None:
            require_phase(recipe, phase)
        phases = distinct_phases(recipe) if phase is None else [phase]
        predictor = None if loaded is None else loaded.model
        traces = [
            trace_sequence(recipe, source, phase, sequence, epoch, predictor, top_k, turn)
            for phase in phases
            for turn in range(len(recipe.objective_schedule(phase)))
        ]
    if html is not None:
        from bertwright.core.files import write_text
        from bertwright.training.diagnostics.trace.page import render_page

        write_text(html, render_page(traces))
        log(f"wrote {html}")
    if as_json:
        print_result(
            {"recipe": recipe.name, "phases": [phase_trace.as_dict() for phase_trace in traces]},
            as_json,
        )
    elif html is None:
        for phase_trace in traces:
            _print_trace(phase_trace)


def _print_trace(trace: "SequenceTrace") -> None:
    """Print a table: coloured on a terminal, plain and wide otherwise."""
    from rich.console import Console

    from bertwright.training.diagnostics.trace.table import trace_table

    console = Console(width=None if sys.stdout.isatty() else 240)
    console.print(*trace_table(trace), sep="\n")
