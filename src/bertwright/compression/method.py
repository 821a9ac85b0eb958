"""How a model is made small: what the student is made of, and what it goes through."""

from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any, Literal, Self, TypeVar

from pydantic import Field, ValidationError, model_validator

from bertwright.axes import Settings, did_you_mean, explain
from bertwright.compression import pruning, quantisation
from bertwright.compression.augmentation import Augmentation
from bertwright.compression.distillation import Distillation
from bertwright.compression.from_nothing import Table
from bertwright.compression.quantisation.mixed import BySharpness
from bertwright.compression.replacement import Replacement
from bertwright.compression.sharing import Sharing
from bertwright.compression.signals import Signal
from bertwright.compression.structure import Removing
from bertwright.compression.students import Taken
from bertwright.compression.transfer.sets import Source
from bertwright.errors import UserError
from bertwright.recipes.loading import merged, read_yaml
from bertwright.schedules import Constant, Value
from bertwright.tasks.fine_tuned import FineTuned
from bertwright.tasks.finetuning_settings import FineTuning
from bertwright.tasks.teaching import Teacher
from bertwright.text.tokenizers import Tokenizer

METHODS = "bertwright.compression.methods"
"""Where their files stand."""

ADAPTATIONS = (pruning, quantisation)
"""Rooms whose adaptations stages may name: they are known when these are imported."""


class Stage(Settings):
    """One training of the student.

    Attributes:
        removing: what goes before it, of a model that has learned the task.
        bits: how many each block is left, by how sharp the loss of such a model is there; None for
            what the settings say.
        texts: it learns from the examples of the task, or from others whose labels nobody knows.
        augmentation: how these are changed into more, None where they are taken as they are.
        signals: what is heard of the teacher, beside the ``labels``, which have a weight, too.
        replacing: how likely blocks of the student run in the place of those of the teacher, None
            where nothing is replaced.
        settings: those of fine-tuning that are not as usual.
    """

    removing: Removing | None = None
    bits: BySharpness | None = None
    texts: Source = "task"
    augmentation: Augmentation | None = None
    signals: tuple[Signal, ...] = ()
    labels: Value = Constant(value=1.0)
    replacing: Value | None = None
    settings: dict[str, Any] = Field(default_factory=dict[str, Any])

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if self.replacing is not None and self.signals:
            raise ValueError("replacing learns from labels alone: leave signals out")
        if not self.signals and self.labels != Constant(value=1.0):
            raise ValueError(
                "labels weighs them beside signals, and there are none: leave labels out, or say "
                "what is heard of the teacher"
            )
        if {"seed", "seeds"} & self.settings.keys():
            raise ValueError("all stages have the seeds of a run: leave seed and seeds out")
        adaptation = FineTuning.of(self.settings).adaptation
        if self.bits is not None and not isinstance(adaptation, quantisation.Quantised):
            raise ValueError("bits are of rounded weights: set settings.adaptation to quantised")
        return self

    def taught_by(self, teacher: FineTuned) -> Teacher | None:
        """What this teacher is to the student, None where it says nothing."""
        if self.replacing is not None:
            return Replacement(teacher, self.replacing)
        return Distillation(teacher, self.signals, self.labels) if self.signals else None


class Method(Settings):
    """A way to make a model small, as it was published.

    ``taken`` are the layers of a model that a student is made of, and usually half of them: the
    first, the last, or evenly some; or those that are ``needed``, without which the fine-tuned
    model loses most. A ``whole`` one begins with all. ``sharing`` makes one of them. Or it begins
    from nothing, by the recipe ``student``; ``table`` says how its vectors of pieces begin then.
    """

    about: str
    source: str
    taken: Taken | Literal["needed"] = "even"
    whole: bool = False
    sharing: Sharing | None = None
    student: str | None = None
    table: Table = "teacher"
    stages: tuple[Stage, ...] = Field(min_length=1)

    def require_read(self, student: Tokenizer, teacher: Tokenizer) -> None:
        """Errors: UserError for a student that has no piece for what stands for hidden words."""
        hidden = teacher.piece(teacher.specials.mask)
        hides = any(stage.augmentation and stage.augmentation.hides for stage in self.stages)
        if hides and student.id(hidden) != student.specials.mask:
            raise UserError(
                f"the teacher hides words as {hidden}, which its student does not read so: set "
                f"hidden of the augmentation to 0, or choose a student with the pieces of its "
                f"teacher"
            )

    def beginning_with(self, usual: Mapping[str, Any]) -> "Method":
        """The same with these settings wherever its stages say nothing."""
        stages = tuple(
            stage.model_copy(update={"settings": merged(usual, stage.settings)})
            for stage in self.stages
        )
        return self.model_copy(update={"stages": stages})

    @property
    def reads_transfer(self) -> bool:
        """Whether a stage learns from texts that nobody has labelled."""
        return any(stage.texts == "transfer" for stage in self.stages)

    @property
    def asks_namer(self) -> bool:
        """Whether a stage changes texts by a model that names words."""
        return any(s.augmentation and s.augmentation.asks_namer for s in self.stages)

    @staticmethod
    def load(name: str) -> "Method":
        """By name, or of a file of one's own.

        Errors: UserError for a method that is not there, or cannot be.
        """
        return read_named(name, METHODS, Method, "method")


Named = TypeVar("Named", bound=Settings)


def names_in(room: str) -> list[str]:
    """The names of the files of a room."""
    files = resources.files(room).iterdir()
    return sorted(Path(file.name).stem for file in files if file.name.endswith(".yaml"))


def read_named(name: str, room: str, kind: type[Named], what: str) -> Named:
    """What a file says, of a room by name, or of one's own by path; ``what`` it is.

    Errors: UserError for what is not there, or cannot be.
    """
    path = Path(name)
    if path.suffix not in (".yaml", ".yml"):
        if name not in names_in(room):
            raise UserError(f"there is no {what} {name!r}{did_you_mean(name, names_in(room))}")
        path = Path(str(resources.files(room).joinpath(f"{name}.yaml")))
    try:
        return kind.model_validate(read_yaml(path))
    except ValidationError as error:
        raise explain(error, f"{what} {name}") from error
