"""GGUF files: export an encoder for llama.cpp, and read such a file back.

Reading order: ``architectures``, ``tokenizers``, ``heads``, ``exporter``, ``reader``,
``verification``. Nothing is imported here.
"""

from pathlib import Path

GGUF_FILE = "model.gguf"


def is_gguf(path: Path) -> bool:
    """Return whether a path is a GGUF file or a folder with one from an export."""
    return (path.is_file() and path.suffix == ".gguf") or (path / GGUF_FILE).is_file()
