"""What a recipe is: one choice on every axis, and the order of events."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, Self

import yaml
from pydantic import Field, field_validator, model_validator
from torch import nn

from bertwright.axes import Precision, Settings, did_you_mean
from bertwright.encoder.choice import EncoderChoice
from bertwright.encoder.decoder import DecoderChoice
from bertwright.examples.assembly import Assembly
from bertwright.examples.coordinates import Need
from bertwright.objectives import Objective
from bertwright.objectives.output import OutputChoice, Tied
from bertwright.objectives.turns import Turn, turns_of
from bertwright.optimisers.adam import AdamW
from bertwright.optimisers.optimiser import Optimiser
from bertwright.recipes.coherence import check
from bertwright.recipes.loading import Change, merged, resolve
from bertwright.schedules import Constant, Schedule, Value, Warmup
from bertwright.text.tokenizers import TokenizerChoice

Pooling = Literal["mean", "cls"]

MAX_BATCH_TOKENS = 1 << 26
"""Tokens of one step, which are laid out in memory at once."""

MODULE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 _-]{0,63}")
"""The name of an objective, which is that of its head in a file of weights."""


class Text(Settings):
    """What text becomes before it is assembled."""

    tokenizer: TokenizerChoice


class Vectors(Settings):
    """The vector of a text: the ``mean`` over the states of its pieces, or that of the first
    (``cls``); ``longest`` is the longest row of one, where that is less than the encoder takes.

    The others are settings of a folder of sentence-transformers, by its names, which ``embed``
    leaves to its caller and an export keeps: whether vectors are scaled to length 1
    (``normalise``), the ``prompts`` before texts and which of them is the default, to how many
    numbers vectors are truncated, and how two of them are compared.
    """

    pooling: Pooling = "mean"
    longest: int | None = Field(default=None, ge=1, le=1 << 20)
    normalise: bool = False
    prompts: dict[str, str] = Field(default_factory=dict[str, str])
    default_prompt_name: str | None = None
    truncate_dim: int | None = Field(default=None, ge=1)
    similarity_fn_name: str | None = None

    @property
    def default_prompt(self) -> str:
        """What stands before a text for which no prompt is named."""
        return self.prompts[self.default_prompt_name] if self.default_prompt_name else ""

    @model_validator(mode="after")
    def _knows_its_prompt(self) -> Self:
        if self.default_prompt_name and self.default_prompt_name not in self.prompts:
            raise ValueError(
                f"default_prompt_name: there is no prompt {self.default_prompt_name!r}"
                f"{did_you_mean(self.default_prompt_name, self.prompts)}"
            )
        return self


class Phase(Settings):
    """A stretch of training.

    ``share`` is its part of the steps, or of the time. ``length`` replaces that of the assembly;
    ``batch`` multiplies the recipe's ``batch_tokens``. ``depth`` is the share of the blocks that
    run; where it grows, what has run is copied on top of itself (Gong et al. 2019). ``dropout``
    multiplies every rate of dropout: 0 leaves it out (Lan et al. 2020, section 4.8). ``trained`` is
    how many of the last levels are trained, None for all: 1 for what stands behind the blocks, 2
    for the last block too (Howard and Ruder 2018, section 3.3). ``objectives`` names the questions
    that are asked, each with settings that change for this phase; None asks all of the recipe's as
    they are.
    """

    share: float = Field(default=1.0, gt=0)
    length: int | None = Field(default=None, ge=8, le=1 << 20)
    batch: float = Field(default=1.0, gt=0, le=65_536)
    depth: float = Field(default=1.0, gt=0.0, le=1.0)
    dropout: Value = Constant(value=1.0)
    trained: int | None = Field(default=None, ge=1, le=1_024)
    objectives: dict[str, dict[str, Any]] | None = None

    @field_validator("dropout")
    @classmethod
    def _is_a_share(cls, dropout: Schedule) -> Schedule:
        lowest, highest = dropout.extremes()
        if lowest < 0.0 or highest > 1.0:
            raise ValueError("multiplies the rates of the recipe: it lies between 0 and 1")
        return dropout


class Recipe(Settings):
    """A point on the axes. Every file states only what it changes; this is what results."""

    name: str
    source: str = ""
    family: str = ""
    """The model_type of the stock classes that it was imported from: export writes the same."""
    text: Text
    assembly: Assembly
    encoder: EncoderChoice = EncoderChoice()
    decoder: DecoderChoice | None = None
    """A second stack that reads what the encoder has read; None for none."""
    output: OutputChoice = Tied()
    objectives: dict[str, Objective]
    """None at all where an imported encoder came without heads: it can be used, not trained."""
    vectors: Vectors = Vectors()
    pooler: bool = False
    """A dense layer for the first place that no objective has; some published encoders have one."""
    phases: tuple[Phase, ...] = Field(default=(Phase(),), min_length=1, max_length=4_096)

    optimiser: Optimiser = AdamW()
    schedule: Value = Warmup()
    batch_tokens: Value = Constant(value=4096)
    micro_batch_tokens: int = Field(default=16384, ge=8, le=1 << 26)
    clip: float | None = Field(default=1.0, gt=0)
    moving_average: Value | None = None
    """The decay of an exponential moving average of the parameters, which evaluations and the saved
    model use; None for none."""
    precision: Precision | None = None
    """None: bf16 where the device multiplies it natively, else float32; a run keeps to what it
    began with."""
    compile: Literal["auto", True, False] = "auto"

    steps: int = Field(default=10_000, ge=1, le=10**12)
    seed: int = Field(default=0, ge=0)
    checkpoint_every: int | None = Field(default=None, ge=1)
    checkpoints_kept: int = Field(default=2, ge=1, le=65_536)
    """The last ones; the best is kept beside them."""
    evaluate_every: int | None = Field(default=None, ge=1)

    @staticmethod
    def load(name: str | Path, *changes: Change) -> "Recipe":
        """A recipe by its name or its YAML file, with changes: ``key.path=value`` or mappings.

        Errors: UserError that names the key and, where one is near, what was probably meant.
        """
        return resolve(name, changes, Recipe)

    @field_validator("objectives", mode="before")
    @classmethod
    def _kind_is_name(cls, objectives: Any) -> Any:
        if not isinstance(objectives, dict):
            return objectives
        asked = {name: s for name, s in objectives.items() if s is not None}
        for name in asked:
            if not MODULE_NAME.fullmatch(str(name)) or hasattr(nn.ModuleDict, str(name)):
                raise ValueError(f"{name!r:.80} cannot be the name of an objective: choose another")
        return {
            name: {"kind": name, **settings} if isinstance(settings, dict) else settings
            for name, settings in asked.items()
        }

    @field_validator("moving_average")
    @classmethod
    def _decays(cls, decay: Schedule | None) -> Schedule | None:
        lowest, highest = (0.0, 0.0) if decay is None else decay.extremes()
        if lowest < 0.0 or highest >= 1.0:
            raise ValueError("a decay lies between 0 and 1, such as 0.999")
        return decay

    @model_validator(mode="after")
    def _above_nothing(self) -> Self:
        if self.schedule.extremes()[0] < 0.0:
            raise ValueError("schedule: a share of the rate is not below 0")
        smallest = min(phase.batch for phase in self.phases)
        if self.batch_tokens.extremes()[0] * smallest < 1.0:
            raise ValueError("batch_tokens: a step has at least 1 token")
        if self.batch_tokens.extremes()[1] * max(p.batch for p in self.phases) > MAX_BATCH_TOKENS:
            raise ValueError(f"batch_tokens: a step has at most {MAX_BATCH_TOKENS:,} tokens")
        phases = range(len(self.phases)) if self.objectives else ()
        asked = [each for number in phases for each in self.objectives_of(number).items()]
        for name, objective in (*self.objectives.items(), *asked):
            if objective.weight.extremes()[0] < 0.0:
                raise ValueError(f"objectives.{name}.weight is not below 0")
        return self

    @model_validator(mode="after")
    def _coherent(self) -> Self:
        check(self)
        return self

    def objectives_of(self, phase: int) -> dict[str, Objective]:
        """The questions that a phase asks, with its settings."""
        chosen = self.phases[phase].objectives
        if chosen is None:
            return self.objectives
        unknown = sorted(set(chosen) - set(self.objectives))
        if unknown:
            raise ValueError(f"phases.{phase}.objectives.{unknown[0]} is not one of objectives")
        return {
            name: Objective.choose(
                merged(self.objectives[name].model_dump(mode="json", by_alias=True), settings)
            )
            for name, settings in chosen.items()
        }

    def turns_of(self, phase: int) -> tuple[Turn, ...]:
        """Which of them are asked together, and how often."""
        return turns_of(self.objectives_of(phase))

    def assembly_of(self, phase: int, asked: Iterable[Objective] = ()) -> Assembly:
        """The assembly of a phase, at its length: for these questions, where one of them has rows
        of its own."""
        own = next((rows for o in asked if (rows := o.own_rows) is not None), self.assembly)
        length = self.phases[phase].length or self.assembly.length
        return own if own.length == length else own.model_copy(update={"length": length})

    @property
    def needs(self) -> frozenset[Need]:
        """What it reads that not every data set has."""
        asked = [o for n in range(len(self.phases)) for o in self.objectives_of(n).values()]
        languages = frozenset[Need]({"languages"} if self.encoder.embeddings.languages else ())
        return self.assembly.needs.union(languages, *(o.needs for o in asked))

    def num_blocks_of(self, phase: int) -> int:
        """How many blocks run in a phase."""
        blocks = len(self.encoder.depth.orders())
        return min(max(1, round(self.phases[phase].depth * blocks)), blocks)

    def batch_tokens_at(self, phase: int, phase_progress: float) -> float:
        """The places of a step, padding included, at a progress of a phase."""
        shares = [phase.share for phase in self.phases]
        progress = (sum(shares[:phase]) + phase_progress * shares[phase]) / sum(shares)
        return self.batch_tokens.at(progress) * self.phases[phase].batch

    def tokens_of(self, phase: int) -> float:
        """The places of all steps of a phase, padding included."""
        points = [number / 100 for number in range(101)]
        mean = sum(self.batch_tokens_at(phase, point) for point in points) / len(points)
        return self.steps * mean * self.phases[phase].share / sum(p.share for p in self.phases)

    def as_dict(self) -> dict[str, Any]:
        """Plain data: what a model folder stores."""
        return self.model_dump(mode="json", by_alias=True)

    def as_yaml(self) -> str:
        """The fully resolved recipe; reading it back gives an equal one."""
        return yaml.safe_dump(self.as_dict(), sort_keys=False, allow_unicode=True)
