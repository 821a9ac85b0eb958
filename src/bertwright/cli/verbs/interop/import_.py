"""``bertwright import``: convert a Hugging Face folder or word vectors to a bertwright model."""

from pathlib import Path
from typing import Annotated

import typer

from bertwright.cli.options import OutputOption, PluginOption
from bertwright.cli.output import JsonOption, print_result


def import_(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="FOLDER|NAME|FILE",
            help="Hugging Face model folder (safetensors), its name on the Hub (owner/name), or "
            "a text file of word vectors (GloVe, word2vec, fastText), plain or .gz.",
        ),
    ],
    output: OutputOption,
    plugin: PluginOption = None,
    as_json: JsonOption = False,
) -> None:
    """Convert a Hugging Face folder or a file of word vectors to a bertwright model.

    Families: BERT, RoBERTa, XLM-R, DistilBERT, ALBERT, ELECTRA, ModernBERT, MobileBERT, Longformer,
    BigBird, XLM, XLNet, GPT, GPT-2, T5 and BART, and those of plugins; bertwright export writes
    them. Word vectors become an encoder without blocks, the baseline of transfer.
    """
    from bertwright.core.files import atomic_folder, require_new_folder
    from bertwright.data.hub.download import local_folder

    require_new_folder(output)
    omitted: dict[str, int] = {}
    if source.is_file():
        from bertwright.interop.word_vectors import import_word_vectors

        text_model, omitted["omitted_words"] = import_word_vectors(source)
    else:
        from bertwright.interop.huggingface.importer import load_huggingface

        text_model = load_huggingface(local_folder(source))
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
            **omitted,
        },
        as_json,
    )
