"""What a recipe is: one choice on every axis, and the order of events."""

from pathlib import Path
from typing import Any, Literal, Self

import yaml
from pydantic import Field, field_validator, model_validator

from bertwright.axes import Precision, Settings
from bertwright.encoder.decoder import DecoderChoice
from bertwright.encoder.encoder import EncoderChoice
from bertwright.encoder.positions import Learned
from bertwright.encoder.visibility import is_two_sided
from bertwright.examples.assembly import Assembly, Pair
from bertwright.objectives import Objective, PairQuestion, Ponder
from bertwright.objectives.objective import visibility_of
from bertwright.objectives.output import OutputChoice, Tied
from bertwright.objectives.turns import Turn, turns_of
from bertwright.optimisers.adam import AdamW
from bertwright.optimisers.optimiser import Optimiser
from bertwright.recipes.loading import Change, merged, resolve
from bertwright.schedules import Constant, Value, Warmup
from bertwright.text.tokenizers import TokenizerChoice


class Text(Settings):
    """What text becomes before it is assembled."""

    tokenizer: TokenizerChoice


class Phase(Settings):
    """A stretch of training.

    ``share`` is its part of the steps, or of the time. ``length`` and ``batch_tokens`` replace the
    recipe's. ``depth`` is the share of the blocks that run; where it grows, what has run is copied
    on top of itself (Gong et al. 2019). ``objectives`` names the questions that are asked, each
    with settings that change for this phase; None asks all of the recipe's as they are.
    """

    share: float = Field(default=1.0, gt=0)
    length: int | None = Field(default=None, ge=8)
    batch_tokens: Value | None = None
    depth: float = Field(default=1.0, gt=0.0, le=1.0)
    objectives: dict[str, dict[str, Any]] | None = None


class Recipe(Settings):
    """A point on the axes. Every file states only what it changes; this is what results."""

    name: str
    source: str = ""
    text: Text
    assembly: Assembly
    encoder: EncoderChoice = EncoderChoice()
    decoder: DecoderChoice | None = None
    """A second stack that reads what the encoder has read; None for none."""
    output: OutputChoice = Tied()
    objectives: dict[str, Objective]
    """None at all where an imported encoder came without heads: it can be used, not trained."""
    pooler: bool = False
    """A dense layer for the first place that no objective has; some published encoders have one."""
    phases: tuple[Phase, ...] = (Phase(),)

    optimiser: Optimiser = AdamW()
    schedule: Value = Warmup()
    batch_tokens: Value = Constant(value=4096)
    micro_batch_tokens: int = Field(default=16384, ge=8)
    clip: float | None = Field(default=1.0, gt=0)
    precision: Precision = "bf16"
    compile: Literal["auto", True, False] = "auto"

    steps: int = Field(default=10_000, ge=1)
    seed: int = Field(default=0, ge=0)
    checkpoint_every: int | None = Field(default=None, ge=1)
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
        return {
            name: {"kind": name, **settings} if isinstance(settings, dict) else settings
            for name, settings in asked.items()
        }

    @model_validator(mode="after")
    def _coherent(self) -> Self:
        if self.decoder is not None:
            self.decoder.of(self.encoder)
        if not self.objectives:
            return self
        for number in range(len(self.phases)):
            self._check_phase(number)
        self._check_growth()
        self._check_order()
        return self

    def _check_order(self) -> None:
        if self.encoder.memory and not self.assembly.in_order:
            raise ValueError(
                "encoder.memory needs rows that go on from step to step: set "
                "assembly.kind=contiguous"
            )
        steady = isinstance(self.batch_tokens, Constant) and all(
            phase.length is None and phase.batch_tokens is None for phase in self.phases
        )
        if self.assembly.in_order and not steady:
            raise ValueError("an assembly in the order of the text needs one length and one batch")

    def _check_growth(self) -> None:
        depths = [phase.depth for phase in self.phases]
        if depths != sorted(depths) or depths[-1] != 1.0:
            raise ValueError("phases: depth may only grow from phase to phase, and ends as 1")
        if depths[0] < 1.0 and self.encoder.depth.sharing != "none":
            raise ValueError("phases: blocks that share their parameters cannot be stacked")
        if depths[0] < 1.0 and self.encoder.residual.looks_back:
            raise ValueError("phases: blocks that look back at all before them cannot be stacked")

    def _check_phase(self, number: int) -> None:
        asked = self.objectives_of(number)
        if not asked:
            raise ValueError(f"phases.{number} asks no question: name one of its objectives")
        for turn in self.turns_of(number):
            seen = self.encoder.visibility & visibility_of(list(turn.objectives.values()))
            if self.encoder.embeddings.reads_neighbours and not is_two_sided(seen):
                raise ValueError(
                    f"phases.{number}: encoder.embeddings makes a place of the next piece as well: "
                    f"choose another kind, or objectives that see both sides"
                )
        positions, length = self.encoder.positions, self.assembly_of(number).length
        if isinstance(positions, Learned) and length > positions.size:
            raise ValueError(
                f"phases.{number}: a length of {length} is more than encoder.positions.size "
                f"({positions.size})"
            )
        self._check_decoding(asked)
        pairs = isinstance(self.assembly, Pair)
        if self.encoder.depth.runs_all and any(isinstance(o, Ponder) for o in asked.values()):
            raise ValueError(
                f"phases.{number}: objectives.ponder needs blocks that halt: set "
                f"encoder.depth.kind to halting, or leave it out"
            )
        for name, objective in asked.items():
            if isinstance(objective, PairQuestion) and not pairs:
                raise ValueError(
                    f"objectives.{name} needs pairs: assembly.kind must be segment-pair or "
                    f"sentence-pair, not {self.assembly.kind}"  # type: ignore[attr-defined]
                )

    def _check_decoding(self, asked: dict[str, Objective]) -> None:
        decoding = [name for name, objective in asked.items() if objective.decodes]
        if decoding and self.decoder is None:
            raise ValueError(
                f"objectives.{decoding[0]} needs a decoder: state one, as decoder: {{}}"
            )
        if len(asked) > 1 and any(asked[name].share is None for name in decoding):
            raise ValueError(
                f"objectives.{decoding[0]} rearranges the text, so that no other question can be "
                f"asked of it: ask it in a phase of its own, or give each a share of the steps"
            )
        parted = {"packed": "isolated", "doc-sentences": "packing", "translation-pair": "packing"}
        parts: dict[str, Assembly] = getattr(self.assembly, "parts", {})
        for part in (self.assembly, *parts.values()):
            key = parted.get(part.kind)  # type: ignore[attr-defined]
            if decoding and key is not None and getattr(part, key):
                raise ValueError(f"a decoder reads a row as one text: set assembly {key} to false")

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

    def assembly_of(self, phase: int) -> Assembly:
        """The assembly of a phase, at its length."""
        length = self.phases[phase].length
        return (
            self.assembly if length is None else self.assembly.model_copy(update={"length": length})
        )

    def num_blocks_of(self, phase: int) -> int:
        """How many blocks run in a phase."""
        return max(1, round(self.phases[phase].depth * len(self.encoder.depth.orders())))

    def batch_tokens_of(self, phase: int) -> Value:
        """The tokens of a step in a phase."""
        own = self.phases[phase].batch_tokens
        return self.batch_tokens if own is None else own

    def as_dict(self) -> dict[str, Any]:
        """Plain data: what a model folder stores."""
        return self.model_dump(mode="json", by_alias=True)

    def as_yaml(self) -> str:
        """The fully resolved recipe; reading it back gives an equal one."""
        return yaml.safe_dump(self.as_dict(), sort_keys=False, allow_unicode=True)
