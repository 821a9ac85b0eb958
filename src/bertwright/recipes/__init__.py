"""The choice on every axis: a published system is a short file."""

from bertwright.recipes.schema import Phase, Pooling, Recipe, Vectors

__all__ = ["Phase", "Pooling", "Recipe", "Vectors"]
