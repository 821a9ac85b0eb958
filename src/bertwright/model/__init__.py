"""A recipe as a model: build, use, save, load, count."""

from bertwright.model.model import Model

__all__ = ["Model"]
