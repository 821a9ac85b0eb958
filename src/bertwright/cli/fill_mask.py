"""``bertwright fill-mask``: what a model thinks stood at [MASK]."""

from pathlib import Path
from typing import Annotated

import typer

from bertwright.cli.embed import Language
from bertwright.cli.output import AsJson, report
from bertwright.cli.plugin import Plugin


def fill_mask(
    model: Annotated[Path, typer.Argument(help="A model folder, ours or Hugging Face's.")],
    text: Annotated[str, typer.Argument(help="A text with [MASK] wherever a piece is asked.")],
    top_k: Annotated[int, typer.Option(min=1, help="How many answers for each place.")] = 5,
    language: Language = None,
    plugin: Plugin = None,
    as_json: AsJson = False,
) -> None:
    """Name the most probable pieces for every hidden place of a text."""
    from bertwright.interop.loading import load

    places = load(model, "float32").fill_mask(text, top_k, language)
    if as_json:
        named = [[{"piece": g.piece, "probability": g.probability} for g in p] for p in places]
        report({"text": text, "masks": named}, as_json)
        return
    for number, guesses in enumerate(places, start=1):
        said = ", ".join(f"{guess.piece} {guess.probability:.1%}" for guess in guesses)
        typer.echo(f"{number}: {said}" if len(places) > 1 else said)
