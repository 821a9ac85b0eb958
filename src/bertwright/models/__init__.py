"""Models: build, save, load, embed, score, generate, and count parameters and FLOPs."""

from bertwright.models.model import Model

__all__ = ["Model"]
