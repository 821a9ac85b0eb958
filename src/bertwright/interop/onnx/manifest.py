"""The manifest of an ONNX folder: source, inputs, outputs and checksums."""

from pathlib import Path

from pydantic import ValidationError

from bertwright.core.config import Settings, to_user_error
from bertwright.core.errors import UserError
from bertwright.core.files import file_digests, write_text
from bertwright.interop.onnx.int8_loss import Int8Loss

MANIFEST_FILE = "onnx.json"

GRAPH_FILE, INT8_GRAPH_FILE = "onnx/model.onnx", "onnx/model_quantized.onnx"
"""The graphs, where transformers.js looks for them."""


def external_data_file(graph_file: Path) -> Path:
    """Return the file next to a large graph that holds its weights."""
    return graph_file.with_name(f"{graph_file.name}.data")


def has_external_data(graph_file: Path) -> bool:
    """Return whether a graph stores its weights in a separate file."""
    return external_data_file(graph_file).exists()


class OnnxManifest(Settings):
    """The description of an ONNX folder.

    ``source_sha256`` is the checksum of the exported weights; ``max_difference`` is the largest
    difference between float32 outputs and the model's. ``reduce_range`` is True for 7-bit weights,
    and None without an int8 graph. ``calibration`` describes static activation ranges; None if they
    are dynamic. ``int8_loss`` compares the int8 graph with the float32 graph. ``file_sha256`` names
    files by their path in the folder.
    """

    name: str
    version: str
    producer: str
    opset: int
    optimisation_level: str
    source_sha256: str | None
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]
    max_difference: float
    reduce_range: bool | None
    calibration: str | None = None
    int8_loss: Int8Loss | None = None
    file_sha256: dict[str, str]

    def write(self, folder: Path) -> None:
        """Write the manifest into a folder."""
        write_text(folder / MANIFEST_FILE, self.model_dump_json(indent=2) + "\n")

    @staticmethod
    def read(folder: Path) -> "OnnxManifest":
        """Read the manifest of a folder; UserError if damaged."""
        try:
            return OnnxManifest.model_validate_json(
                (folder / MANIFEST_FILE).read_text(encoding="utf-8")
            )
        except ValidationError as error:
            raise to_user_error(error, str(folder / MANIFEST_FILE)) from error
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(
                f"{folder / MANIFEST_FILE} is damaged ({error}): export again"
            ) from error

    def verify_graph(self, folder: Path, graph_name: str) -> Path:
        """Return the file of a graph; UserError if it or its weights are missing or modified."""
        for name, sha256 in self.file_sha256.items():
            if name.startswith(graph_name):
                file = folder / name
                if not file.is_file():
                    raise UserError(f"{file} is missing: export the model again")
                if file_digests(file)[file.name] != sha256:
                    raise UserError(f"{file} is damaged: copy it again")
        return folder / graph_name


def is_onnx_folder(folder: Path) -> bool:
    """Return whether a folder holds a graph exported by bertwright."""
    return (folder / MANIFEST_FILE).is_file()
