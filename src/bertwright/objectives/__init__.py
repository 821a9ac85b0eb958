"""Training objectives, one file each; recipes can use every objective in this folder."""

from importlib import import_module
from pkgutil import iter_modules

from bertwright.objectives.objective import Objective

__all__ = ["Objective"]

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")
