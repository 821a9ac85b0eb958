"""Export to a PyTorch program that ``torch.export.load`` opens without bertwright."""

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bertwright.core.files import atomic_folder, write_text
from bertwright.interop.graph.inputs import GraphInputs
from bertwright.interop.graph.outputs import GraphOutputs
from bertwright.interop.graph.parity import check_parity
from bertwright.interop.graph.tracing import trace_model
from bertwright.interop.parity import Parity
from bertwright.models.saving import RECIPE_FILE, TASK_FILE
from bertwright.models.text_model import TextModel
from bertwright.tasks.fake_quantizer_removal import remove_fake_quantizers
from bertwright.tasks.fine_tuned_model import FineTunedModel, network_of

PROGRAM_FILE = "model.pt2"


class TorchProgramRuntime:
    """A runtime for an exported program; ``output_names`` are in the order of its outputs."""

    def __init__(self, path: Path, output_names: Sequence[str]) -> None:
        self._module: Any = torch.export.load(path).module()
        self._output_names = output_names

    def run(self, output_name: str, inputs: GraphInputs) -> NDArray[np.float32]:
        """Return one output, given the inputs in order."""
        outputs = self._module(*map(torch.from_numpy, inputs.values()))
        return outputs[self._output_names.index(output_name)].numpy()


def export_torch_program(model: TextModel, folder: Path) -> Parity:
    """Write a model as a program with its tokenizer, recipe and task; return the parity.

    The program omits fake quantization. Raises UserError for a model that cannot be exported.
    """
    model = remove_fake_quantizers(model)
    network = network_of(model)
    outputs = GraphOutputs.of(model)
    with atomic_folder(folder) as temporary:
        # If given a path, torch.export.save aborts the process when the disk is full.
        program = BytesIO()
        torch.export.save(trace_model(model, outputs), program)
        (temporary / PROGRAM_FILE).write_bytes(program.getbuffer())
        runtime = TorchProgramRuntime(temporary / PROGRAM_FILE, outputs.names)
        parity = check_parity(model, outputs, runtime)
        model.tokenizer.save(temporary)
        write_text(temporary / RECIPE_FILE, network.recipe.as_yaml())
        if isinstance(model, FineTunedModel):
            write_text(temporary / TASK_FILE, model.task_metadata_json())
    return parity
