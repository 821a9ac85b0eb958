"""Learning rates by level, step by step."""

from collections.abc import Callable, Sequence

from bertwright.optimisers.parameters import MasterParameters
from bertwright.training.clock import Place
from bertwright.training.procedure import Procedure


class LevelRates(Procedure):
    """Multiplies the rates of every level with what ``rates`` says of a place: a function of the
    place alone, so that there is nothing to save."""

    name = "level-rates"

    def __init__(
        self, parameters: MasterParameters, rates: Callable[[Place], Sequence[float] | None]
    ) -> None:
        self._parameters, self._rates = parameters, rates

    def before_step(self, place: Place) -> None:
        self._parameters.level_rates = self._rates(place)
