"""The settings of fine-tuning."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, field_serializer, field_validator, model_validator

from bertwright.core.config import Precision, Settings, to_user_error
from bertwright.core.errors import UserError
from bertwright.core.schedules import Schedule
from bertwright.recipes import Recipe
from bertwright.tasks.adapters import AdaptationConfig, FullFineTuningConfig
from bertwright.tasks.finetuning.batching.bucket_sampler import Batching
from bertwright.tasks.finetuning.dropout import FineTuningDropout
from bertwright.tasks.finetuning.perturbation import PerturbationConfig
from bertwright.tasks.finetuning.published import published_settings
from bertwright.tasks.finetuning.truncated_backprop import TruncatedBackpropConfig
from bertwright.tasks.heads.default_head import HeadOverrides
from bertwright.tasks.heads.head import HeadConfig
from bertwright.tasks.multi_task_model import MultiTaskModel

COMPILE_SECONDS = 40.0
"""Seconds to compile the first step, one graph for all shapes (2 cores, AMD Zen 4)."""

SAVED_SECONDS_PER_VALUE = 1.2e-8
"""Seconds saved by compilation per value of the residual stream, over all blocks, on the same
machine."""


GRADIENT_STEP_SETTINGS = frozenset(
    (
        *("epochs", "learning_rate", "batch_size", "dropout", "weight_decay", "warmup"),
        *("schedule", "max_grad_norm", "patience", "beta_1", "beta_2", "bias_correction"),
    )
)
"""Settings that have no effect if a head is fitted to convergence."""


class FineTuningConfig(Settings):
    """Settings of fine-tuning.

    The default ``learning_rate`` depends on the adaptation; for full fine-tuning it is 5e-5 times
    768 over the width of the encoder, since narrow models need larger learning rates (Turc et al.
    2019), as do models pretrained with Muon. ``dropout`` replaces the recipe's dropout everywhere,
    except in the embeddings; a mapping sets the rates of single parts and keeps the others. The
    default ``max_length`` is the encoder's, at most 512. ``batch_size`` is in examples. The run
    is repeated for ``seeds`` seeds, starting from ``seed``.

    ``batching``: ``buckets`` has examples of similar length in a batch; ``packed`` has random
    examples, several in a row, which do not attend to each other; ``padded`` pads the same batches.

    ``label_smoothing`` applies to outputs that are texts (Szegedy et al. 2016); the default is the
    recipe's. ``language_model`` is the weight of the auxiliary next-token loss (Radford et al.
    2018: 0.5). ``linear_gain`` adds the loss of the labels at every position t of T, with weight
    t / T (Dai and Le 2015). ``truncated_backprop`` trains a recurrent encoder on long documents in
    chunks. The default ``schedule`` rises during the fraction ``warmup`` of the steps and then
    falls to 0. ``beta_1``, ``beta_2`` and ``bias_correction`` configure Adam (Mosbach et al. 2021).
    ``patience`` is the number of epochs without improvement after which training stops. With
    ``epochs`` 0 the head stays untrained. ``task_sampling_power``: several tasks are sampled by
    their number of examples to this power; 1 is proportional, 0 is uniform (Stickland and Murray
    2019). ``calibrate`` fits a temperature (Guo et al. 2017) and a no-answer threshold on the
    held-out examples. ``pair_head`` replaces ``head`` for tasks that classify pairs of texts.
    """

    epochs: int = Field(default=3, ge=0, le=1_000_000)
    learning_rate: float | None = Field(default=None, gt=0)
    batch_size: int = Field(default=32, ge=1, le=1 << 20)
    batching: Batching = "buckets"
    dropout: Annotated[float, Field(ge=0, lt=1)] | FineTuningDropout = 0.1
    weight_decay: float = Field(default=0.01, ge=0)
    adaptation: AdaptationConfig = FullFineTuningConfig()
    head: HeadConfig | HeadOverrides | None = None
    pair_head: HeadConfig | None = None
    perturbation: PerturbationConfig | None = None
    language_model: float = Field(default=0.0, ge=0)
    label_smoothing: float | None = Field(default=None, ge=0, lt=1)
    linear_gain: bool = False
    truncated_backprop: TruncatedBackpropConfig | None = None
    warmup: float = Field(default=0.1, ge=0, le=1)
    schedule: Schedule | None = None
    beta_1: float = Field(default=0.9, ge=0, lt=1)
    beta_2: float = Field(default=0.999, ge=0, lt=1)
    bias_correction: bool = True
    max_grad_norm: float | None = Field(default=1.0, gt=0)
    max_length: int | None = Field(default=None, ge=8, le=1 << 20)
    patience: int | None = Field(default=None, ge=1)
    task_sampling_power: float = Field(default=1.0, ge=0, le=1)
    calibrate: bool = True
    precision: Precision | None = None
    compile: Literal["auto", True, False] = "auto"
    seed: int = Field(default=0, ge=0)
    seeds: int = Field(default=1, ge=1, le=65_536)

    @field_validator("adaptation", mode="before")
    @classmethod
    def _default_adaptation(cls, adaptation: Any) -> Any:
        """Return full fine-tuning for a mapping of its settings without a kind."""
        if (
            isinstance(adaptation, Mapping)
            and adaptation.keys() <= FullFineTuningConfig.model_fields.keys()
        ):
            return {"kind": "full", **adaptation}
        return adaptation

    @field_validator("head", mode="plain")
    @classmethod
    def _parse_head(cls, head: Any) -> HeadConfig | HeadOverrides | None:
        """Return overrides of the default head for a mapping without a kind."""
        if head is None or isinstance(head, HeadOverrides):
            return head
        if isinstance(head, Mapping) and "kind" not in head:
            return HeadOverrides.model_validate(head)
        return HeadConfig.parse(head)

    @model_validator(mode="after")
    def _one_warmup(self) -> Self:
        if self.schedule is not None and "warmup" in self.model_fields_set:
            raise ValueError("warmup and schedule both set the warmup: leave one out")
        return self

    @field_serializer("head")
    def _serialise_head(self, head: HeadConfig | HeadOverrides | None) -> Any:
        return None if head is None else head.model_dump(mode="json")

    @staticmethod
    def from_settings(settings: Mapping[str, Any]) -> "FineTuningConfig":
        """Return validated settings; UserError for invalid ones.

        The key ``settings`` names published settings to start from, such as ``mt-dnn``.
        """
        overrides = dict(settings)
        name = overrides.pop("settings", None)
        published = {} if name is None else published_settings(str(name))
        try:
            return FineTuningConfig.model_validate({**published, **overrides})
        except ValidationError as error:
            raise to_user_error(error, "finetune") from error

    @property
    def explicit_step_settings(self) -> list[str]:
        """The explicitly set settings that apply only to gradient steps."""
        return sorted(self.model_fields_set & GRADIENT_STEP_SETTINGS)

    def learning_rate_for(self, recipe: Recipe) -> float:
        """Return the learning rate for an encoder."""
        return self.learning_rate or self.adaptation.default_learning_rate(recipe)

    def dropout_for(self, recipe: Recipe) -> FineTuningDropout:
        """Return the dropout rates for a recipe."""
        if isinstance(self.dropout, FineTuningDropout):
            return self.dropout
        return FineTuningDropout.everywhere(self.dropout, recipe)

    def seed_range(self) -> range:
        """Return the seeds of all runs."""
        return range(self.seed, self.seed + self.seeds)


def is_compilation_worthwhile(model: MultiTaskModel, num_positions: int) -> bool:
    """Return whether compilation saves more time than it takes.

    This is an estimate instead of a measurement, so that equal runs always make the same choice.
    """
    num_values = num_positions * len(model.encoder.blocks) * model.recipe.encoder.width
    return num_values * SAVED_SECONDS_PER_VALUE > COMPILE_SECONDS


def with_label_smoothing(recipe: Recipe, smoothing: float | None) -> Recipe:
    """Return the recipe with this label smoothing; None keeps its own.

    Errors: UserError for an output without the whole softmax.
    """
    if smoothing is None:
        return recipe
    try:
        output = recipe.output.copy_with("output", smoothing=smoothing)
    except ValueError as error:
        raise UserError(f"label_smoothing: {error}") from None
    return recipe.model_copy(update={"output": output})
