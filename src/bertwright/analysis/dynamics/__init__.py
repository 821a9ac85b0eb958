"""What training has made of a model, and what of it is of use."""

from bertwright.analysis.dynamics.change import Change
from bertwright.analysis.dynamics.effective_context import EffectiveContext

__all__ = ["Change", "EffectiveContext"]
