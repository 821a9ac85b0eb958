"""Pre-training of an encoder from a recipe and a data set."""
