"""Import and export of Hugging Face folders, with one module per model family.

This package imports none of its modules, so that loading a folder imports only its family.
"""

from pathlib import Path

CONFIG_FILE = "config.json"


def is_huggingface_folder(folder: Path) -> bool:
    """Return whether a folder has a config.json."""
    return (folder / CONFIG_FILE).is_file()
