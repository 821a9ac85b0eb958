"""``bertwright export``: a model as everyone else reads it."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from bertwright.cli.output import AsJson, report
from bertwright.cli.plugin import Plugin
from bertwright.cli.prepare import Column, Format, texts_in
from bertwright.cli.stated import refuse
from bertwright.errors import UserError

if TYPE_CHECKING:
    from bertwright.interop.onnx.ranges import RangeObserver, Ranges
    from bertwright.model.text_model import TextModel


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
    texts: Annotated[
        list[str] | None,
        typer.Option(
            help="8 bits: files or folders of text, as prepare reads them, by which ranges are "
            "found ahead; else every batch has its own."
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(help="The same by a folder with examples of the task of a fine-tuned model."),
    ] = None,
    column: Column = "text",
    format: Format = None,
    observer: Annotated[
        Literal["extremes", "percentile", "entropy"],
        typer.Option(help="What is taken for a range of what is seen."),
    ] = "extremes",
    plugin: Plugin = None,
    as_json: AsJson = False,
) -> None:
    """Write a folder that others load, with its tokenizer: that of stock classes, of
    sentence-transformers, of onnxruntime, or a program of PyTorch alone."""
    if to in ("onnx", "torch-export"):
        refuse(context, "what is written as a graph is compared in any case", "verify")
        refuse(context, "a graph is of no stock class", "family")
    if not int8:
        refuse(context, "ranges are those of --int8", "texts", "data", "observer")
    if not texts:
        refuse(context, "it says how --texts are read", "column", "format")
    if not texts and data is None:
        refuse(context, "an observer is asked what --texts or --data show", "observer")
    if to == "onnx":
        seen = texts_in(texts, column, format) if texts else None
        _export_graph(model, out, int8, (seen, data, observer), as_json)
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
    if written.threshold:
        result |= {"threshold": written.threshold}
    report(result, as_json)


def _export_graph(
    model: Path,
    out: Path,
    int8: bool,
    seen: "tuple[Iterator[str] | None, Path | None, RangeObserver]",
    as_json: bool,
) -> None:
    from bertwright.document import table
    from bertwright.files import require_free
    from bertwright.interop.loading import load
    from bertwright.interop.onnx.measuring import COLUMNS, measured
    from bertwright.interop.onnx.writing import export_onnx
    from bertwright.machine.cores import num_cores

    require_free(out)
    loaded = load(model, "float32")
    written = export_onnx(loaded, out, int8, parent=model, ranges=_ranges(loaded, *seen))
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


def _ranges(
    model: "TextModel",
    texts: "Iterator[str] | None",
    data: Path | None,
    observer: "RangeObserver",
) -> "Ranges | None":
    """By some of the texts, and of the training examples of a task; None without either."""
    from bertwright.interop.onnx.ranges import ROWS, Ranges
    from bertwright.randomness import sample
    from bertwright.tasks.data import TaskData
    from bertwright.tasks.fine_tuned import FineTuned, as_examples

    if texts is None and data is None:
        return None
    asked: list[Any] = sample(texts or (), ROWS)
    if isinstance(model, FineTuned):
        asked = list(as_examples(asked, model.task))
    if data is not None:
        if not isinstance(model, FineTuned):
            raise UserError("--data is for a fine-tuned model: name --texts instead")
        _, learned, _ = TaskData(model.task, data).parts()
        asked = sample([*asked, *sample(learned, ROWS)], ROWS)
    return Ranges.of(model, asked, observer)


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
