"""``bertwright export``: a model as everyone else reads it."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from bertwright.cli.output import AsJson, report
from bertwright.cli.plugin import Plugin


def export(
    model: Annotated[Path, typer.Argument(help="The folder of a model, fine-tuned or not.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="Where the export is written.")],
    to: Annotated[
        Literal["huggingface", "sentence-transformers"], typer.Option(help="The format.")
    ] = "huggingface",
    verify: Annotated[
        bool, typer.Option("--verify", help="Load what was written with its library and compare.")
    ] = False,
    family: Annotated[
        str | None, typer.Option(help="The model_type, where several stock classes fit.")
    ] = None,
    plugin: Plugin = None,
    as_json: AsJson = False,
) -> None:
    """Write a folder that stock classes load, with tokenizer and model card."""
    from bertwright.interop.huggingface import export_folder
    from bertwright.model.folder import load_model
    from bertwright.tasks.fine_tuned import is_fine_tuned, load_fine_tuned

    if to == "sentence-transformers":
        from bertwright.interop.loading import load
        from bertwright.interop.sentence_transformers import export_sentence_transformers

        written = export_sentence_transformers(load(model, "float32"), out, verify, family)
    elif is_fine_tuned(model):
        fine_tuned = load_fine_tuned(model, "float32")
        written = export_folder(fine_tuned, fine_tuned.tokenizer, out, verify, family)
    else:
        written = export_folder(*load_model(model), out, verify, family)
    result = {"folder": str(out), "format": to, "architecture": written.architecture}
    if written.max_difference is not None:
        result |= {"max_difference": written.max_difference}
    if written.left_behind:
        result |= {"left_behind": [f"objectives.{name}" for name in written.left_behind]}
    report(result, as_json)
