"""The schema of a recipe: one choice on every axis, and the training phases."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, Self

import yaml
from pydantic import Field, ValidationError, field_validator, model_validator
from torch import nn

from bertwright.batches.formats import InputFormat
from bertwright.batches.token_info import DataRequirement
from bertwright.core.config import Precision, Settings, did_you_mean, error_message
from bertwright.core.schedules import (
    AverageDecay,
    ConstantSchedule,
    NumberOrSchedule,
    Schedule,
    StepValue,
    WarmupSchedule,
)
from bertwright.data.tokenization.tokenizer import TokenizerConfig
from bertwright.encoder.config import EncoderConfig
from bertwright.encoder.decoder import DecoderConfig
from bertwright.modules.sentence_pooling import Pooling
from bertwright.modules.vector_projection import VectorProjectionConfig
from bertwright.objectives import Objective
from bertwright.objectives.heads.lm_head import LMHeadConfig, TiedHeadConfig
from bertwright.objectives.heads.sampled_lm_head import SampledSoftmaxConfig
from bertwright.objectives.schedule import ObjectiveGroup, objective_schedule
from bertwright.optimisers.adam import AdamWConfig
from bertwright.optimisers.optimiser import OptimiserConfig
from bertwright.recipes.compatibility import check_compatibility
from bertwright.recipes.loading import Override, load_recipe_as, merge

REGISTERED_HEADS = (SampledSoftmaxConfig,)
"""LM heads that are imported only to register their kinds."""

MAX_BATCH_TOKENS = 1 << 26
"""Maximum tokens of one step, which are in memory at once."""

MODULE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 _-]{0,63}")
"""Pattern for the name of an objective, which also names its head in the weights file."""


class TextSettings(Settings):
    """A group of settings for tokenization."""

    tokenizer: TokenizerConfig


class SentenceVectorSettings(Settings):
    """Settings of sentence embeddings.

    ``pooling`` is the ``mean`` over the hidden states of the tokens, or the first hidden state
    (``cls``). ``projection``, if set, is a layer that maps the pooled hidden states. ``longest`` is
    the maximum sequence length, if below the encoder's. The others come from a
    sentence-transformers folder: scaling to length 1 (``normalise``), ``prompts`` before texts and
    the name of the default one, truncation of vectors, and the similarity function. ``embed``
    leaves these to its caller; the encoder of a search index applies them, and an export writes
    them back.
    """

    pooling: Pooling = "mean"
    projection: VectorProjectionConfig | None = None
    longest: int | None = Field(default=None, ge=1, le=1 << 20)
    normalise: bool = False
    prompts: dict[str, str] = Field(default_factory=dict[str, str])
    default_prompt_name: str | None = None
    truncate_dim: int | None = Field(default=None, ge=1)
    similarity_fn_name: str | None = None

    @property
    def default_prompt(self) -> str:
        """Return the prompt for texts without a named prompt; "" if there is no default."""
        return self.prompts[self.default_prompt_name] if self.default_prompt_name else ""

    def without_projection(self) -> "SentenceVectorSettings":
        """Return the settings of an encoder without a projection of its vectors."""
        return self.model_copy(update={"projection": None})

    @property
    def query_prompt(self) -> str:
        """Return the prompt before queries; that of sentence-transformers, without a default."""
        return self.prompts.get("query", "")

    @property
    def document_prompt(self) -> str:
        """Return the prompt before texts that are searched; as for queries."""
        return self.prompts.get("document", "")

    @model_validator(mode="after")
    def _check_default_prompt(self) -> Self:
        if self.default_prompt_name and self.default_prompt_name not in self.prompts:
            raise ValueError(
                f"default_prompt_name: there is no prompt {self.default_prompt_name!r}"
                f"{did_you_mean(self.default_prompt_name, self.prompts)}"
            )
        return self


class Phase(Settings):
    """A training phase.

    - ``fraction``: fraction of the run's steps or time, relative to the other phases
    - ``length``: sequence length; None for the length of the input format
    - ``batch``: factor of the recipe's ``batch_tokens``
    - ``depth``: fraction of the blocks that run; where it grows from one phase to the next, the
      blocks are stacked on copies of themselves (Gong et al. 2019)
    - ``dropout``: factor of every dropout rate (0: Lan et al. 2020, section 4.8)
    - ``trainable_layers``: number of levels to train, from the top: 1 for the heads, 2 for the last
      block too (Howard and Ruder 2018, section 3.3); None for all
    - ``objectives``: objectives of the phase, each with changed settings; None for all objectives
      of the recipe, unchanged
    """

    fraction: float = Field(default=1.0, gt=0)
    length: int | None = Field(default=None, ge=8, le=1 << 20)
    batch: float = Field(default=1.0, gt=0, le=65_536)
    depth: float = Field(default=1.0, gt=0.0, le=1.0)
    dropout: NumberOrSchedule = ConstantSchedule(value=1.0)
    trainable_layers: int | None = Field(default=None, ge=1, le=1_024)
    objectives: dict[str, dict[str, Any]] | None = None

    @field_validator("dropout")
    @classmethod
    def _check_dropout_factor(cls, dropout: Schedule) -> Schedule:
        lowest, highest = dropout.value_range()
        if lowest < 0.0 or highest > 1.0:
            raise ValueError("multiplies the recipe's dropout rates: must be between 0 and 1")
        return dropout


class Recipe(Settings):
    """A model and its training: a point on the axes, fully resolved."""

    name: str
    source: str = ""
    family: str = ""
    """``model_type`` of the Transformers class that the model comes from and is exported to."""
    text: TextSettings
    assembly: InputFormat
    encoder: EncoderConfig = EncoderConfig()
    decoder: DecoderConfig | None = None
    """A second stack that attends to the encoder's output; None for none."""
    output: LMHeadConfig = TiedHeadConfig()
    objectives: dict[str, Objective]
    """Empty for an encoder imported without heads, which cannot be trained."""
    vectors: SentenceVectorSettings = SentenceVectorSettings()
    pooler: bool | Literal["shared"] = False
    """Add a dense layer on the first token, as in some published encoders.

    Objectives do not use it, except that those which classify sequences share it if ``shared``.
    """
    phases: tuple[Phase, ...] = Field(default=(Phase(),), min_length=1, max_length=4_096)

    optimiser: OptimiserConfig = AdamWConfig()
    schedule: NumberOrSchedule = WarmupSchedule()
    batch_tokens: NumberOrSchedule = ConstantSchedule(value=4096)
    micro_batch_tokens: int = Field(default=16384, ge=8, le=1 << 26)
    max_grad_norm: float | None = Field(default=1.0, gt=0)
    ema_decay: AverageDecay | None = None
    """Decay of a moving average of the parameters; None for none.

    With ``{kind: mean, last: 0.2}`` it is the mean over the last fifth of the run. Evaluations and
    the saved model use the average.
    """
    precision: Precision | None = None
    """Precision of training; None for the device's default, which is fixed for a run."""
    compile: Literal["auto", True, False] = "auto"

    steps: int = Field(default=10_000, ge=1, le=10**12)
    seed: int = Field(default=0, ge=0)
    checkpoint_every: int | None = Field(default=None, ge=1)
    checkpoints_kept: int = Field(default=2, ge=1, le=65_536)
    """Number of latest checkpoints to keep, in addition to the best."""
    evaluate_every: int | None = Field(default=None, ge=1)

    @staticmethod
    def load(name: str | Path, *overrides: Override) -> "Recipe":
        """Load a recipe by name or YAML file, with overrides: ``key.path=value`` or mappings.

        Errors: UserError that names the wrong key and the nearest known key, if any.
        """
        return load_recipe_as(name, overrides, Recipe)

    @field_validator("objectives", mode="before")
    @classmethod
    def _default_kind_to_name(cls, objectives: Any) -> Any:
        if not isinstance(objectives, dict):
            return objectives
        active = {name: s for name, s in objectives.items() if s is not None}
        # The null of a known objective has removed it when the recipes were merged.
        if unknown := [str(name) for name in objectives if name not in active]:
            raise ValueError(
                f"there is no objective {unknown[0]!r} to remove{did_you_mean(unknown[0], active)}"
            )
        for name in active:
            if not MODULE_NAME.fullmatch(str(name)) or hasattr(nn.ModuleDict, str(name)):
                raise ValueError(f"{name!r:.80} cannot be the name of an objective: choose another")
        return {
            name: {"kind": name, **settings} if isinstance(settings, dict) else settings
            for name, settings in active.items()
        }

    @field_validator("ema_decay")
    @classmethod
    def _check_ema_decay(cls, decay: StepValue | None) -> StepValue | None:
        lowest, highest = (0.0, 0.0) if decay is None else decay.value_range()
        if lowest < 0.0 or highest >= 1.0:
            raise ValueError("must be at least 0 and below 1, such as 0.999")
        return decay

    @model_validator(mode="after")
    def _check_positive(self) -> Self:
        if self.schedule.value_range()[0] < 0.0:
            raise ValueError("schedule: a fraction of the learning rate must not be negative")
        smallest = min(phase.batch for phase in self.phases)
        if self.batch_tokens.value_range()[0] * smallest < 1.0:
            raise ValueError("batch_tokens: a step needs at least 1 token")
        if (
            self.batch_tokens.value_range()[1] * max(p.batch for p in self.phases)
            > MAX_BATCH_TOKENS
        ):
            raise ValueError(f"batch_tokens: a step may have at most {MAX_BATCH_TOKENS:,} tokens")
        phases = range(len(self.phases)) if self.objectives else ()
        phase_objectives = [
            item for number in phases for item in self.objectives_of(number).items()
        ]
        for name, objective in (*self.objectives.items(), *phase_objectives):
            if objective.weight.value_range()[0] < 0.0:
                raise ValueError(f"objectives.{name}.weight must not be negative")
        return self

    @model_validator(mode="after")
    def _check_compatibility(self) -> Self:
        check_compatibility(self)
        return self

    def objectives_of(self, phase: int) -> dict[str, Objective]:
        """Return the objectives of a phase, with the phase's settings."""
        overrides = self.phases[phase].objectives
        if overrides is None:
            return self.objectives
        unknown = sorted(set(overrides) - set(self.objectives))
        if unknown:
            raise ValueError(
                f"phases.{phase}.objectives.{unknown[0]} is not one of the recipe's objectives"
            )
        return {
            name: self._changed_objective(name, settings, f"phases.{phase}.objectives.{name}")
            for name, settings in overrides.items()
        }

    def _changed_objective(self, name: str, settings: dict[str, Any], location: str) -> Objective:
        """Return an objective with changed settings; errors name their ``location``."""
        unchanged = self.objectives[name].model_dump(mode="json", by_alias=True)
        try:
            return Objective.parse(merge(unchanged, settings))
        except ValidationError as error:
            raise ValueError(error_message(error.errors()[0], location)) from None
        except ValueError as error:
            raise ValueError(f"{location}: {error}") from None

    def objective_schedule(self, phase: int) -> tuple[ObjectiveGroup, ...]:
        """Return which objectives of a phase share a step, and how often each group runs."""
        return objective_schedule(self.objectives_of(phase))

    def input_format_of(self, phase: int, objectives: Iterable[Objective] = ()) -> InputFormat:
        """Return the input format of a phase, with its length; an objective may have its own."""
        input_format = next(
            (
                objective_format
                for o in objectives
                if (objective_format := o.input_format) is not None
            ),
            self.assembly,
        )
        length = self.phases[phase].length or self.assembly.length
        return (
            input_format
            if input_format.length == length
            else input_format.model_copy(update={"length": length})
        )

    @property
    def data_requirements(self) -> frozenset[DataRequirement]:
        """Return the data or annotations that the recipe needs and not every data set has."""
        objectives = [o for n in range(len(self.phases)) for o in self.objectives_of(n).values()]
        languages = frozenset[DataRequirement](
            {"languages"} if self.encoder.embeddings.languages else ()
        )
        return self.assembly.data_requirements.union(
            languages, *(o.data_requirements for o in objectives)
        )

    def num_blocks_of(self, phase: int) -> int:
        """Return the number of blocks that run in a phase."""
        blocks = len(self.encoder.depth.sublayer_orders())
        return min(max(1, round(self.phases[phase].depth * blocks)), blocks)

    def batch_tokens_at(self, phase: int, phase_progress: float) -> float:
        """Return the tokens per step, padding included, at a progress of a phase."""
        fractions = [phase.fraction for phase in self.phases]
        progress = (sum(fractions[:phase]) + phase_progress * fractions[phase]) / sum(fractions)
        return self.batch_tokens.at(progress) * self.phases[phase].batch

    def num_tokens_of(self, phase: int) -> float:
        """Return the tokens of all steps of a phase, padding included."""
        points = [number / 100 for number in range(101)]
        mean = sum(self.batch_tokens_at(phase, point) for point in points) / len(points)
        return (
            self.steps * mean * self.phases[phase].fraction / sum(p.fraction for p in self.phases)
        )

    @property
    def vector_width(self) -> int:
        """Return the dimension of the vector of a text."""
        projection = self.vectors.projection
        return self.encoder.hidden_widths[-1] if projection is None else projection.width

    def as_dict(self) -> dict[str, Any]:
        """Return plain data, as stored in a model folder."""
        return self.model_dump(mode="json", by_alias=True)

    def as_yaml(self) -> str:
        """Return the fully resolved recipe as YAML; reading it back gives an equal recipe."""
        return yaml.safe_dump(self.as_dict(), sort_keys=False, allow_unicode=True)
