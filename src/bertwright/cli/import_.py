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
    """Turn a Hugging Face folder (safetensors) into a model.

    Of BERT, RoBERTa, XLM-R, DistilBERT, ALBERT, ELECTRA, ModernBERT, MobileBERT, Longformer,
    BigBird, XLM, XLNet, GPT, GPT-2, T5 or BART; "bertwright export" writes the same.
    """
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
