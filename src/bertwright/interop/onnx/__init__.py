"""ONNX folders: a model as a graph that onnxruntime computes, written and opened.

Reading order: ``inputs`` and ``graph`` (what is computed), ``recurrence``, ``tracing`` (to a
file), ``parity``, ``ranges`` and ``quantising``, ``writing`` (the folder), ``session`` and
``reading`` (the way back), ``timing`` and ``measuring``.

Nothing is imported here, so that a process of ``timing`` is there at once.
"""
