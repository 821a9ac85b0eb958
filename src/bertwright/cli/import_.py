"""``bertwright import``: a Hugging Face folder becomes a model of ours."""

from pathlib import Path
from typing import Annotated

import typer

from bertwright.cli.output import AsJson, report


def import_(
    folder: Annotated[Path, typer.Argument(help="A folder that stock classes load.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="Where the model is written.")],
    as_json: AsJson = False,
) -> None:
    """Turn a Hugging Face folder (of a known family; safetensors) into a model."""
    from bertwright.files import atomic_folder, require_free
    from bertwright.interop.huggingface import load

    require_free(out)
    text_model = load(folder)
    with atomic_folder(out) as temporary:
        text_model.save(temporary)
    model = text_model.model
    report(
        {
            "model": str(out),
            "recipe": model.recipe.name,
            "vocabulary": model.vocabulary_size,
            "encoder_parameters": sum(p.numel() for p in model.encoder.parameters()),
            "objectives": list(model.recipe.objectives),
        },
        as_json,
    )
