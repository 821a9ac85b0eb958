"""ONNX folders: a model as a graph that onnxruntime computes, written and opened.

Reading order: ``graph`` (what is computed), ``recurrence``, ``tracing`` (to a file), ``parity``,
``ranges`` and ``quantising``, ``writing`` (the folder), ``session`` and ``reading`` (the way back),
``measuring``.
"""

from bertwright.interop.onnx.about import is_onnx
from bertwright.interop.onnx.ranges import RangeObserver, Ranges
from bertwright.interop.onnx.reading import load_onnx
from bertwright.interop.onnx.writing import Export, export_onnx

__all__ = ["Export", "RangeObserver", "Ranges", "export_onnx", "is_onnx", "load_onnx"]
