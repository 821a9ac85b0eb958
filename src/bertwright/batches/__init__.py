"""Batches from tokens: input formats, masking, noising and targets, with NumPy only.

Reading order: ``token_info`` (a batch of sequences and the metadata of its tokens), ``formats``
(how the token stream becomes sequences), ``masking`` (which positions are masked, and how),
``targets``, ``batch``; ``noising`` corrupts text for a decoder.

Every sequence is a pure function of (seed, epoch, sequence index): there is no state, and it does
not depend on the rest of the batch.
"""
