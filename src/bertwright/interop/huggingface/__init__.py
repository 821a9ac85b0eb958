"""Import and export of Hugging Face folders, with one module per model family.

No module is imported here, so that loading a folder imports its family only.
"""

from pathlib import Path

CONFIG_FILE = "config.json"


def is_huggingface_folder(folder: Path) -> bool:
    """Return whether a folder has a config.json."""
    return (folder / CONFIG_FILE).is_file()
