"""Encoded examples of a task, and their batches.

Reading order: ``encoded_task``, ``used_vocabulary`` (the tokens that examples use),
``bucket_sampler``, ``batches``, ``data_warnings``.
"""
