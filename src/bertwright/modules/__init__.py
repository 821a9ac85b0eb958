"""Building blocks of the encoder: attention, feed-forward, norms, embeddings, recurrence."""
