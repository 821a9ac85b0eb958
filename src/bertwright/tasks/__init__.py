"""Downstream tasks: file formats, output types, metrics, fine-tuning and evaluation."""
