"""Recipes: one choice on every axis. A published system is a short YAML file."""

from bertwright.recipes.schema import Phase, Pooling, Recipe, SentenceVectorSettings

__all__ = ["Phase", "Pooling", "Recipe", "SentenceVectorSettings"]
