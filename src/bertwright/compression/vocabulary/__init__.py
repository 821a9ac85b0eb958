"""Other vocabularies and embeddings for a trained model."""
