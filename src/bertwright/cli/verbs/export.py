"""``bertwright export``: export a model for other libraries."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from bertwright.cli.options import (
    ColumnOption,
    FormatOption,
    OutputOption,
    PluginOption,
    refuse_options,
)
from bertwright.cli.output import JsonOption, print_result
from bertwright.cli.verbs.prepare import iter_texts
from bertwright.core.errors import UserError

if TYPE_CHECKING:
    from bertwright.interop.onnx.calibration import ActivationCalibration, RangeObserver
    from bertwright.models.text_model import TextModel


def export(
    context: typer.Context,
    model: Annotated[Path, typer.Argument(help="Model folder, pre-trained or fine-tuned.")],
    output: OutputOption,
    to: Annotated[
        Literal["huggingface", "sentence-transformers", "onnx", "torch-export"],
        typer.Option(help="Export format."),
    ] = "huggingface",
    verify: Annotated[
        bool,
        typer.Option("--verify", help="Load the export with its library and compare the outputs."),
    ] = False,
    family: Annotated[
        str | None, typer.Option(help="Hugging Face model_type, where several classes fit.")
    ] = None,
    int8: Annotated[bool, typer.Option("--int8", help="ONNX: also write an int8 graph.")] = False,
    texts: Annotated[
        list[str] | None,
        typer.Option(
            help="Files or folders of text to calibrate int8 activation ranges; by default ranges "
            "are computed for every batch."
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            help="Folder with examples of the task of a fine-tuned model, to calibrate with."
        ),
    ] = None,
    column: ColumnOption = "text",
    format: FormatOption = None,
    observer: Annotated[
        Literal["minmax", "percentile", "entropy"],
        typer.Option(help="How activation ranges are estimated."),
    ] = "minmax",
    plugin: PluginOption = None,
    as_json: JsonOption = False,
) -> None:
    """Export a model with its tokenizer for other libraries."""
    if to in ("onnx", "torch-export"):
        refuse_options(context, "graphs are always compared", "verify")
        refuse_options(context, "a graph has no Hugging Face class", "family")
    if not int8:
        refuse_options(context, "calibration is for --int8", "texts", "data", "observer")
    if not texts:
        refuse_options(context, "this is for --texts", "column", "format")
    if not texts and data is None:
        refuse_options(context, "an observer needs --texts or --data", "observer")
    if to == "onnx":
        calibration_texts = iter_texts(texts, column, format) if texts else None
        _export_onnx(model, output, int8, (calibration_texts, data, observer), as_json)
        return
    refuse_options(context, "int8 is for --to onnx", "int8")
    if to == "torch-export":
        _export_program(model, output, as_json)
        return
    from bertwright.interop.huggingface.exporter import export_huggingface
    from bertwright.models.saving import load_model
    from bertwright.tasks.fine_tuned_model import is_fine_tuned, load_fine_tuned_model

    if to == "sentence-transformers":
        from bertwright.interop.loading import load
        from bertwright.interop.sentence_transformers import export_sentence_transformers

        written = export_sentence_transformers(load(model, "float32"), output, verify, family)
    elif is_fine_tuned(model):
        fine_tuned = load_fine_tuned_model(model, "float32")
        written = export_huggingface(fine_tuned, fine_tuned.tokenizer, output, verify, family)
    else:
        written = export_huggingface(*load_model(model), output, verify, family)
    result = {"folder": str(output), "format": to, "architecture": written.architecture}
    if written.max_difference is not None:
        result |= {"max_difference": written.max_difference}
    if written.dropped_objectives:
        result |= {"dropped": [f"objectives.{name}" for name in written.dropped_objectives]}
    if written.threshold_note:
        result |= {"threshold": written.threshold_note}
    print_result(result, as_json)


def _export_onnx(
    model: Path,
    output: Path,
    int8: bool,
    calibration: "tuple[Iterator[str] | None, Path | None, RangeObserver]",
    as_json: bool,
) -> None:
    from bertwright.core.files import require_new_folder
    from bertwright.core.hardware import num_cores
    from bertwright.interop.loading import load
    from bertwright.interop.onnx.exporter import export_onnx
    from bertwright.runtime.markdown_report import markdown_table
    from bertwright.timing.onnx_graphs import GRAPH_COLUMNS, measure_graphs

    require_new_folder(output)
    loaded = load(model, "float32")
    written = export_onnx(
        loaded,
        output,
        int8,
        source_folder=model,
        calibration=_activation_ranges(loaded, *calibration),
    )
    graphs = measure_graphs(output)
    result = {
        "folder": str(output),
        "format": "onnx",
        "opset": written.opset,
        "max_difference": written.parity.max_difference,
        "max_output": written.parity.max_output,
        "threads": num_cores(),
    }
    if as_json:
        print_result({**result, "graphs": graphs}, as_json)
        return
    print_result(result, as_json)
    print("", *markdown_table(GRAPH_COLUMNS, graphs), sep="\n")


def _activation_ranges(
    model: "TextModel",
    texts: "Iterator[str] | None",
    data: Path | None,
    observer: "RangeObserver",
) -> "ActivationCalibration | None":
    """Return activation ranges from texts and training examples; None without either."""
    from bertwright.core.rng import sample
    from bertwright.interop.onnx.calibration import MAX_SEQUENCES, ActivationCalibration
    from bertwright.tasks.data.task_data import TaskData
    from bertwright.tasks.fine_tuned_model import FineTunedModel
    from bertwright.tasks.inputs import as_examples

    if texts is None and data is None:
        return None
    examples: list[Any] = sample(texts or (), MAX_SEQUENCES)
    if isinstance(model, FineTunedModel):
        examples = list(as_examples(examples, model.task))
    if data is not None:
        if not isinstance(model, FineTunedModel):
            raise UserError("--data is for a fine-tuned model: name --texts instead")
        _, train_examples, _ = TaskData(model.task, data).load_splits()
        train_examples = sample(train_examples, MAX_SEQUENCES)
        examples = sample([*examples, *train_examples], MAX_SEQUENCES)
    return ActivationCalibration.from_examples(model, examples, observer)


def _export_program(model: Path, output: Path, as_json: bool) -> None:
    from bertwright.interop.loading import load
    from bertwright.interop.torch_export import export_torch_program

    program = export_torch_program(load(model, "float32"), output)
    result = {
        "folder": str(output),
        "format": "torch-export",
        "max_difference": program.max_difference,
        "max_output": program.max_output,
    }
    print_result(result, as_json)
