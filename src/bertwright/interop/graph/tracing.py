"""Trace models with PyTorch's exporters."""

import logging
import warnings
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from bertwright.core.errors import UserError
from bertwright.interop.graph.inputs import ATTENTION_MASK
from bertwright.interop.graph.module import ExportModule, graph_input_names, prepare_for_export
from bertwright.interop.graph.outputs import GraphOutputs
from bertwright.models.text_model import TextModel
from bertwright.tasks.fine_tuned_model import FineTunedModel, network_of
from bertwright.tasks.heads.kinds import BiLSTMHeadConfig
from bertwright.tasks.heads.text_vectors import TextVectorHead

TRACE_BATCH_SIZE, TRACE_LENGTH = 3, 7
"""Sizes of the traced input; in small models no other size is equal to them."""


def trace_model(
    model: TextModel, outputs: GraphOutputs, with_onnx_operators: bool = False
) -> torch.export.ExportedProgram:
    """Return the traced program of a model, for any batch size and length.

    PyTorch cannot run a program ``with_onnx_operators``, which is meant for ONNX.

    Raises UserError for a model that cannot be exported.
    """
    network = network_of(model)
    if isinstance(model, FineTunedModel):
        model.require_task_head("a graph")
        if isinstance(model.task_model.head, TextVectorHead):
            kind = model.task.output_type.kind_name()
            raise UserError(
                f"a graph has no output of type {kind}: export to sentence-transformers instead"
            )
    if isinstance(model, FineTunedModel) and isinstance(
        model.task_model.head_config, BiLSTMHeadConfig
    ):
        raise UserError(
            "head.kind: bilstm reads words, and a graph has no word boundaries: fine-tune with "
            "another kind of head"
        )
    if isinstance(model, FineTunedModel) and model.example_encoder.is_siamese:
        raise UserError(
            "head.pooling: siamese encodes two texts separately, and a graph has no text "
            "boundaries: fine-tune with another pooling"
        )
    prepared = prepare_for_export(network, with_onnx_operators)
    graph = ExportModule(prepared, graph_input_names(network.recipe), outputs)
    dynamic = torch.export.Dim.DYNAMIC
    inputs = tuple(
        torch.ones(TRACE_BATCH_SIZE, TRACE_LENGTH, dtype=torch.int64) for _ in graph.input_names
    )
    inputs[graph.input_names.index(ATTENTION_MASK)][1, TRACE_LENGTH // 2 :] = 0
    sizes = ({0: dynamic, 1: dynamic},) * len(inputs)
    with silence_exporter():
        try:
            program = torch.export.export(graph, inputs, dynamic_shapes=(sizes,), strict=False)
        except Exception as error:  # torch.export raises many unrelated classes
            raise _export_error(network.recipe.name, error) from error
    _require_dynamic_shapes(program, network.encoder.max_length, network.recipe.name)
    return program


def write_onnx_graph(
    model: TextModel, outputs: GraphOutputs, metadata: Mapping[str, str], path: Path
) -> int:
    """Write the ONNX graph of a model with these metadata; return its opset version.

    Raises UserError for a model that cannot be exported.
    """
    network = network_of(model)
    program = trace_model(model, outputs, with_onnx_operators=True)
    inputs = graph_input_names(network.recipe)
    with silence_exporter():
        try:
            graph: Any = torch.onnx.export(
                program, dynamo=True, input_names=inputs, output_names=outputs.names, verbose=False
            )
        except torch.onnx.OnnxExporterError as error:
            raise _export_error(network.recipe.name, error) from error
        _clear_metadata(graph)
        graph.model.metadata_props.update(metadata)
        graph.save(str(path))
    return graph.model.opset_imports[""]


def _export_error(name: str, error: Exception) -> UserError:
    reason = str(error.__cause__ or error).strip().partition("\n")[0]
    return UserError(f"{name} cannot be exported as a graph: {reason}")


def _require_dynamic_shapes(
    program: torch.export.ExportedProgram, max_length: int | None, name: str
) -> None:
    """Raise UserError if tracing restricted the graph to short sequences."""
    for bounds in program.range_constraints.values():
        if bounds.upper < (torch.inf if max_length is None else max_length):
            raise UserError(
                f"{name} cannot be exported as a graph: it computes sequences of more than "
                f"{bounds.upper} tokens differently from shorter ones"
            )


def _clear_metadata(graph: Any) -> None:
    """Remove the source file names that each node was traced from."""
    from onnx_ir.passes.common import ClearMetadataAndDocStringPass

    ClearMetadataAndDocStringPass()(graph.model)


@contextmanager
def silence_exporter() -> Generator[None]:
    """Suppress the exporter's log messages and warnings."""
    level = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)
