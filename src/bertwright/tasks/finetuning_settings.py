"""The settings of fine-tuning, and what follows from them for one encoder."""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, ValidationError

from bertwright.axes import Precision, Settings, explain
from bertwright.recipes import Recipe
from bertwright.tasks.heads import HeadChoice
from bertwright.tasks.task_model import TaskModel

USUAL_RATE, USUAL_WIDTH = 5e-5, 768
"""The learning rate of the encoder for which one was published (Devlin et al. 2019)."""

COMPILE_SECONDS = 40.0
"""What the first compiled step takes, one graph for all shapes (2 cores, AMD Zen 4)."""

SAVED_SECONDS = 1.2e-8
"""By which a compiled step is faster than an eager one, for each number of the residual stream,
over all blocks; the same machine."""


class FineTuning(Settings):
    """How a task is learned.

    ``rate`` None takes 5e-5 times 768 over the width of the encoder: narrow models want larger
    steps (Turc et al. 2019). ``dropout`` takes the place of the recipe's everywhere. ``length``
    None takes what the encoder allows, 512 at most. ``batch`` is in rows. The run is repeated with
    ``seeds`` seeds, the first of which is ``seed``.

    ``layer_decay`` multiplies the rate from block to block, down from the head. ``unfreeze``
    ``gradual`` trains the head in the first epoch and one block more in each, everything in the
    last (Howard and Ruder 2018, sections 3.2 and 3.3).
    """

    epochs: int = Field(default=3, ge=1)
    rate: float | None = Field(default=None, gt=0)
    batch: int = Field(default=32, ge=1)
    dropout: float = Field(default=0.1, ge=0, lt=1)
    decay: float = Field(default=0.01, ge=0)
    layer_decay: float = Field(default=1.0, gt=0, le=1)
    unfreeze: Literal["all", "gradual"] = "all"
    warmup: float = Field(default=0.1, ge=0, le=1)
    clip: float | None = Field(default=1.0, gt=0)
    length: int | None = Field(default=None, ge=8)
    head: HeadChoice | None = None
    precision: Precision | None = None
    compile: Literal["auto", True, False] = "auto"
    seed: int = Field(default=0, ge=0)
    seeds: int = Field(default=1, ge=1)

    @staticmethod
    def of(settings: Mapping[str, Any]) -> "FineTuning":
        """Checked settings; UserError that names what is wrong."""
        try:
            return FineTuning.model_validate(dict(settings))
        except ValidationError as error:
            raise explain(error, "finetune") from error

    def rate_for(self, recipe: Recipe) -> float:
        """The learning rate for an encoder."""
        return self.rate or USUAL_RATE * USUAL_WIDTH / recipe.encoder.width


def repays(net: TaskModel, num_places: int) -> bool:
    """Whether compiled steps win back what compiling takes: foreseen, not measured, so that the
    same job is always computed in the same way."""
    numbers = num_places * len(net.encoder.blocks) * net.recipe.encoder.width
    return numbers * SAVED_SECONDS > COMPILE_SECONDS


def with_dropout(recipe: Recipe, rate: float) -> Recipe:
    """The recipe with this dropout everywhere."""
    encoder = recipe.encoder
    mixer = encoder.mixer
    if "dropout" in type(mixer).model_fields:
        mixer = mixer.model_copy(update={"dropout": rate})
    changed = encoder.model_copy(update={"dropout": rate, "mixer": mixer})
    return recipe.model_copy(update={"encoder": changed})
