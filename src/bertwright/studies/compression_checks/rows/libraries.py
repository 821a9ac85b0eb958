"""What others' libraries do here: those that are needed are there, the others are not asked for."""

import time
from importlib import import_module, resources
from importlib.resources.abc import Traversable

from bertwright.analysis.planted.expecting import same
from bertwright.machine import versions
from bertwright.studies.compression_checks.ground import Ground
from bertwright.studies.compression_checks.row import Came, Measured, Row

NEEDED = {
    "torch": "whatever is trained",
    "safetensors": "whatever is kept",
    "onnx": "graphs as files",
    "onnxscript": "the exporter's operators",
    "onnxruntime": "graphs computed, in 32 bits and in 8",
}
"""By what they do."""

UNUSED = {
    "torch.ao.quantization": "is going to leave PyTorch",
    "torchao": "its kernels for processors need compiled models",
    "optimum": "is made for the models of Transformers",
    "neural_compressor": "is about large language models now",
    "nncf": "another runtime for the same",
}
"""By why not."""


def run(ground: Ground) -> Came:
    """Import what is needed; look for the others in our own files."""
    known = versions(*NEEDED)
    for name, does in NEEDED.items():
        began = time.perf_counter()
        import_module(name)
        what = f"{name} {known.get(name, '')}, {does}: seconds to import"
        yield Measured(what, [time.perf_counter() - began], over="imports")
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
