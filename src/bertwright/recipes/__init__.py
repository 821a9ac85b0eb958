"""The choice on every axis: a published system is a short file."""

from bertwright.recipes.schema import Phase, Recipe

__all__ = ["Phase", "Recipe"]
