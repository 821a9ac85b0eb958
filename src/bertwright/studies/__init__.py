"""Whole experiments: recipes and tasks put together, and what comes out of them."""
