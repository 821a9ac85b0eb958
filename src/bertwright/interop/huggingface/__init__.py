"""Import and export of Hugging Face folders, with one module per model family.

This package imports none of its modules, so that loading a folder imports only its family.
"""

from pathlib import Path

CONFIG_FILE = "config.json"

ROUTER_FILE = "router_config.json"
"""File of sentence-transformers with the modules of queries and of documents, if they differ."""


def is_huggingface_folder(folder: Path) -> bool:
    """Return whether a folder has a config.json, or a router of sentence-transformers."""
    return (folder / CONFIG_FILE).is_file() or (folder / ROUTER_FILE).is_file()
