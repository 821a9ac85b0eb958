"""``bertwright view``: an interactive page about what a model does with a text."""

from pathlib import Path
from typing import Annotated

import typer

from bertwright.cli.options import CompareWithOption, MaxLengthOption, ModelArgument, PluginOption
from bertwright.cli.output import JsonOption, check_output_file, log, print_result


def view(
    model: ModelArgument,
    text: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TEXT]...", help="Texts to show; a pair is separated by a tab."),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            help="More texts, one per line, or a .conllu file; nearest words are searched in all "
            "of them."
        ),
    ] = None,
    max_examples: Annotated[int, typer.Option(min=1, help="Show at most N texts.")] = 10,
    compare_with: CompareWithOption = None,
    output: Annotated[
        Path, typer.Option("-o", "--output", help="Output file.", callback=check_output_file)
    ] = Path("view.html"),
    max_length: MaxLengthOption = 128,
    plugin: PluginOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write a self-contained HTML page of attention, predictions and nearest words.

    Attention of several heads is shown in a colour each, by weights, effective attention, norms of
    values and rollout, with queries and keys; predictions for every position; nearest words for
    every layer. Arrow keys select tokens, Shift with arrow keys layers and heads.
    """
    from bertwright.analysis.core.analysis import AnalysisInput
    from bertwright.analysis.core.model import AnalysedModel
    from bertwright.analysis.core.texts import (
        encode_nonempty_texts,
        parse_source_texts,
        read_source_texts,
    )
    from bertwright.analysis.viewer.page import write_view
    from bertwright.core.errors import UserError
    from bertwright.interop.loading import load
    from bertwright.runtime.markdown_report import run_provenance

    if not text and data is None:
        raise UserError("no text to show: give one, or a file of texts with --data")
    sources = [*parse_source_texts(text or []), *(read_source_texts(data) if data else [])]
    analysed = AnalysedModel(model.resolve().name, load(model, "float32"))
    other = None
    if compare_with is not None:
        other = AnalysedModel(compare_with.resolve().name, load(compare_with, "float32"))
    texts = encode_nonempty_texts(analysed, sources, max_length)
    write_view(
        AnalysisInput(analysed, texts, other_model=other), output, run_provenance(), max_examples
    )
    if as_json:
        print_result({"page": str(output), "texts": min(max_examples, len(texts))}, as_json)
        return
    log(f"wrote {output}")
