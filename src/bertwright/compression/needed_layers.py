"""Which layers a task needs: those without which a model that has learned it loses most."""

import numpy as np

from bertwright.compression.quantisation.losses import asked, mean_loss
from bertwright.compression.students import require_layers
from bertwright.randomness import sample
from bertwright.tasks.fine_tuned import FineTuned
from bertwright.tasks.formats.examples import Examples

MOST_EXAMPLES, AT_ONCE = 512, 32
"""Examples that are asked without each layer, and how many of them together."""


def needed_layers(model: FineTuned, examples: Examples, number: int) -> list[int]:
    """So many of the layers, counted from 0: those whose loss is greatest without them, in their
    order (Kovaleva et al. 2019, section 4.5).

    Errors: UserError where there are fewer.
    """
    require_layers(number, len(model.net.encoder.blocks))
    losses = losses_without_layers(model, sample(examples, MOST_EXAMPLES))
    return sorted(np.argsort(losses, kind="stable")[::-1][:number].tolist())


def losses_without_layers(model: FineTuned, examples: Examples) -> list[float]:
    """The mean loss of examples without each layer, whose input goes on as its output."""
    batches, found = asked(model, examples, AT_ONCE), list[float]()
    for layer in range(len(model.net.encoder.blocks)):
        with model.net.encoder.pass_by(layer):
            found.append(mean_loss(batches))
    return found
