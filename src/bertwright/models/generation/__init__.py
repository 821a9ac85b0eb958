"""Text generation.

Reading order: ``config`` (from logits to tokens), ``sequences`` (growing batches and their logits),
``sampling`` and ``beam_search`` (autoregressive), ``masked_filling`` (masks after a prompt),
``generate`` (the method for each objective).
"""
