"""Something simple that answers a task: what a model has to beat."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from bertwright.tasks.answers import Prediction
from bertwright.tasks.formats.examples import Examples

Matrix = NDArray[np.float32]


class Baseline(ABC):
    """A baseline that was fitted to training examples: a frozen dataclass whose fields are plain
    data and arrays, which is how a folder keeps it.

    Attributes:
        kind: its name in a folder.
        name: what reports call it.
        trained_on: how many examples it was fitted to.
    """

    kind: ClassVar[str]
    reads_vectors: ClassVar[bool] = False
    """Whether it reads the frozen features of a model, not texts."""
    name: str
    trained_on: int

    @abstractmethod
    def predict(
        self, examples: Examples, vectors: Sequence[Matrix] | None = None
    ) -> list[Prediction]:
        """Return the answers to examples; ``vectors`` (k, W) are what a model reads of each."""
