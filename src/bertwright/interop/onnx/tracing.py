"""From a model to its graph, by PyTorch's exporters."""

import logging
import warnings
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from bertwright.errors import UserError
from bertwright.interop.onnx.graph import Graph, inputs_of, plain
from bertwright.interop.onnx.inputs import REAL
from bertwright.model.text_model import TextModel
from bertwright.tasks.fine_tuned import FineTuned, network_of
from bertwright.tasks.heads import BiLstm

ROWS, PLACES = 3, 7
"""Of what a graph is traced with: other sizes than those of anything else in small models."""


def traced(model: TextModel, outputs: tuple[str, ...]) -> torch.export.ExportedProgram:
    """What a model computes, for rows of any number and length.

    Errors: UserError for a model that cannot be written so, which says why.
    """
    net = network_of(model)
    if isinstance(model, FineTuned) and isinstance(model.net.choice, BiLstm):
        raise UserError(
            "head.kind: bilstm reads the words of a row on end, and a graph is not told which they "
            "are: fine-tune with a head of another kind"
        )
    if isinstance(model, FineTuned) and model.maker.apart:
        raise UserError(
            "head.read: apart reads two texts that do not see each other, and a graph is not told "
            "where one ends: fine-tune with a head that reads otherwise"
        )
    graph = Graph(plain(net), inputs_of(net.recipe), outputs)
    any_number = torch.export.Dim.DYNAMIC
    given = tuple(torch.ones(ROWS, PLACES, dtype=torch.int64) for _ in graph.inputs)
    given[graph.inputs.index(REAL)][1, PLACES // 2 :] = 0
    sizes = ({0: any_number, 1: any_number},) * len(given)
    with quiet():
        try:
            program = torch.export.export(graph, given, dynamic_shapes=(sizes,), strict=False)
        except Exception as error:  # of as many classes as there are things that are not traced
            raise _unwritten(net.recipe.name, error) from error
    _require_any_size(program, net.encoder.longest, net.recipe.name)
    return program


def write_graph(
    model: TextModel, outputs: tuple[str, ...], told: Mapping[str, str], path: Path
) -> int:
    """Write the graph of a model for onnxruntime, ``told`` among its metadata; the version of its
    operators.

    Errors: UserError for a model that cannot be written so, which says why.
    """
    net = network_of(model)
    program, inputs = traced(model, outputs), inputs_of(net.recipe)
    with quiet():
        try:
            graph: Any = torch.onnx.export(
                program, dynamo=True, input_names=inputs, output_names=outputs, verbose=False
            )
        except torch.onnx.OnnxExporterError as error:
            raise _unwritten(net.recipe.name, error) from error
        _cleared(graph)
        graph.model.metadata_props.update(told)
        graph.save(str(path))
    return graph.model.opset_imports[""]


def _unwritten(name: str, error: Exception) -> UserError:
    reason = str(error.__cause__ or error).strip().partition("\n")[0]
    return UserError(f"{name} cannot be written as a graph: {reason}")


def _require_any_size(
    program: torch.export.ExportedProgram, longest: int | None, name: str
) -> None:
    """UserError where a rule or a kernel made the graph one of short rows alone."""
    for bounds in program.range_constraints.values():
        if bounds.upper < (torch.inf if longest is None else longest):
            raise UserError(
                f"{name} cannot be written as a graph: it computes rows of more than "
                f"{bounds.upper} places otherwise than shorter ones"
            )


def _cleared(graph: Any) -> None:
    """Without the names of the files, on this machine, that each node was traced from."""
    from onnx_ir.passes.common import ClearMetadataAndDocStringPass

    ClearMetadataAndDocStringPass()(graph.model)


@contextmanager
def quiet() -> Generator[None]:
    """Without the exporter's advice on operators of libraries that are not here, and on itself."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
