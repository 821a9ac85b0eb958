"""Hugging Face folders: read and written, one file for each family."""

from bertwright.interop.huggingface.reading import import_folder, is_huggingface, load
from bertwright.interop.huggingface.writing import Export, export_folder

__all__ = ["Export", "export_folder", "import_folder", "is_huggingface", "load"]
