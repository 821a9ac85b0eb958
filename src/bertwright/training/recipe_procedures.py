"""The procedures that a recipe asks for, in the order in which they act."""

from bertwright.model.model import Model
from bertwright.optimisers.optimiser import Update
from bertwright.optimisers.parameters import MasterParameters
from bertwright.training.growth import Growth
from bertwright.training.moving_average import MovingAverage
from bertwright.training.procedure import Procedure
from bertwright.training.unfreezing import Unfreezing


def recipe_procedures(
    model: Model, parameters: MasterParameters, update: Update, average: MovingAverage | None
) -> list[Procedure]:
    """What must act inside the steps of a model's recipe; ``average`` is that of its parameters."""
    phases = model.recipe.phases
    procedures: list[Procedure] = []
    if average is not None:
        procedures.append(average)
    if phases[0].depth < 1.0:
        beside = [] if average is None else [average.average]
        procedures.append(Growth(model, parameters, update, beside))
    if any(phase.trained for phase in phases):
        trained = [phase.trained for phase in phases]
        procedures.append(Unfreezing(parameters, update, lambda place: trained[place.phase]))
    return procedures
