"""The settings of fine-tuning, and what follows from them for one encoder."""

from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import Field, ValidationError, field_serializer, field_validator, model_validator

from bertwright.axes import Precision, Settings, explain
from bertwright.recipes import Recipe
from bertwright.schedules import Schedule
from bertwright.tasks.adaptation import Adaptation, Full
from bertwright.tasks.fitting_heads import HeadChanges
from bertwright.tasks.heads import HeadChoice
from bertwright.tasks.perturbation import Perturbation
from bertwright.tasks.task_model import Adapted

COMPILE_SECONDS = 40.0
"""What the first compiled step takes, one graph for all shapes (2 cores, AMD Zen 4)."""

SAVED_SECONDS = 1.2e-8
"""By which a compiled step is faster than an eager one, for each number of the residual stream,
over all blocks; the same machine."""


OF_STEPS = frozenset(
    (
        *("epochs", "rate", "batch", "dropout", "decay", "warmup", "schedule", "clip", "patience"),
        "bias_correction",
    )
)
"""Settings that mean nothing where a head is fitted to convergence."""


class FineTuning(Settings):
    """How a task is learned.

    ``rate`` None takes what is usual for the adaptation, of everything 5e-5 times 768 over the
    width of the encoder: narrow models want larger steps (Turc et al. 2019), and so do those that
    Muon has trained. ``dropout`` takes the place of the recipe's everywhere. ``length`` None takes
    what the encoder allows, 512 at most. ``batch`` is in examples. The run is repeated with
    ``seeds`` seeds, the first of which is ``seed``.

    ``adaptation`` says what is trained, ``head`` where states are read. ``language_model`` weighs
    the loss of naming next pieces beside that of the task (Radford et al. 2018: 0.5). ``schedule``
    None rises over the first ``warmup`` of the steps and falls to nothing. ``bias_correction`` is
    that of Adam (Mosbach et al. 2021). With ``patience`` training ends when so many epochs in a row
    were no better than the best before. No ``epochs`` at all leave an encoder as it is, behind a
    head that knows nothing. Several tasks take turns by how many examples they have to the power of
    ``share_power``: 1 in proportion, 0 equally often (Stickland and Murray 2019). ``calibrate``
    divides outputs by a temperature that is fitted on the held-out part (Guo et al. 2017), and
    chooses there when to say that a question has no answer.
    """

    epochs: int = Field(default=3, ge=0, le=1_000_000)
    rate: float | None = Field(default=None, gt=0)
    batch: int = Field(default=32, ge=1, le=1 << 20)
    dropout: float = Field(default=0.1, ge=0, lt=1)
    decay: float = Field(default=0.01, ge=0)
    adaptation: Adaptation = Full()
    head: HeadChoice | HeadChanges | None = None
    perturbation: Perturbation | None = None
    language_model: float = Field(default=0.0, ge=0)
    warmup: float = Field(default=0.1, ge=0, le=1)
    schedule: Schedule | None = None
    bias_correction: bool = True
    clip: float | None = Field(default=1.0, gt=0)
    length: int | None = Field(default=None, ge=8, le=1 << 20)
    patience: int | None = Field(default=None, ge=1)
    share_power: float = Field(default=1.0, ge=0, le=1)
    calibrate: bool = True
    precision: Precision | None = None
    compile: Literal["auto", True, False] = "auto"
    seed: int = Field(default=0, ge=0)
    seeds: int = Field(default=1, ge=1, le=65_536)

    @field_validator("adaptation", mode="before")
    @classmethod
    def _of_everything(cls, adaptation: Any) -> Any:
        """Of a mapping that states no kind, but what the usual one has."""
        if isinstance(adaptation, Mapping) and adaptation.keys() <= Full.model_fields.keys():
            return {"kind": "full", **adaptation}
        return adaptation

    @field_validator("head", mode="plain")
    @classmethod
    def _of_usual_kind(cls, head: Any) -> HeadChoice | HeadChanges | None:
        """Of a mapping without a kind, as that of its answer."""
        if head is None or isinstance(head, HeadChanges):
            return head
        if isinstance(head, Mapping) and "kind" not in head:
            return HeadChanges.model_validate(head)
        return HeadChoice.choose(head)

    @model_validator(mode="after")
    def _rises_once(self) -> Self:
        if self.schedule is not None and "warmup" in self.model_fields_set:
            raise ValueError("warmup and schedule both say how the rate rises: leave one out")
        return self

    @field_serializer("head")
    def _head_as_stated(self, head: HeadChoice | HeadChanges | None) -> Any:
        return None if head is None else head.model_dump(mode="json")

    @staticmethod
    def of(settings: Mapping[str, Any]) -> "FineTuning":
        """Checked settings; UserError that names what is wrong."""
        try:
            return FineTuning.model_validate(dict(settings))
        except ValidationError as error:
            raise explain(error, "finetune") from error

    @property
    def stated_of_steps(self) -> list[str]:
        """The settings of training in steps that are stated."""
        return sorted(self.model_fields_set & OF_STEPS)

    def rate_for(self, recipe: Recipe) -> float:
        """The learning rate for an encoder."""
        return self.rate or self.adaptation.usual_rate(recipe)

    def seeds_in_turn(self) -> range:
        """The seeds of all runs."""
        return range(self.seed, self.seed + self.seeds)


def repays(net: Adapted, num_places: int) -> bool:
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
