"""The training of a recipe as nothing but its steps: no budget, no evaluation, no checkpoints."""

from collections.abc import Sequence

from bertwright.axes import Precision
from bertwright.encoder.roles import roles
from bertwright.examples.batches import Batch
from bertwright.machine.process import usual_device
from bertwright.model.model import Model
from bertwright.optimisers.parameters import MasterParameters
from bertwright.recipes import Recipe
from bertwright.text.shards import Data
from bertwright.training.clipping import Clipping
from bertwright.training.clock import Clock
from bertwright.training.distributed import Processes
from bertwright.training.loop import Job
from bertwright.training.procedure import Procedure
from bertwright.training.recipe_batches import RecipeBatches
from bertwright.training.recipe_losses import RecipeLosses
from bertwright.training.recipe_procedures import recipe_procedures
from bertwright.training.stream_memory import StreamMemory


def recipe_job(
    recipe: Recipe,
    data: Data,
    precision: Precision,
    clock: Clock,
    procedures: Sequence[Procedure] = (),
) -> Job[Batch]:
    """Return the job of a recipe on a data set, with weights drawn from the seed."""
    device = usual_device()
    model = Model.build(recipe, data.tokenizer.size, data.tokenizer).to(device)
    parameters = MasterParameters(model, roles(model), precision, device)
    update = recipe.optimiser.build(parameters)
    batches, memory = RecipeBatches(recipe, data), StreamMemory(recipe.encoder.memory)
    return Job(
        parameters=parameters,
        update=update,
        batch=batches,
        losses=RecipeLosses(recipe, model, memory=memory),
        clock=clock,
        rate=recipe.schedule.at,
        weights=batches.weights,
        clip=Clipping(recipe.clip),
        processes=Processes(device=device),
        procedures=[*procedures, *recipe_procedures(model, parameters, update, None), memory],
        compile_model=model.compile_parts,
    )
