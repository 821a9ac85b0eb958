"""Speed of text embeddings."""
