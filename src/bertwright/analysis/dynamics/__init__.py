"""What training has made of a model, and what of it is of use."""

from bertwright.analysis.dynamics.effective_context import EffectiveContext

__all__ = ["EffectiveContext"]
