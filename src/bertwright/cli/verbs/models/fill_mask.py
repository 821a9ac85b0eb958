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
    result = [[{"token": p.token, "probability": p.probability} for p in m] for m in masks]
    lines = [", ".join(f"{p.token} {p.probability:.1%}" for p in mask) for mask in masks]
    if len(lines) > 1:
        lines = [f"{number}: {line}" for number, line in enumerate(lines, start=1)]
    print_result({"text": text, "masks": result}, as_json, lines)
