"""``bertwright export``: a model as everyone else reads it."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from bertwright.cli.output import AsJson, report
from bertwright.cli.plugin import Plugin
from bertwright.cli.stated import refuse


def export(
    context: typer.Context,
    model: Annotated[Path, typer.Argument(help="The folder of a model, fine-tuned or not.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="Where the export is written.")],
    to: Annotated[
        Literal["huggingface", "sentence-transformers", "onnx", "torch-export"],
        typer.Option(help="The format."),
    ] = "huggingface",
    verify: Annotated[
        bool, typer.Option("--verify", help="Load what was written with its library and compare.")
    ] = False,
    family: Annotated[
        str | None, typer.Option(help="The model_type, where several stock classes fit.")
    ] = None,
    int8: Annotated[
        bool, typer.Option("--int8", help="ONNX: write the graph in 8 bits, too.")
    ] = False,
    plugin: Plugin = None,
    as_json: AsJson = False,
) -> None:
    """Write a folder that others load, with its tokenizer: that of stock classes, of
    sentence-transformers, of onnxruntime, or a program of PyTorch alone."""
    if to in ("onnx", "torch-export"):
        refuse(context, "what is written as a graph is compared in any case", "verify")
        refuse(context, "a graph is of no stock class", "family")
    if to == "onnx":
        _export_graph(model, out, int8, as_json)
        return
    refuse(context, "8 bits are those of --to onnx", "int8")
    if to == "torch-export":
        _export_program(model, out, as_json)
        return
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


def _export_graph(model: Path, out: Path, int8: bool, as_json: bool) -> None:
    from bertwright.document import table
    from bertwright.interop.loading import load
    from bertwright.interop.onnx import export_onnx
    from bertwright.interop.onnx.measuring import COLUMNS, measured
    from bertwright.machine import num_cores

    written = export_onnx(load(model, "float32"), out, int8, parent=model)
    lines = measured(out)
    result = {
        "folder": str(out),
        "format": "onnx",
        "opset": written.opset,
        "max_difference": written.parity.difference,
        "greatest_output": written.parity.scale,
        "threads": num_cores(),
    }
    if as_json:
        report({**result, "graphs": lines}, as_json)
        return
    report(result, as_json)
    print("", *table(COLUMNS, lines), sep="\n")


def _export_program(model: Path, out: Path, as_json: bool) -> None:
    from bertwright.interop.loading import load
    from bertwright.interop.torch_export import export_program

    found = export_program(load(model, "float32"), out)
    result = {
        "folder": str(out),
        "format": "torch-export",
        "max_difference": found.difference,
        "greatest_output": found.scale,
    }
    report(result, as_json)
