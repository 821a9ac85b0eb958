"""ONNX folders: export a model as a graph and run it with onnxruntime.

Reading order: ``exporter`` (with ``calibration`` and ``quantization`` for int8), ``manifest``,
``session``, ``model``. Nothing is imported here, so that timing processes start fast.
"""
