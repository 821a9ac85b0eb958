"""Export a model to an ONNX folder."""

from dataclasses import dataclass
from pathlib import Path

import bertwright
from bertwright.core.files import atomic_folder, file_digests, write_text
from bertwright.core.optional_dependencies import require_library
from bertwright.interop.graph.module import graph_input_names
from bertwright.interop.graph.outputs import GraphOutputs
from bertwright.interop.graph.parity import check_parity, require_finite_outputs
from bertwright.interop.graph.tracing import write_onnx_graph
from bertwright.interop.onnx.calibration import ActivationCalibration
from bertwright.interop.onnx.int8_loss import Int8Loss, Int8Samples, measure_int8_loss
from bertwright.interop.onnx.manifest import GRAPH_FILE, INT8_GRAPH_FILE, OnnxManifest
from bertwright.interop.onnx.model import load_onnx
from bertwright.interop.onnx.pipeline_files import pipeline_tag, write_pipeline_files
from bertwright.interop.onnx.quantization import quantise_graph
from bertwright.interop.onnx.session import OPTIMISATION_LEVEL, OnnxSession
from bertwright.interop.parity import Parity
from bertwright.models.saving import CARD_FILE, RECIPE_FILE, TASK_FILE, WEIGHTS_FILE
from bertwright.models.text_model import TextModel
from bertwright.modules.inference.int8_linear import int8_sums_saturate
from bertwright.runtime.device import package_versions
from bertwright.tasks.fake_quantizer_removal import remove_fake_quantizers
from bertwright.tasks.fine_tuned_model import FineTunedModel, network_of

REQUIRED_LIBRARIES = ("onnx", "onnxscript", "onnxruntime")
"""Libraries needed for exporting; opening a folder needs only onnxruntime."""


@dataclass(frozen=True)
class OnnxExport:
    """The graph files written, their opset version, and their losses.

    ``parity`` compares the float32 graph with the model, ``int8_loss`` the int8 graph with it.
    """

    graphs: tuple[str, ...]
    opset: int
    parity: Parity
    int8_loss: Int8Loss | None = None


def export_onnx(
    model: TextModel,
    folder: Path,
    int8: bool = False,
    source_folder: Path | None = None,
    keep_float32: bool = True,
    calibration: ActivationCalibration | None = None,
    samples: Int8Samples = Int8Samples(),
    unit_length: bool = False,
) -> OnnxExport:
    """Write a model as an ONNX graph with its tokenizer, recipe, task and manifest.

    ``int8`` also writes an int8 graph, and measures its loss on ``samples``; without
    ``keep_float32`` it is the only graph. With ``calibration`` its activation ranges are static.
    ``unit_length`` scales ``sentence_embedding`` to length 1. The float32 graph omits fake
    quantization. The manifest records the checksum of the weights in ``source_folder``. If the
    outputs differ from the model's, nothing is kept.

    Raises MissingExtra without the libraries, and UserError for a model that cannot be exported.
    """
    for library in REQUIRED_LIBRARIES:
        require_library(library, "onnx")
    model = remove_fake_quantizers(model)
    network = network_of(model)
    outputs = GraphOutputs.of(model, unit_length)
    source_sha256 = (
        None
        if source_folder is None
        else file_digests(source_folder / WEIGHTS_FILE).get(WEIGHTS_FILE)
    )
    metadata = {"recipe": network.recipe.name, "bertwright": bertwright.__version__}
    with atomic_folder(folder) as temporary:
        graph = temporary / GRAPH_FILE
        graph.parent.mkdir()
        opset = write_onnx_graph(
            model,
            outputs,
            metadata | ({"source_sha256": source_sha256} if source_sha256 else {}),
            graph,
        )
        parity = check_parity(model, outputs, OnnxSession(graph))
        reduce_range = int8_sums_saturate() if int8 else None
        if reduce_range is not None:
            quantise_graph(graph, temporary / INT8_GRAPH_FILE, reduce_range, calibration)
            int8_session = OnnxSession(temporary / INT8_GRAPH_FILE)
            require_finite_outputs(model, outputs.names, int8_session)
        model.tokenizer.save(temporary)
        write_pipeline_files(temporary, model)
        write_text(temporary / RECIPE_FILE, network.recipe.as_yaml())
        if isinstance(model, FineTunedModel):
            write_text(temporary / TASK_FILE, model.task_metadata_json())
        manifest = OnnxManifest(
            name=network.recipe.name,
            version=bertwright.__version__,
            producer=", ".join(
                f"{n} {v}" for n, v in package_versions("torch", *REQUIRED_LIBRARIES).items()
            ),
            opset=opset,
            optimisation_level=OPTIMISATION_LEVEL,
            source_sha256=source_sha256,
            input_names=graph_input_names(network.recipe),
            output_names=outputs.names,
            max_difference=parity.max_difference,
            reduce_range=reduce_range,
            calibration=None if calibration is None else calibration.description,
            file_sha256=file_digests(graph.parent),
        )
        if reduce_range is not None:
            manifest.write(temporary)
            exact, rounded = (load_onnx(temporary, kind) for kind in ("float32", "int8"))
            loss = measure_int8_loss(exact, rounded, samples)
            manifest = manifest.model_copy(update={"int8_loss": loss})
        if reduce_range is not None and not keep_float32:
            for file in temporary.glob(f"{GRAPH_FILE}*"):
                file.unlink()
            checksums = file_digests(graph.parent)
            manifest = manifest.model_copy(update={"file_sha256": checksums})
        write_text(temporary / CARD_FILE, _model_card(manifest, model))
        manifest.write(temporary)
    return OnnxExport(
        tuple(name for name in (GRAPH_FILE, INT8_GRAPH_FILE) if name in manifest.file_sha256),
        opset,
        parity,
        manifest.int8_loss,
    )


def _model_card(manifest: OnnxManifest, model: TextModel) -> str:
    """Return the README.md of the folder."""
    is_fine_tuned = isinstance(model, FineTunedModel)
    task = f", fine-tuned for {model.task.name}" if is_fine_tuned else ""
    inputs = ", ".join(f"`{name}`" for name in manifest.input_names)
    ranges = "" if manifest.calibration is None else f", ranges by {manifest.calibration}"
    loss = "" if manifest.int8_loss is None else f": {manifest.int8_loss.description}"
    lines = [
        "---",
        "library_name: transformers.js",
        f"pipeline_tag: {pipeline_tag(model)}",
        "---",
        "",
        f"# {manifest.name}{task}, as a graph",
        "",
        f"ONNX, opset {manifest.opset}, for batches of any size and sequence length. Inputs "
        f"(int64, batch x length): {inputs}. Outputs (float32): "
        + ", ".join(f"`{name}`" for name in manifest.output_names)
        + ".",
        "",
        f"- float32 outputs differ from the model by {manifest.max_difference:.2g} at most"
        + (f" (`{GRAPH_FILE}`)" if GRAPH_FILE in manifest.file_sha256 else ""),
        *(
            [f"- int8 (`{INT8_GRAPH_FILE}`{ranges}){loss}"]
            if manifest.reduce_range is not None
            else []
        ),
        f"- exported from weights with SHA-256 {manifest.source_sha256}",
        f"- exported with {manifest.producer}",
        "",
        "```python",
        "import bertwright as bw",
        "",
        'model = bw.load("this folder")',
        f"{'predictions' if is_fine_tuned else 'vectors'} = "
        f'model.{"predict" if is_fine_tuned else "embed"}(["A sentence.", "Another one."])',
        "```",
    ]
    return "\n".join(line for line in lines if "SHA-256 None" not in line) + "\n"
