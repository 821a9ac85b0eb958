"""An exponential moving average of the parameters, which is what is evaluated and kept.

After every step average <- decay x average + (1 - decay) x parameters, from the first parameters
on, without a correction for the short past (Tarvainen and Valpola 2017; GPT-BERT, Charpentier and
Samuel 2024). Training itself does not look at it.
"""

from collections.abc import Generator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor

from bertwright.optimisers.parameters import MasterParameters, fill
from bertwright.schedules import Schedule
from bertwright.training.clock import Place
from bertwright.training.procedure import Procedure


class MovingAverage(Procedure):
    """The average of the float32 parameters; ``decay`` follows the progress of the run.

    Attributes:
        average: (N,) float32, laid out as the master.
    """

    name = "moving-average"

    def __init__(self, parameters: MasterParameters, decay: Schedule) -> None:
        self._parameters = parameters
        self._decay = decay
        self.average = parameters.master.clone()

    @torch.no_grad()
    def after_update(self, place: Place) -> None:
        self.average.lerp_(self._parameters.master, 1.0 - self._decay.at(place.progress))

    @contextmanager
    def lent(self) -> Generator[None]:
        """The model computes with the average while this is open."""
        own = self._parameters.master.clone()
        self.take_over()
        try:
            yield
        finally:
            self._write(own)

    def take_over(self) -> None:
        """The average becomes the parameters, for good: when training has ended."""
        self._write(self.average)

    @torch.no_grad()
    def _write(self, flat: Tensor) -> None:
        self._parameters.master.copy_(flat)
        self._parameters.refresh()

    def state(self) -> dict[str, Tensor]:
        return self._parameters.views(self.average)

    def load(self, state: Mapping[str, Tensor]) -> None:
        fill(self.state(), state)
