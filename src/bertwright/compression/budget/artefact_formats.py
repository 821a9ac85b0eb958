"""The formats in which a compressed model is written."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bertwright.compression.vocabulary.trimming import trim_vocabulary
from bertwright.core.files import atomic_folder
from bertwright.interop.onnx.exporter import export_onnx
from bertwright.models.saving import WEIGHTS_FILE
from bertwright.tasks.fine_tuned_model import FineTunedModel
from bertwright.tasks.formats.examples import Examples


@dataclass(frozen=True)
class ArtefactFormat:
    """A format: a model folder or an 8-bit ONNX folder, optionally with a trimmed vocabulary.

    A trimmed vocabulary has only the tokens of the training examples.
    """

    kind: Literal["weights", "int8"] = "weights"
    trims_vocabulary: bool = False

    @property
    def name(self) -> str:
        """The name of the format."""
        kind = "8 bits" if self.kind == "int8" else "weights"
        return f"{kind}, trimmed vocabulary" if self.trims_vocabulary else kind

    def write(self, model: FineTunedModel, examples: Examples, folder: Path) -> None:
        """Write a model with its training examples' tokens.

        Raises UserError if the vocabulary cannot be trimmed or the model cannot be exported.
        """
        if self.trims_vocabulary:
            trimmed = trim_vocabulary(model, examples=examples)
            assert isinstance(trimmed, FineTunedModel)
            model = trimmed
        if self.kind == "int8":
            export_onnx(model, folder, int8=True, keep_float32=False)
        else:
            with atomic_folder(folder) as temporary:
                model.save(temporary)

    @property
    def with_full_vocabulary(self) -> "ArtefactFormat":
        """The same format with the full vocabulary."""
        return ArtefactFormat(self.kind)


WEIGHTS_FORMAT = ArtefactFormat()
"""The format without changes."""

ARTEFACT_FORMATS = (
    WEIGHTS_FORMAT,
    ArtefactFormat("int8"),
    ArtefactFormat("weights", trims_vocabulary=True),
    ArtefactFormat("int8", trims_vocabulary=True),
)


def artefact_bytes(folder: Path) -> int:
    """Return the size of the file with the weights."""
    files = sorted(folder.glob("*.int8.onnx*")) or [folder / WEIGHTS_FILE]
    return sum(file.stat().st_size for file in files)
