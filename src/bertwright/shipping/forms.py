"""As what a model is shipped that learns nothing any more."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bertwright.compression.trimming import trim
from bertwright.files import atomic_folder
from bertwright.interop.onnx.writing import export_onnx
from bertwright.model.folder import WEIGHTS
from bertwright.tasks.fine_tuned import FineTuned
from bertwright.tasks.formats.examples import Examples


@dataclass(frozen=True)
class Form:
    """A model as its own folder, or as an ONNX folder in 8 bits; with all its pieces, or
    ``trimmed``: with those alone that its training examples need."""

    kind: Literal["weights", "int8"] = "weights"
    trimmed: bool = False

    @property
    def name(self) -> str:
        """In words."""
        kind = "8 bits" if self.kind == "int8" else "weights"
        return f"{kind}, needed pieces" if self.trimmed else kind

    def write(self, model: FineTuned, examples: Examples, folder: Path) -> None:
        """Write a model so, of which these are the training examples.

        Errors: UserError where no piece can go, or where it has no graph.
        """
        if self.trimmed:
            model = _trimmed(model, examples)
        if self.kind == "int8":
            export_onnx(model, folder, int8=True, exact=False)
        else:
            with atomic_folder(folder) as own:
                model.save(own)

    @property
    def untrimmed(self) -> "Form":
        """The same with all pieces."""
        return Form(self.kind)


PLAIN = Form()
"""A model as it is."""

FORMS = (PLAIN, Form("int8"), Form("weights", trimmed=True), Form("int8", trimmed=True))
"""All of them."""


def shipped_bytes(folder: Path) -> int:
    """Of the file that is computed with."""
    files = sorted(folder.glob("*.int8.onnx*")) or [folder / WEIGHTS]
    return sum(file.stat().st_size for file in files)


def _trimmed(model: FineTuned, examples: Examples) -> FineTuned:
    found = trim(model, examples=examples)
    assert isinstance(found, FineTuned)
    return found
