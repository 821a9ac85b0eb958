"""Hugging Face folders: read and written, for BERT, RoBERTa and ModernBERT."""

from bertwright.interop.huggingface.reading import import_folder, is_huggingface, load
from bertwright.interop.huggingface.writing import Export, export_folder

__all__ = ["Export", "export_folder", "import_folder", "is_huggingface", "load"]
