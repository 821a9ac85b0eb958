"""Whether a model knows syntax, and where."""
