"""New tokens in a trained vocabulary, as if it had been trained with them."""
