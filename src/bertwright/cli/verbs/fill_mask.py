"""``bertwright fill-mask``: predict masked tokens."""

from typing import Annotated

import typer

from bertwright.cli.options import LanguageOption, ModelArgument, PluginOption
from bertwright.cli.output import JsonOption, print_result


def fill_mask(
    model: ModelArgument,
    text: Annotated[str, typer.Argument(help="Text with one or more [MASK].")],
    top_k: Annotated[int, typer.Option(min=1, help="Number of predictions per mask.")] = 5,
    language: LanguageOption = None,
    plugin: PluginOption = None,
    as_json: JsonOption = False,
) -> None:
    """Predict the masked tokens of a text."""
    from bertwright.interop.loading import load

    masks = load(model, "float32").fill_mask(text, top_k, language)
    if as_json:
        result = [[{"token": p.token, "probability": p.probability} for p in m] for m in masks]
        print_result({"text": text, "masks": result}, as_json)
        return
    for number, predictions in enumerate(masks, start=1):
        line = ", ".join(f"{p.token} {p.probability:.1%}" for p in predictions)
        typer.echo(f"{number}: {line}" if len(masks) > 1 else line)
