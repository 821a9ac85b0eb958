"""Examples: pieces of text become rows, and questions are asked of them. Numpy only.

Reading order: ``coordinates`` (a row and where each of its places stands), ``assembly`` (the stream
of pieces becomes rows), ``selection`` (which places are asked), ``corruption`` (what is seen there
instead), ``questions`` (both together, and questions that hide nothing), ``batches``. Other things
that are done to rows have files of their own: ``noising``, ``permutation``, ``shuffling``,
``reordering``, ``repeating``.

Everything is a pure function of (seed, epoch, row): no state, no order, no batch mates.
"""
