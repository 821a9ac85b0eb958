"""``bertwright static``: distil a model into a static embedding table."""

from typing import Annotated

import typer

from bertwright.cli.options import (
    ColumnOption,
    FormatOption,
    ModelArgument,
    OutputOption,
    PluginOption,
    PrecisionOption,
    refuse_options,
)
from bertwright.cli.output import JsonOption, print_result
from bertwright.cli.texts import iter_texts


def static(
    context: typer.Context,
    model: ModelArgument,
    output: OutputOption,
    texts: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TEXT...]",
            help="Files, folders or patterns, as prepare reads, to count token frequencies; "
            "by default tokens are ranked by their ids.",
        ),
    ] = None,
    width: Annotated[
        int | None,
        typer.Option(
            min=1, help="Embedding dimension; by default 256, or that of a narrower model."
        ),
    ] = None,
    column: ColumnOption = "text",
    format: FormatOption = None,
    precision: PrecisionOption = None,
    plugin: PluginOption = None,
    as_json: JsonOption = False,
) -> None:
    """Distil a model into a static embedding table.

    The embedding of a text is the mean of its tokens' vectors, weighted towards rare tokens.
    """
    from bertwright.compression.vocabulary.pruning import count_tokens
    from bertwright.compression.vocabulary.static_embeddings import static_embedding_model
    from bertwright.core.files import atomic_folder, require_new_folder
    from bertwright.interop.loading import load

    if not texts:
        refuse_options(context, "no texts are named", "column", "format")
    require_new_folder(output)
    teacher = load(model, precision)
    counts = count_tokens(teacher.tokenizer, iter_texts(texts, column, format)) if texts else None
    table = static_embedding_model(teacher, width, counts)
    with atomic_folder(output) as folder:
        table.save(folder)
    print_result(
        {
            "model": str(output),
            "tokens": table.tokenizer.vocab_size,
            "width": table.model.recipe.vector_width,
        },
        as_json,
    )
