"""What an adaptation makes of the weights of an encoder, which computes with what comes of them."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext

from torch import Tensor, nn

from bertwright.training.procedure import Procedure


class Changes(nn.Module):
    """A function of the weights, perhaps with parameters of its own. In a finished model its result
    are the weights: what it gives in evaluation mode, in which nothing is drawn.

    Attributes:
        procedures: what it does within a step.
        looks_inside: whether it changes or watches values inside, which compiled steps hide.
    """

    procedures: Sequence[Procedure] = ()
    looks_inside: bool = False

    @property
    def penalised(self) -> bool:
        """Whether a step has a :meth:`penalty` beside its losses."""
        return False

    @property
    def done(self) -> bool:
        """Whether a model that is made now is what is wanted in the end, and no step on the way."""
        return True

    def begin(self, seed: int) -> None:
        """As it is before the first step."""

    def reading(
        self, document: Tensor | None, wanted: Tensor | None
    ) -> AbstractContextManager[None]:
        """Open while the encoder reads a batch, whose real places have a ``document`` (B, L) of 0
        or more, and whose states are asked for at the ``wanted`` flat places (M,) or at all."""
        return nullcontext()

    def penalty(self) -> Tensor:
        """What is added to the loss of a step, once, 0-d float32."""
        raise TypeError(f"{type(self).__name__} has no penalty")

    def forward(self, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The changed ones by name, of those as they were."""
        raise TypeError(f"{type(self).__name__} changes nothing")
