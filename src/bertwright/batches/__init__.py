"""Turn tokens into batches: input formats, masking, noising and targets. Numpy only.

Reading order: ``token_info`` (a batch of sequences and the metadata of its tokens), ``formats``
(the token stream becomes sequences), ``masking`` (which positions are masked, and how),
``targets``, ``batch``; ``noising`` corrupts text for a decoder.

Everything is a pure function of (seed, epoch, sequence index), without state and independent of the
rest of the batch.
"""
