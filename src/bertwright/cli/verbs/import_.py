"""``bertwright import``: convert a Hugging Face folder to a bertwright model."""

from pathlib import Path
from typing import Annotated

import typer

from bertwright.cli.options import OutputOption, PluginOption
from bertwright.cli.output import JsonOption, print_result


def import_(
    folder: Annotated[Path, typer.Argument(help="Hugging Face model folder (safetensors).")],
    output: OutputOption,
    plugin: PluginOption = None,
    as_json: JsonOption = False,
) -> None:
    """Convert a Hugging Face folder to a bertwright model.

    Families: BERT, RoBERTa, XLM-R, DistilBERT, ALBERT, ELECTRA, ModernBERT, MobileBERT, Longformer,
    BigBird, XLM, XLNet, GPT, GPT-2, T5 and BART, and those of plugins; bertwright export writes
    them.
    """
    from bertwright.core.files import atomic_folder, require_new_folder
    from bertwright.interop.huggingface.importer import load_huggingface

    require_new_folder(output)
    text_model = load_huggingface(folder)
    with atomic_folder(output) as temporary:
        text_model.save(temporary)
    model = text_model.model
    print_result(
        {
            "model": str(output),
            "recipe": model.recipe.name,
            "vocabulary": model.vocab_size,
            "encoder_parameters": sum(p.numel() for p in model.encoder.parameters()),
            "objectives": list(model.recipe.objectives),
        },
        as_json,
    )
