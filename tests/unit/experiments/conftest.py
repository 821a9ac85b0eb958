"""Few examples in synthetic tasks."""

from few_examples import few_examples

__all__ = ["few_examples"]
