"""What stands beside a graph: where it is from, what it is given, and the sums of its files."""

from pathlib import Path

from pydantic import ValidationError

from bertwright.axes import Settings, explain
from bertwright.errors import UserError
from bertwright.files import digests, write_text

ABOUT, GRAPH, INT8 = "onnx.json", "model.onnx", "model.int8.onnx"


def weights_file(graph: Path) -> Path:
    """Where the weights of a large graph lie, beside it."""
    return graph.with_name(f"{graph.name}.data")


def weights_beside(graph: Path) -> bool:
    """Whether a graph is so large that they do."""
    return weights_file(graph).exists()


class About(Settings):
    """An ONNX folder in plain data.

    ``files`` are the SHA-256 sums of the graphs, ``parent`` that of the weights that they were made
    from. ``opset`` is the version of the operators. ``max_difference`` is that of onnxruntime to
    the model, in float32; ``optimisation`` how far onnxruntime rewrote the graph for it.
    ``reduce_range`` says whether weights in 8 bits use 7 of them, None where there are none;
    ``ranges`` how those of what they are multiplied with were found, None where each batch has its
    own.
    """

    name: str
    version: str
    producer: str
    opset: int
    optimisation: str
    parent: str | None
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    max_difference: float
    reduce_range: bool | None
    ranges: str | None = None
    files: dict[str, str]

    def write(self, folder: Path) -> None:
        """Write it into a folder."""
        write_text(folder / ABOUT, self.model_dump_json(indent=2) + "\n")

    @staticmethod
    def read(folder: Path) -> "About":
        """Of a folder; UserError where it is damaged."""
        try:
            return About.model_validate_json((folder / ABOUT).read_text(encoding="utf-8"))
        except ValidationError as error:
            raise explain(error, str(folder / ABOUT)) from error
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"{folder / ABOUT} is damaged ({error}): export again") from error

    def require_whole(self, folder: Path, graph: str) -> Path:
        """The file of a graph; UserError where it, or what belongs to it, is not what was
        written."""
        for name, known in self.files.items():
            if name.startswith(graph):
                file = folder / name
                if not file.is_file():
                    raise UserError(f"{file} is missing: export the model again")
                if digests(file)[name] != known:
                    raise UserError(f"{file} is damaged: copy it again")
        return folder / graph


def is_onnx(folder: Path) -> bool:
    """Whether a folder holds a graph of ours."""
    return (folder / ABOUT).is_file()
