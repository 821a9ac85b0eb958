"""What training has made of a model, and what of it is of use."""

from bertwright.analysis.dynamics.beginnings import Beginnings
from bertwright.analysis.dynamics.change import Change
from bertwright.analysis.dynamics.effective_context import EffectiveContext
from bertwright.analysis.dynamics.frozen_or_tuned import FrozenOrTuned
from bertwright.analysis.dynamics.seeds import Seeds
from bertwright.analysis.dynamics.tickets import Tickets

__all__ = ["Beginnings", "Change", "EffectiveContext", "FrozenOrTuned", "Seeds", "Tickets"]
