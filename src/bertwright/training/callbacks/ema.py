"""Moving average of the parameters, used for evaluation and the final model.

After every step average <- decay x average + (1 - decay) x parameters, starting from the initial
parameters without bias correction (Tarvainen and Valpola 2017; GPT-BERT, Charpentier and Samuel
2024). The decay may also be that of a mean over the last part of the run. Training itself does not
use the average.
"""

from collections.abc import Generator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor

from bertwright.core.schedules import StepValue
from bertwright.optimisers.master_parameters import MasterParameters
from bertwright.optimisers.tensor_parts import copy_into
from bertwright.training.callbacks.callback import Callback
from bertwright.training.clock import Progress


class ExponentialMovingAverage(Callback):
    """The moving average of the float32 parameters, with a decay that may change.

    Attributes:
        average: (N,) float32, laid out as the master parameters.
    """

    name = "ema"

    def __init__(self, parameters: MasterParameters, decay: StepValue) -> None:
        self._parameters = parameters
        self._decay = decay
        self.average = parameters.master.clone()

    @torch.no_grad()
    def after_update(self, progress: Progress) -> None:
        decay = self._decay.over(progress.fraction, progress.end)
        self.average.lerp_(self._parameters.master, 1.0 - decay)

    @contextmanager
    def use_average(self) -> Generator[None]:
        """Use the average as the model's parameters within the context."""
        trained = self._parameters.master.clone()
        self.copy_to_parameters()
        try:
            yield
        finally:
            self._set_parameters(trained)

    def copy_to_parameters(self) -> None:
        """Replace the parameters by the average, at the end of training."""
        self._set_parameters(self.average)

    @torch.no_grad()
    def _set_parameters(self, flat: Tensor) -> None:
        self._parameters.master.copy_(flat)
        self._parameters.refresh_compute()

    def state(self) -> dict[str, Tensor]:
        return self._parameters.saved_views(self.average)

    def load(self, state: Mapping[str, Tensor]) -> None:
        copy_into(self.state(), state)
