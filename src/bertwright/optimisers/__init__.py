"""Optimisers over flat parameter buffers."""

from bertwright.optimisers.adafactor import AdafactorConfig
from bertwright.optimisers.adam import AdamConfig, AdamWConfig
from bertwright.optimisers.gradient_descent import AdagradConfig, SGDConfig
from bertwright.optimisers.muon import AdaMuonConfig, MuonConfig
from bertwright.optimisers.optimiser import Optimiser, OptimiserConfig
from bertwright.optimisers.trust_ratio import LambConfig, StableAdamWConfig

__all__ = [
    "AdaMuonConfig",
    "AdafactorConfig",
    "AdagradConfig",
    "AdamConfig",
    "AdamWConfig",
    "LambConfig",
    "MuonConfig",
    "Optimiser",
    "OptimiserConfig",
    "SGDConfig",
    "StableAdamWConfig",
]
