"""Import and export of Hugging Face folders, with one module per model family."""

from bertwright.interop.huggingface.exporter import HuggingFaceExport, export_huggingface
from bertwright.interop.huggingface.importer import (
    import_huggingface,
    is_huggingface_folder,
    load_huggingface,
)

__all__ = [
    "HuggingFaceExport",
    "export_huggingface",
    "import_huggingface",
    "is_huggingface_folder",
    "load_huggingface",
]
