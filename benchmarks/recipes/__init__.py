"""Training speed of all recipes."""
