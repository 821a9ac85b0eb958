"""Measured against the peers: steps of pre-training, embedding, preparation, learning per minute.

Reading order: ``workload`` (what is computed), ``turns`` (contestants in processes of their own
take turns), ``ours`` and ``peers`` (a training step each), ``pretraining`` (the rounds and the
figures), ``embedding``, ``learning``, ``document`` (figures into a document).
"""
