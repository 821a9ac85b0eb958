"""Checks and tables outside the package: recipes, analyses, compressions and claims."""
