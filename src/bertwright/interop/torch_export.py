"""A model as a program of PyTorch alone: ``torch.export.load`` opens it without bertwright."""

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bertwright.compression.quantisation import unrounded
from bertwright.files import atomic_folder, write_text
from bertwright.interop.onnx.graph import inputs_of, outputs_of
from bertwright.interop.onnx.inputs import Given
from bertwright.interop.onnx.parity import Parity, parity
from bertwright.interop.onnx.tracing import traced
from bertwright.model.folder import RECIPE
from bertwright.model.text_model import TextModel
from bertwright.tasks.fine_tuned import TASK, FineTuned, network_of

PROGRAM = "model.pt2"


class Program:
    """What a file computes: the ``outputs``, in their order."""

    def __init__(self, path: Path, outputs: Sequence[str]) -> None:
        self._module: Any = torch.export.load(path).module()
        self._outputs = outputs

    def run(self, output: str, given: Given) -> NDArray[np.float32]:
        """One of the outputs, of inputs in their order."""
        found = self._module(*map(torch.from_numpy, given.values()))
        return found[self._outputs.index(output)].numpy()


def export_program(model: TextModel, folder: Path) -> Parity:
    """Write a model as a program, with its tokenizer, its recipe and its task: how far what the
    program gives is from what the model gives. What a model rounds between its weights, a program
    does not.

    Errors: UserError for a model that cannot be written so, which says why.
    """
    model = unrounded(model)
    net = network_of(model)
    inputs, outputs = inputs_of(net.recipe), outputs_of(model)
    with atomic_folder(folder) as temporary:
        # Its own writer of files ends the whole process where the disk is full.
        program = BytesIO()
        torch.export.save(traced(model, outputs), program)
        (temporary / PROGRAM).write_bytes(program.getbuffer())
        found = parity(model, inputs, outputs, Program(temporary / PROGRAM, outputs))
        model.tokenizer.save(temporary)
        write_text(temporary / RECIPE, net.recipe.as_yaml())
        if isinstance(model, FineTuned):
            write_text(temporary / TASK, model.told())
    return found
