"""Compression: distillation, pruning, quantization and smaller vocabularies."""
