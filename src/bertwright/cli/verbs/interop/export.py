"""``bertwright export``: export a model for other libraries."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from bertwright.cli.options import (
    ColumnOption,
    FormatOption,
    ModelArgument,
    OutputOption,
    PluginOption,
    refuse_options,
)
from bertwright.cli.output import JsonOption, log, print_result
from bertwright.cli.texts import iter_texts
from bertwright.core.errors import UserError

if TYPE_CHECKING:
    from bertwright.data.hub.reference import HubReference
    from bertwright.interop.gguf.exporter import GgufType
    from bertwright.interop.onnx.calibration import ActivationCalibration, RangeObserver
    from bertwright.interop.onnx.int8_loss import Int8Samples
    from bertwright.models.text_model import TextModel


def export(
    context: typer.Context,
    model: ModelArgument,
    output: OutputOption,
    to: Annotated[
        Literal["huggingface", "sentence-transformers", "onnx", "gguf", "torch-export"],
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
            help="Files or folders of text to calibrate int8 activation ranges, and to measure the "
            "loss on others of them; by default ranges are computed for every batch."
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            help="Folder with examples of the task of a fine-tuned model: training examples "
            "calibrate, and the scores of float32 and int8 are compared on the others."
        ),
    ] = None,
    column: ColumnOption = "text",
    format: FormatOption = None,
    observer: Annotated[
        Literal["minmax", "percentile", "entropy"],
        typer.Option(help="How activation ranges are estimated."),
    ] = "minmax",
    normalise: Annotated[
        bool,
        typer.Option("--normalise", help="ONNX: scale sentence_embedding to length 1."),
    ] = False,
    weights: Annotated[
        Literal["f32", "f16", "q8_0"],
        typer.Option(help="GGUF: type of the weight matrices; q8_0 is 8 bits."),
    ] = "f32",
    push: Annotated[
        str | None,
        typer.Option(
            help="Also upload the folder to this repository on the Hub, owner/name, if its outputs "
            "equal the model's."
        ),
    ] = None,
    private: Annotated[
        bool, typer.Option("--private", help="With --push: only into a private repository.")
    ] = False,
    plugin: PluginOption = None,
    as_json: JsonOption = False,
) -> None:
    """Export a model with its tokenizer for other libraries.

    The model card states what was measured: scores with intervals and baselines, or losses.
    """
    if to in ("onnx", "torch-export"):
        refuse_options(context, "graphs are always compared", "verify")
    if to in ("onnx", "gguf", "torch-export"):
        refuse_options(context, "this format has no Hugging Face class", "family")
    if to != "gguf":
        refuse_options(context, "this is for --to gguf", "weights")
    if not int8:
        refuse_options(context, "calibration is for --int8", "texts", "data", "observer")
    if not texts:
        refuse_options(context, "this is for --texts", "column", "format")
    if not texts and data is None:
        refuse_options(context, "an observer needs --texts or --data", "observer")
    if push is None:
        refuse_options(context, "this is for --push", "private")
    publication = _Publication.plan(model, output, push, private)
    if to == "onnx":
        calibration_texts = iter_texts(texts, column, format) if texts else None
        calibration = (calibration_texts, data, observer)
        _export_onnx(model, publication, int8, calibration, normalise, as_json)
        return
    refuse_options(context, "int8 is for --to onnx", "int8")
    refuse_options(context, "a length of 1 is for --to onnx", "normalise")
    if to == "torch-export":
        _export_program(model, publication, as_json)
        return
    if to == "gguf":
        _export_gguf(model, publication, weights, verify or push is not None, as_json)
        return
    from bertwright.interop.huggingface.exporter import export_huggingface
    from bertwright.interop.loading import load
    from bertwright.tasks.fine_tuned_model import FineTunedModel

    verify = verify or push is not None
    loaded = load(model, "float32")
    if to == "sentence-transformers":
        from bertwright.interop.sentence_transformers import export_sentence_transformers

        written = export_sentence_transformers(loaded, output, verify, family)
    else:
        source = loaded if isinstance(loaded, FineTunedModel) else loaded.model
        written = export_huggingface(source, loaded.tokenizer, output, verify, family)
    result = {"folder": str(output), "format": to, "architecture": written.architecture}
    if written.max_difference is not None:
        result |= {"max_difference": written.max_difference}
    if written.dropped_objectives:
        result |= {"dropped": [f"objectives.{name}" for name in written.dropped_objectives]}
    if written.threshold_note:
        result |= {"threshold": written.threshold_note}
    print_result(result | publication.complete(written.max_difference), as_json)


@dataclass(frozen=True)
class _Publication:
    """The steps after an export: its model card, and its upload to a repository, if any."""

    source: Path
    output: Path
    target: "HubReference | None"
    private: bool

    @staticmethod
    def plan(source: Path, output: Path, push: str | None, private: bool) -> "_Publication":
        """Check what can be checked before the export; UserError if nothing could be pushed."""
        from bertwright.core.files import require_new_folder
        from bertwright.data.hub.upload import require_push_target

        require_new_folder(output)
        return _Publication(
            source, output, None if push is None else require_push_target(push), private
        )

    def complete(self, max_difference: float | None = None) -> dict[str, str]:
        """Write the measurements, push the folder, and return the address of the commit."""
        from bertwright.data.hub.download import local_folder
        from bertwright.data.hub.upload import push_folder
        from bertwright.interop.published_card import add_measurements, name_repository

        add_measurements(self.output, local_folder(self.source), max_difference)
        if self.target is None:
            return {}
        name_repository(self.output, self.target.repository)
        return {"pushed": push_folder(self.output, self.target, self.private)}


def _export_onnx(
    model: Path,
    publication: _Publication,
    int8: bool,
    calibration: "tuple[Iterator[str] | None, Path | None, RangeObserver]",
    normalise: bool,
    as_json: bool,
) -> None:
    from bertwright.core.hardware import num_cores
    from bertwright.data.hub.download import local_folder
    from bertwright.interop.loading import load
    from bertwright.interop.onnx.exporter import export_onnx
    from bertwright.runtime.markdown_report import markdown_table
    from bertwright.timing.onnx_graphs import GRAPH_COLUMNS, measure_graphs

    output = publication.output
    loaded = load(model, "float32")
    ranges, samples = _int8_samples(loaded, *calibration)
    written = export_onnx(
        loaded,
        output,
        int8,
        source_folder=local_folder(model),
        calibration=ranges,
        samples=samples,
        unit_length=normalise,
    )
    if int8:
        _report_thresholds(loaded, f"the int8 graph: run bertwright calibrate {output}")
    graphs = measure_graphs(output)
    result = {
        "folder": str(output),
        "format": "onnx",
        "opset": written.opset,
        "max_difference": written.parity.max_difference,
        "max_output": written.parity.max_output,
        "threads": num_cores(),
        **publication.complete(),
    }
    loss = written.int8_loss
    if as_json:
        losses = {} if loss is None else {"int8_loss": loss.model_dump(mode="json")}
        print_result({**result, **losses, "graphs": graphs}, as_json)
        return
    if loss is not None:
        result["int8"] = loss.description
    print_result(result, as_json)
    print("", *markdown_table(GRAPH_COLUMNS, graphs), sep="\n")


def _report_thresholds(model: "TextModel", reason: str) -> None:
    """Log that the thresholds of prediction sets of a calibrated model do not hold."""
    from bertwright.tasks.fine_tuned_model import FineTunedModel

    if isinstance(model, FineTunedModel) and model.conformal is not None:
        log(f"the thresholds of prediction sets do not hold for {reason}")


def _int8_samples(
    model: "TextModel",
    texts: "Iterator[str] | None",
    data: Path | None,
    observer: "RangeObserver",
) -> "tuple[ActivationCalibration | None, Int8Samples]":
    """Return activation ranges, None without texts and data, and what to measure the loss on."""
    from bertwright.core.rng import sample
    from bertwright.interop.onnx.calibration import MAX_SEQUENCES, ActivationCalibration
    from bertwright.interop.onnx.int8_loss import MAX_EXAMPLES, Int8Samples
    from bertwright.tasks.data.task_data import TaskData
    from bertwright.tasks.fine_tuned_model import FineTunedModel
    from bertwright.tasks.inputs import as_examples

    if texts is None and data is None:
        return None, Int8Samples()
    sampled_texts = sample(texts or (), 2 * MAX_SEQUENCES)
    other_texts = sampled_texts[MAX_SEQUENCES:] or sampled_texts
    examples: list[Any] = sampled_texts[:MAX_SEQUENCES]
    dev_examples: Any = ()
    if isinstance(model, FineTunedModel):
        examples = list(as_examples(examples, model.task))
    if data is not None:
        if not isinstance(model, FineTunedModel):
            raise UserError("--data is for a fine-tuned model: name --texts instead")
        _, train_examples, dev_examples = TaskData(model.task, data).load_splits()
        train_examples = sample(train_examples, MAX_SEQUENCES)
        examples = sample([*examples, *train_examples], MAX_SEQUENCES)
    calibration = ActivationCalibration.from_examples(model, examples, observer)
    return calibration, Int8Samples(other_texts, sample(dev_examples, MAX_EXAMPLES))


def _export_program(model: Path, publication: _Publication, as_json: bool) -> None:
    from bertwright.interop.loading import load
    from bertwright.interop.torch_export import export_torch_program

    program = export_torch_program(load(model, "float32"), publication.output)
    result = {
        "folder": str(publication.output),
        "format": "torch-export",
        "max_difference": program.max_difference,
        "max_output": program.max_output,
        **publication.complete(),
    }
    print_result(result, as_json)


def _export_gguf(
    model: Path, publication: _Publication, weights: "GgufType", verify: bool, as_json: bool
) -> None:
    from bertwright.interop.gguf.exporter import export_gguf
    from bertwright.interop.loading import load

    loaded = load(model, "float32")
    written = export_gguf(loaded, publication.output, weights, verify)
    if weights != "f32":
        _report_thresholds(loaded, f"weights in {weights}, and are left out")
    result = {
        "folder": str(publication.output),
        "format": "gguf",
        "architecture": written.architecture,
        "bytes": written.num_bytes,
    }
    if written.parity is not None:
        result |= {
            "cosine": written.parity.cosine,
            "max_difference": written.parity.max_difference,
        }
    print_result({**result, **publication.complete()}, as_json)
