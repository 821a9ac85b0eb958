"""What others' libraries do here: those that are needed are there, the others are not asked for."""

from importlib import resources
from importlib.resources.abc import Traversable
from importlib.util import find_spec

from bertwright.analysis.planted.expecting import same
from bertwright.machine.description import versions
from bertwright.studies.compression_checks.ground import Ground
from bertwright.studies.compression_checks.row import Came, Row

NEEDED = {
    "torch": "trains",
    "safetensors": "keeps weights",
    "onnx": "keeps graphs",
    "onnxscript": "has the exporter's operators",
    "onnxruntime": "computes graphs, in 32 bits and in 8",
}
"""By what they do."""

UNUSED = {
    "torch.ao.quantization": "is going to leave PyTorch",
    "torchao": "has kernels for processors in compiled models alone",
    "optimum": "is made for the models of Transformers",
    "neural_compressor": "is for large language models now",
    "nncf": "is another runtime for the same",
}
"""By why not."""


def run(ground: Ground) -> Came:
    """Find what is needed; look for the others in our own files."""
    known = versions(*NEEDED)
    for name, does in NEEDED.items():
        what = f"{name} {known.get(name, '')}, which {does}, is here"
        yield same(what, find_spec(name) is not None, True)
    written = list(_texts(resources.files("bertwright")))
    for name, why in UNUSED.items():
        asked = sum(f"import {name}" in text or f"from {name}" in text for text in written)
        yield same(f"files that ask for {name}, which {why}", asked, 0)


def _texts(folder: Traversable) -> list[str]:
    """Of all our files in Python."""
    found: list[str] = []
    for each in folder.iterdir():
        if each.is_dir():
            found += _texts(each)
        elif each.name.endswith(".py"):
            found.append(each.read_text(encoding="utf-8"))
    return found


ROW = Row(
    "C21",
    "libraries",
    "Which libraries are used, and which are not?",
    "their documentation, November 2026",
    run,
)
