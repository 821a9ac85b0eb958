"""Ways to adapt an encoder to a task: what is trained of it, and what is added."""

from bertwright.tasks.adaptation.adaptation import (
    Adaptation,
    Adapters,
    Frozen,
    Full,
    Gradual,
    Last,
    LowRank,
)

__all__ = ["Adaptation", "Adapters", "Frozen", "Full", "Gradual", "Last", "LowRank"]
