"""What a recipe is: one choice on every axis, and the order of events."""

from pathlib import Path
from typing import Any, Literal, Self

import yaml
from pydantic import Field, field_validator, model_validator

from bertwright.axes import Precision, Settings
from bertwright.encoder.adaptive import Adaptive
from bertwright.encoder.choice import EncoderChoice
from bertwright.encoder.decoder import DecoderChoice
from bertwright.encoder.mixers import AttentionChoice
from bertwright.encoder.positions import Axial, Learned
from bertwright.encoder.visibility import InOrder, is_by_halves, is_empty, is_two_sided
from bertwright.examples.assembly import Assembly
from bertwright.examples.coordinates import Need
from bertwright.objectives import AdaptiveSoftmax, Objective, PairQuestion, Ponder
from bertwright.objectives.hiding import Hiding
from bertwright.objectives.output import OutputChoice, Tied
from bertwright.objectives.turns import Turn, turns_of
from bertwright.optimisers.adam import AdamW
from bertwright.optimisers.optimiser import Optimiser
from bertwright.recipes.loading import Change, merged, resolve
from bertwright.schedules import Constant, Schedule, Value, Warmup
from bertwright.text.tokenizers import TokenizerChoice


class Text(Settings):
    """What text becomes before it is assembled."""

    tokenizer: TokenizerChoice


class Phase(Settings):
    """A stretch of training.

    ``share`` is its part of the steps, or of the time. ``length`` and ``batch_tokens`` replace the
    recipe's. ``depth`` is the share of the blocks that run; where it grows, what has run is copied
    on top of itself (Gong et al. 2019). ``dropout`` multiplies every rate of dropout: 0 leaves it
    out (Lan et al. 2020, section 4.8). ``trained`` is how many of the last levels are trained, None
    for all: 1 for what stands behind the blocks, 2 for the last block too (Howard and Ruder 2018,
    section 3.3). ``objectives`` names the questions that are asked, each with settings that change
    for this phase; None asks all of the recipe's as they are.
    """

    share: float = Field(default=1.0, gt=0)
    length: int | None = Field(default=None, ge=8)
    batch_tokens: Value | None = None
    depth: float = Field(default=1.0, gt=0.0, le=1.0)
    dropout: Value = Constant(value=1.0)
    trained: int | None = Field(default=None, ge=1)
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
    moving_average: Value | None = None
    """The decay of an exponential moving average of the parameters, which evaluations and the saved
    model use; None for none."""
    precision: Precision = "bf16"
    compile: Literal["auto", True, False] = "auto"

    steps: int = Field(default=10_000, ge=1)
    seed: int = Field(default=0, ge=0)
    checkpoint_every: int | None = Field(default=None, ge=1)
    checkpoints_kept: int = Field(default=2, ge=1)
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
    def _coherent(self) -> Self:
        if self.decoder is not None:
            self.decoder.of(self.encoder)
        if not self.objectives:
            return self
        for number in range(len(self.phases)):
            self._check_phase(number)
        self._check_growth()
        self._check_levels()
        self._check_order()
        self._check_tables()
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
        if depths[0] < 1.0 and len(set(self.encoder.widths)) > 1:
            raise ValueError("phases: blocks of different widths cannot be stacked")
        if depths[0] < 1.0 and self.decoder is not None:
            raise ValueError("phases: a decoder cannot be stacked: leave out depth")
        if depths[0] < 1.0 and self.encoder.depth.sharing != "none":
            raise ValueError("phases: blocks that share their parameters cannot be stacked")
        if depths[0] < 1.0 and self.encoder.residual.looks_back:
            raise ValueError("phases: blocks that look back at all before them cannot be stacked")

    def _check_levels(self) -> None:
        levels = len(self.encoder.depth.orders()) + 2
        for number, phase in enumerate(self.phases):
            if phase.trained is not None and phase.trained > levels:
                raise ValueError(f"phases.{number}.trained: there are no more than {levels} levels")
        by_level = self.optimiser.layer_decay < 1.0 or any(p.trained for p in self.phases)
        if by_level and self.decoder is not None:
            raise ValueError(
                "the blocks of a decoder have no levels: leave out optimiser.layer_decay and "
                "trained of phases"
            )
        if by_level and self.encoder.depth.sharing != "none":
            raise ValueError(
                "blocks that share their parameters are one level: leave out "
                "optimiser.layer_decay and trained of phases, or set encoder.depth.sharing=none"
            )

    def _check_phase(self, number: int) -> None:
        asked = self.objectives_of(number)
        if not asked:
            raise ValueError(f"phases.{number} asks no question: name one of its objectives")
        for turn in self.turns_of(number):
            self._check_turn(number, turn)
        positions, length = self.encoder.positions, self.assembly_of(number).length
        if isinstance(positions, Axial | Learned) and length > positions.size:
            key = "size" if isinstance(positions, Learned) else "shape"
            raise ValueError(
                f"phases.{number}: a length of {length} is more than encoder.positions.{key} "
                f"allows ({positions.size})"
            )
        self._check_decoding(asked)
        relations = self.assembly.relations
        if self.encoder.depth.runs_all and any(isinstance(o, Ponder) for o in asked.values()):
            raise ValueError(
                f"phases.{number}: objectives.ponder needs blocks that halt: set "
                f"encoder.depth.kind to halting, or leave it out"
            )
        tasks = self.encoder.embeddings.tasks
        for name, objective in asked.items():
            if objective.task is not None and objective.task >= tasks:
                raise ValueError(
                    f"objectives.{name}.task is {objective.task}, and the encoder knows {tasks}, "
                    f"from 0: set encoder.embeddings.tasks"
                )
            if isinstance(objective, PairQuestion) and relations.isdisjoint(objective.classes):
                raise ValueError(
                    f"objectives.{name} needs {objective.rows_asked}, not {self.assembly.kind}"  # type: ignore[attr-defined]
                )

    def _check_turn(self, number: int, turn: Turn) -> None:
        """What is asked together can be answered by what the places see."""
        seen = self.encoder.visibility & turn.visibility
        listed = list(turn.objectives.items())
        for place, (name, objective) in enumerate(listed):
            reason = objective.misplaced(dict(listed[:place]), dict(listed[place + 1 :]))
            if reason is not None:
                raise ValueError(f"phases.{number}: objectives.{name} {reason}")
        if is_empty(seen):
            raise ValueError(
                f"phases.{number}: objectives.causal.direction and encoder.visibility go opposite "
                f"ways, so that a place sees nothing but itself"
            )
        plain = isinstance(self.encoder.mixer, AttentionChoice) and self.encoder.local is None
        if isinstance(turn.visibility, InOrder) and not (
            plain and is_two_sided(self.encoder.visibility)
        ):
            raise ValueError(
                f"phases.{number}: objectives.permutation asks from places behind the text: set "
                f"encoder.visibility to bidirectional or document, encoder.local to null and "
                f"encoder.mixer.kind to attention"
            )
        if self.encoder.embeddings.reads_neighbours and not is_two_sided(seen):
            raise ValueError(
                f"phases.{number}: encoder.embeddings makes a place of the next piece as well: "
                f"choose another kind, or objectives that see both sides"
            )
        by_halves = is_by_halves(self.encoder.visibility)
        naming = any(o.names_pieces or o.rewrites for o in turn.objectives.values())
        if naming and is_by_halves(turn.visibility) != by_halves:
            raise ValueError(
                f"phases.{number}: objectives.causal.direction both and encoder.visibility "
                f"both-ways need each other, and no other question names pieces beside them"
            )

    def _check_tables(self) -> None:
        """What shares the table of pieces needs one."""
        tables, output = self.encoder.embeddings, self.output
        shared = output.width(self.encoder) - output.own_width(self.encoder)
        if output.tied and shared != self.encoder.table_width:
            raise ValueError(
                f"output meets a table {self.encoder.table_width} wide with states {shared} wide: "
                f"set output.transform to true, or give it tables of its own"
            )
        kind = tables.kind  # type: ignore[attr-defined]
        alike = (
            isinstance(tables, Adaptive)
            and isinstance(output, AdaptiveSoftmax)
            and tables.cutoffs == output.cutoffs
        )
        if output.tied and not tables.one_table and not alike:
            raise ValueError(
                f"output shares the table of pieces, and embeddings {kind} have none that it could "
                f"share: set output.kind to untied, or both to adaptive with the same cutoffs"
            )
        for name, objective in self.objectives.items():
            if objective.shares_table and not tables.one_table:
                raise ValueError(
                    f"objectives.{name} shares the table of pieces, and embeddings {kind} do not "
                    f"have one: set encoder.embeddings.kind to pieces"
                )
            if objective.rewrites and tables.reads_neighbours:
                raise ValueError(
                    f"objectives.{name} shares what is added to the pieces, and embeddings {kind} "
                    f"add it wider: set encoder.embeddings.kind to pieces or factorised"
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
        if decoding and self.assembly.parted_by:
            raise ValueError(
                f"a decoder reads a row as one text: set assembly {self.assembly.parted_by} to "
                f"false"
            )

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

    @property
    def needs(self) -> frozenset[Need]:
        """What it reads that not every data set has."""
        asked = [o for n in range(len(self.phases)) for o in self.objectives_of(n).values()]
        selections = [o.selection.needs for o in asked if isinstance(o, Hiding)]
        languages = frozenset[Need]({"languages"} if self.encoder.embeddings.languages else ())
        return self.assembly.needs.union(languages, *selections, *(o.needs for o in asked))

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
