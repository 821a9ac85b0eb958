"""A study: arms that differ in what is asked about, and are equal in everything else.

It is a YAML file: a question and where its claim stands, a text, arms (a recipe and changes to it),
what is equal, what is measured, and what the claim says will be seen.
"""

from collections.abc import Iterable
from importlib import resources
from pathlib import Path
from typing import Any, Self

import yaml
from pydantic import ConfigDict, Field, ValidationError, field_validator, model_validator

from bertwright.axes import Settings, did_you_mean, explain
from bertwright.errors import UserError
from bertwright.model.counting import training_arithmetic
from bertwright.recipes import Recipe
from bertwright.recipes.loading import merged, read_yaml
from bertwright.studies.corpora import Corpus, Sample
from bertwright.studies.measures import HeldOut, Measure
from bertwright.text.tokenizers import TokenizerChoice, WordPieceChoice
from bertwright.training.clock import seconds_of

BENCH = "bench"
"""The file of what the studies of claims have in common; it is no study."""


class Arm(Settings):
    """One of the contestants: a recipe, and ``changes`` to it."""

    recipe: str
    changes: dict[str, Any] = Field(default_factory=dict)
    start_from: str | None = None
    """The arm whose model is the first of this one, seed by seed."""


class Equal(Settings):
    """What every arm gets: so many steps, floating-point operations, or so much time; or so many
    ``tokens``, as those of ``batch_tokens``: places of rows, padding included."""

    steps: int | None = Field(default=None, ge=1)
    tokens: float | None = Field(default=None, gt=0)
    operations: float | None = Field(default=None, gt=0)
    time: str | None = None

    @model_validator(mode="after")
    def _one_of_them(self) -> Self:
        stated = self.model_dump(exclude_none=True)
        if len(stated) != 1:
            raise ValueError("needs one of steps, tokens, operations, time")
        if self.time is not None:
            try:
                seconds_of(self.time)
            except UserError:
                raise ValueError(f"time {self.time}: write 90s, 20m or 1.5h") from None
        return self

    @property
    def seconds(self) -> float | None:
        """The time, where it is what is equal."""
        return None if self.time is None else seconds_of(self.time)

    def steps_of(self, recipe: Recipe, vocabulary_size: int) -> int | None:
        """How many steps a recipe gets; None where time is equal."""
        if self.steps is not None:
            return self.steps
        if self.tokens is not None:
            whole = sum(recipe.tokens_of(phase) for phase in range(len(recipe.phases)))
            return max(1, round(self.tokens * recipe.steps / whole))
        if self.operations is not None:
            whole = training_arithmetic(recipe, vocabulary_size)
            return max(1, round(self.operations * recipe.steps / whole))
        return None

    def __str__(self) -> str:
        if self.time is not None:
            return f"{self.time} of training"
        [(name, amount)] = self.model_dump(exclude_none=True).items()
        name = "places" if name == "tokens" else name
        return f"{amount:,} {name}" if isinstance(amount, int) else f"{amount:.3g} {name}"


class Expectation(Settings):
    """What a claim says: a figure of one arm lies below, or above, that of another, or a number.

    ``measure`` is the name of a measure and of one of its figures, ``held-out.masked_loss``; that
    of the other arm is the same, or ``its``. ``by`` is the least distance, less than 0 where almost
    as good is enough.
    """

    measure: str
    arm: str
    below: str | float | None = None
    above: str | float | None = None
    its: str | None = None
    by: float = 0.0

    model_config = ConfigDict(allow_inf_nan=False)

    @model_validator(mode="after")
    def _one_side(self) -> Self:
        if (self.below is None) == (self.above is None):
            raise ValueError("needs either below or above")
        if self.other == self.arm and self.its in (None, self.measure):
            raise ValueError(f"{self.measure} of {self.arm} is compared with itself")
        return self

    @property
    def other(self) -> str | float:
        """The arm or the number that it is compared with."""
        other = self.above if self.below is None else self.below
        assert other is not None, "one of them is stated"
        return other

    def __str__(self) -> str:
        side = "above" if self.below is None else "below"
        its = f" in {self.its}" if self.its else ""
        margin = f" by {self.by:g}" if self.by else ""
        return f"{self.measure}: {self.arm} {side} {self.other}{its}{margin}"

    @property
    def measures(self) -> tuple[str, ...]:
        """The figures that it compares."""
        return (self.measure,) if self.its is None else (self.measure, self.its)


class Study(Settings):
    """Everything that a study is; every run of it is a function of this and of a seed."""

    name: str
    question: str
    source: str = ""
    system: str = ""
    """The number of the system in the survey that the project follows, ``A9``."""
    corpus: Corpus = Sample()
    tokenizer: TokenizerChoice = WordPieceChoice(size=4096)
    arms: dict[str, Arm]
    changes: dict[str, Any] = Field(default_factory=dict)
    """To every arm, before its own."""
    equal: Equal
    seeds: int = Field(default=3, ge=1)
    measures: dict[str, Measure] = Field(
        default_factory=lambda: {"held-out": HeldOut()}, min_length=1
    )
    expected: tuple[Expectation, ...] = ()
    shown: tuple[str, ...] = ()
    """The figures of the table and the picture; none: those that are expected, or shared."""

    @classmethod
    def load(cls, name: str | Path) -> "Study":
        """The study of a file, or one of those that come with the package.

        Errors: UserError for what is not there or cannot be.
        """
        try:
            return cls.model_validate(_read(name))
        except ValidationError as error:
            raise explain(error, f"study {name}") from error

    @field_validator("name")
    @classmethod
    def _names_a_folder(cls, name: str) -> str:
        readable = name.strip(". ") and name.isprintable() and len(name) <= 200
        if not readable or "/" in name or "\\" in name:
            raise ValueError(f"{name!r:.80} cannot be the name of a folder: choose another")
        return name

    @model_validator(mode="after")
    def _names_that_exist(self) -> Self:
        if len(self.arms) < 2:
            raise ValueError("arms: a comparison needs two at least")
        for name, measure in self.measures.items():
            self._require_arms(f"measures.{name}.arms", measure.arms or ())
        for expectation in self.expected:
            named = (expectation.arm, expectation.other)
            self._require_arms("expected", [arm for arm in named if isinstance(arm, str)])
            self._require_measures("expected", expectation.measures)
        self._require_measures("shown", self.shown)
        for arm in self.arms.values():
            self._require_arms("start_from", [arm.start_from] if arm.start_from else [])
        return self

    def _require_arms(self, key: str, arms: Iterable[str]) -> None:
        for arm in arms:
            if arm not in self.arms:
                raise ValueError(f"{key}: no arm {arm!r}{did_you_mean(arm, self.arms)}")

    def _require_measures(self, key: str, figures: Iterable[str]) -> None:
        for name in figures:
            measure, dot, figure = name.partition(".")
            if not dot or not figure:
                raise ValueError(f"{key}: {name} names no figure: write it as held-out.masked_loss")
            if measure not in self.measures:
                raise ValueError(
                    f"{key}: no measure {measure!r}{did_you_mean(measure, self.measures)}"
                )

    def recipe(self, arm: str, seed: int, tokenizer_kind: str = "wordpiece") -> Recipe:
        """The recipe of an arm on text in pieces of this kind, without the number of its steps.

        Errors: UserError for a recipe that is not there, or changes that cannot be.
        """
        chosen = self.arms[arm]
        text = {"tokenizer": {"kind": tokenizer_kind}}
        own = {"seed": seed, "text": text}
        try:
            return Recipe.load(chosen.recipe, own, self.changes, chosen.changes)
        except UserError as error:
            raise UserError(f"study {self.name}: arms.{arm}: {error}") from error

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        return self.model_dump(mode="json", exclude_none=True)


def study_names() -> list[str]:
    """The studies that come with the package."""
    names = (file.stem for file in _claims().glob("*.yaml"))
    return sorted(name for name in names if not name.startswith(BENCH))


def all_studies() -> Iterable[Study]:
    """The same, read, in the order of the systems that they are about."""

    def order(study: Study) -> tuple[int, str]:
        digits = "".join(c for c in study.system.split(",")[0] if c.isdigit())
        return int(digits or 0), study.name

    return sorted((Study.load(name) for name in study_names()), key=order)


def _read(name: str | Path, children: tuple[Path, ...] = ()) -> dict[str, Any]:
    """Return what a study states, merged into what it extends; ``children`` extend it."""
    path = Path(name)
    if path.suffix not in (".yaml", ".yml"):
        path = _claims() / f"{name}.yaml"
        if not path.is_file():
            raise UserError(f"there is no study {name!r}{did_you_mean(str(name), study_names())}")
    stated = {"name": path.stem, **read_yaml(path)}
    parent = stated.pop("extends", None)
    if parent is None:
        return stated
    if path.resolve() in children:
        raise UserError(f"{path}: extends {parent}, which extends it in turn")
    return merged(_read(parent, (*children, path.resolve())), stated)


def _claims() -> Path:
    return Path(str(resources.files("bertwright.studies"))) / "claims"


def as_yaml(study: Study) -> str:
    """A study as a file says it."""
    return yaml.safe_dump(study.as_dict(), sort_keys=False, allow_unicode=True)
