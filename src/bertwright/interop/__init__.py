"""Formats that other libraries read and write: Hugging Face, sentence-transformers, ONNX, torch."""
