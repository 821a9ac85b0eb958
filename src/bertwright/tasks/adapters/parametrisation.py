"""Reparametrisations of an encoder's weights in fine-tuning."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext

from torch import Tensor, nn

from bertwright.training.callbacks.callback import Callback


class WeightParametrisation(nn.Module):
    """A function of the weights, possibly with trainable parameters.

    A finished model stores the result in evaluation mode, where nothing is random.

    Attributes:
        callbacks: run within each training step.
        has_inner_hooks: True if it hooks intermediate values, which compiled steps do not expose.
    """

    callbacks: Sequence[Callback] = ()
    has_inner_hooks: bool = False

    @property
    def has_penalty(self) -> bool:
        """True if a step adds a :meth:`penalty` to its losses."""
        return False

    @property
    def is_final(self) -> bool:
        """True if a model built now is final, not an intermediate step."""
        return True

    def init_parameters(self, seed: int, weights: Mapping[str, Tensor]) -> None:
        """Initialise the parameters, given all initial weights by name."""

    def forward_context(
        self, document_ids: Tensor | None, output_positions: Tensor | None
    ) -> AbstractContextManager[None]:
        """Return the context in which the encoder processes a batch.

        document_ids: (B, L), 0 or more at real positions. output_positions: flat (M,), the
        positions whose hidden states are computed; None for all.
        """
        return nullcontext()

    def penalty(self) -> Tensor:
        """Return the 0-d float32 penalty, added to the loss once per step."""
        raise TypeError(f"{type(self).__name__} has no penalty")

    def forward(self, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the replaced weights by name, given all weights."""
        raise TypeError(f"{type(self).__name__} has no forward")
