"""What a model knows, and where: one file for each question that is asked of a model."""
