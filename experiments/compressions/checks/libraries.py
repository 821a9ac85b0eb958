"""The libraries that are used, and those that are not."""

from importlib import resources
from importlib.resources.abc import Traversable
from importlib.util import find_spec

from bertwright.runtime.device import package_versions
from experiments.analyses.expecting import expect_same
from experiments.compressions.check import CheckResults, CompressionCheck
from experiments.compressions.toy_models import ToyModels

NEEDED = {
    "torch": "trains",
    "safetensors": "keeps weights",
    "onnx": "keeps graphs",
    "onnxscript": "has the exporter's operators",
    "onnxruntime": "computes graphs, in 32 bits and in 8",
}
"""Used libraries, with their purpose."""

UNUSED = {
    "torch.ao.quantization": "is going to leave PyTorch",
    "torchao": "has kernels for processors in compiled models alone",
    "optimum": "is made for the models of Transformers",
    "neural_compressor": "is for large language models now",
    "nncf": "is another runtime for the same",
}
"""Unused libraries, with the reason."""


def run(toy: ToyModels) -> CheckResults:
    """Check that used libraries are installed, and others are not imported."""
    versions = package_versions(*NEEDED)
    for name, purpose in NEEDED.items():
        description = f"{name} {versions.get(name, '')}, which {purpose}, is installed"
        yield expect_same(description, find_spec(name) is not None, True)
    sources = list(_source_texts(resources.files("bertwright")))
    for name, reason in UNUSED.items():
        count = sum(f"import {name}" in text or f"from {name}" in text for text in sources)
        yield expect_same(f"files that import {name}, which {reason}", count, 0)


def _source_texts(folder: Traversable) -> list[str]:
    """Return the text of all Python files of a package."""
    texts: list[str] = []
    for entry in folder.iterdir():
        if entry.is_dir():
            texts += _source_texts(entry)
        elif entry.name.endswith(".py"):
            texts.append(entry.read_text(encoding="utf-8"))
    return texts


CHECK = CompressionCheck(
    "C21",
    "libraries",
    "Which libraries are used, and which are not?",
    "their documentation, November 2026",
    run,
)
