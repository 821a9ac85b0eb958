"""The base class of baselines."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from bertwright.tasks.outputs import Prediction

FloatMatrix = NDArray[np.float32]

Features = Sequence[FloatMatrix] | None
"""The frozen features (k, W) of each example."""


class TaskBaseline(ABC):
    """A baseline fitted to training examples.

    A frozen dataclass of plain data and arrays, so that it can be saved.

    Attributes:
        kind: identifier in a saved folder.
        name: name in reports.
        num_training_examples: number of examples that it was fitted to.
    """

    kind: ClassVar[str]
    needs_features: ClassVar[bool] = False
    """Whether it uses the frozen features of a model instead of texts."""
    name: str
    num_training_examples: int

    @abstractmethod
    def predict(self, examples: Sequence[Any], features: Features = None) -> list[Prediction]:
        """Predict for examples; ``features`` holds the model's (k, W) for each."""
