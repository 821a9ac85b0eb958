"""A study: a comparison of arms that differ in one respect and are equal in everything else.

A study is a YAML file with a question and its source, a corpus, arms (a recipe with changes), what
is equal, what is measured, and the expected results.
"""

from collections.abc import Iterable
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Self

import yaml
from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    field_validator,
    model_validator,
)

from bertwright.core.config import Settings, did_you_mean, quote, to_user_error
from bertwright.core.errors import UserError
from bertwright.data.tokenization.tokenizer import TokenizerConfig, WordPieceConfig
from bertwright.models.costs import training_flops
from bertwright.recipes import Recipe
from bertwright.recipes.loading import merge, read_yaml
from bertwright.studies.corpora import Corpus, SampleCorpus
from bertwright.studies.measures import HeldOutMeasure, Measure
from bertwright.training.clock import parse_duration

BENCH_PREFIX = "bench"
"""Prefix of files that studies extend, but which are not studies."""


StudyResults = dict[str, dict[int, dict[str, float]]]
"""Metrics by arm and seed, named ``measure.metric``."""


SET_BY_THE_STUDY = {
    "seed": "every repetition has another one",
    "steps": "their number follows from the equal cost",
}
"""Keys of a recipe that no change may set, with the reason."""


def _require_free_keys(changes: dict[str, Any]) -> dict[str, Any]:
    """Return changes to recipes; ValueError for a key that the study itself sets.

    With one seed for all repetitions, these would be the same run, and their interval would have no
    width.
    """
    for key, reason in SET_BY_THE_STUDY.items():
        if key in changes:
            raise ValueError(f"the study sets {key}, since {reason}: leave it out")
    return changes


RecipeChanges = Annotated[dict[str, Any], AfterValidator(_require_free_keys)]
"""Changes to a recipe, except for what the study sets."""

_CORPUS: TypeAdapter[Corpus] = TypeAdapter(Corpus)
_TOKENIZER: TypeAdapter[TokenizerConfig] = TypeAdapter(TokenizerConfig)


class Arm(Settings):
    """An arm: a recipe and ``changes`` to it."""

    recipe: str
    changes: RecipeChanges = Field(default_factory=dict)
    start_from: str | None = None
    """The arm whose trained model this arm starts from, with the same seed."""
    corpus: dict[str, Any] = Field(default_factory=dict)
    """Changes to the study's corpus, where the text itself is compared."""
    tokenizer: dict[str, Any] = Field(default_factory=dict)
    """Changes to the study's tokenizer."""
    cost: float = Field(default=1.0, gt=0)
    """Factor of the study's equal cost, where the cost itself is compared."""


class EqualCost(Settings):
    """The cost that all arms have in common: steps, tokens, FLOPs or time.

    ``tokens`` include padding, as in ``batch_tokens``.
    """

    steps: int | None = Field(default=None, ge=1)
    tokens: float | None = Field(default=None, gt=0)
    flops: float | None = Field(default=None, gt=0)
    time: str | None = None

    @model_validator(mode="after")
    def _check_one(self) -> Self:
        stated = self.model_dump(exclude_none=True)
        if len(stated) != 1:
            raise ValueError("needs one of steps, tokens, flops, time")
        if self.time is not None:
            try:
                parse_duration(self.time)
            except UserError:
                raise ValueError(f"time {self.time}: write 90s, 20m or 1.5h") from None
        return self

    @property
    def seconds(self) -> float | None:
        """The training time, if time is equal."""
        return None if self.time is None else parse_duration(self.time)

    def num_steps(self, recipe: Recipe, vocab_size: int) -> int | None:
        """Return the number of steps for a recipe; None if time is equal."""
        if self.steps is not None:
            return self.steps
        if self.tokens is not None:
            total = sum(recipe.num_tokens_of(phase) for phase in range(len(recipe.phases)))
            return max(1, round(self.tokens * recipe.steps / total))
        if self.flops is not None:
            total = training_flops(recipe, vocab_size)
            return max(1, round(self.flops * recipe.steps / total))
        return None

    def __str__(self) -> str:
        if self.time is not None:
            return f"{self.time} of training"
        [(name, amount)] = self.model_dump(exclude_none=True).items()
        name = {"tokens": "positions", "flops": "FLOPs"}.get(name, name)
        return f"{amount:,} {name}" if isinstance(amount, int) else f"{amount:.3g} {name}"


class Expectation(Settings):
    """The expectation that one arm's metric is below or above another arm's, or a number.

    ``measure`` is the name of a measure and its metric, such as ``held-out.masked_loss``;
    ``other_measure`` is the metric of the other arm, by default the same. ``margin`` is the minimum
    difference; it is below 0 if almost as good is enough. A difference smaller than ``negligible``
    is none; by default that of the study.
    """

    measure: str
    arm: str
    below: str | float | None = None
    above: str | float | None = None
    other_measure: str | None = None
    margin: float = 0.0
    negligible: float | None = Field(default=None, gt=0)

    model_config = ConfigDict(allow_inf_nan=False)

    @model_validator(mode="after")
    def _check_side(self) -> Self:
        if (self.below is None) == (self.above is None):
            raise ValueError("needs either below or above")
        if self.other_measure is not None and not isinstance(self.baseline, str):
            raise ValueError("other_measure is that of another arm, not of a number: leave it out")
        if self.baseline == self.arm and self.other_measure in (None, self.measure):
            raise ValueError(f"{self.measure} of {self.arm} is compared with itself")
        return self

    @property
    def baseline(self) -> str | float:
        """The arm or the number to compare with."""
        other = self.above if self.below is None else self.below
        assert other is not None, "_check_side checked it"
        return other

    def __str__(self) -> str:
        side = "above" if self.below is None else "below"
        measure = f" in {self.other_measure}" if self.other_measure else ""
        margin = f" by {self.margin:g}" if self.margin else ""
        return f"{self.measure}: {self.arm} {side} {self.baseline}{measure}{margin}"

    @property
    def metric_pair(self) -> tuple[str, str]:
        """The metric of the arm, and that of what it is compared with."""
        return self.measure, self.other_measure or self.measure

    @property
    def metric_names(self) -> tuple[str, ...]:
        """The metrics that are compared."""
        return (self.measure,) if self.other_measure is None else (self.measure, self.other_measure)


class Study(Settings):
    """A study; every run depends only on it and on a seed."""

    name: str
    question: str
    source: str = ""
    system: str = ""
    """Number of the system in the survey that the project follows, such as ``A9``."""
    corpus: Corpus = SampleCorpus()
    tokenizer: TokenizerConfig = WordPieceConfig(vocab_size=4096)
    arms: dict[str, Arm]
    changes: RecipeChanges = Field(default_factory=dict)
    """Changes to every arm, made before the arm's own."""
    equal: EqualCost
    seeds: int = Field(default=3, ge=1)
    measures: dict[str, Measure] = Field(
        default_factory=lambda: {"held-out": HeldOutMeasure()}, min_length=1
    )
    expected: tuple[Expectation, ...] = ()
    negligible: float | None = Field(default=None, gt=0)
    """Differences smaller than this are none; None if every difference counts."""
    bounds: dict[str, tuple[float, float]] = Field(default_factory=dict)
    """Scores of guessing and of perfect predictions, by metric, also of measures that the study
    does not have: two arms close to the same one cannot be compared."""
    shown: tuple[str, ...] = ()
    """Metrics to display in table and plot; if empty, those expected or common to all arms."""

    @classmethod
    def load(cls, name: str | Path) -> "Study":
        """Load a study from a file, or by the name of a built-in study.

        Raises UserError if there is no such study or the file is invalid.
        """
        try:
            return cls.model_validate(_read_yaml(name))
        except ValidationError as error:
            raise to_user_error(error, f"study {name}") from error

    @field_validator("name")
    @classmethod
    def _check_name(cls, name: str) -> str:
        is_readable = name.strip(". ") and name.isprintable() and len(name) <= 200
        if not is_readable or "/" in name or "\\" in name:
            raise ValueError(f"{name!r:.80} cannot be the name of a folder: choose another")
        return name

    @field_validator("bounds")
    @classmethod
    def _check_bounds(
        cls, bounds: dict[str, tuple[float, float]]
    ) -> dict[str, tuple[float, float]]:
        for metric, (lowest, highest) in bounds.items():
            if lowest >= highest:
                raise ValueError(
                    f"{metric}: the score of guessing, {lowest:g}, must be below that of perfect "
                    f"predictions, {highest:g}"
                )
        return bounds

    @model_validator(mode="after")
    def _check_references(self) -> Self:
        if len(self.arms) < 2:
            raise ValueError("arms: a comparison needs at least two")
        for name, measure in self.measures.items():
            self._require_arms(f"measures.{name}.arms", measure.arms or ())
        for expectation in self.expected:
            arms = (expectation.arm, expectation.baseline)
            self._require_arms("expected", [arm for arm in arms if isinstance(arm, str)])
            self._require_measures("expected", expectation.metric_names)
            for arm, metric in zip(arms, expectation.metric_pair, strict=True):
                self._require_measured(arm, metric)
        self._require_measures("shown", self.shown)
        for arm in self.arms.values():
            self._require_arms("start_from", [arm.start_from] if arm.start_from else [])
        return self

    def _require_arms(self, key: str, arms: Iterable[str]) -> None:
        for arm in arms:
            if arm not in self.arms:
                raise ValueError(f"{key}: no arm {arm!r}{did_you_mean(arm, self.arms)}")

    def _require_measured(self, arm: str | float, metric: str) -> None:
        name = metric.partition(".")[0]
        measured = self.measures[name].arms
        if measured is not None and isinstance(arm, str) and arm not in measured:
            raise ValueError(
                f"expected: {metric} of {arm}: measures.{name}.arms leaves {arm} out: add it"
            )

    def _require_measures(self, key: str, metrics: Iterable[str]) -> None:
        for name in metrics:
            measure, dot, metric = name.partition(".")
            if not dot or not metric:
                raise ValueError(f"{key}: {name} names no metric: write it as held-out.masked_loss")
            if measure not in self.measures:
                raise ValueError(
                    f"{key}: no measure {measure!r}{did_you_mean(measure, self.measures)}"
                )

    def recipe(self, arm: str, seed: int, tokenizer_kind: str = "wordpiece") -> Recipe:
        """Return the recipe of an arm for a kind of tokenizer, without a number of steps.

        Raises UserError for a recipe that does not exist and for invalid changes.
        """
        config = self.arms[arm]
        base = {"seed": seed, "text": {"tokenizer": {"kind": tokenizer_kind}}}
        try:
            return Recipe.load(config.recipe, base, self.changes, config.changes)
        except UserError as error:
            raise UserError(f"study {self.name}: arms.{arm}: {error}") from error

    def text_of(self, arm: str) -> tuple[Corpus, TokenizerConfig]:
        """Return the corpus and the tokenizer of an arm.

        Raises UserError for invalid changes.
        """
        config = self.arms[arm]
        corpus = merge(self.corpus.model_dump(mode="json"), config.corpus)
        tokenizer = merge(self.tokenizer.model_dump(mode="json"), config.tokenizer)
        try:
            return _CORPUS.validate_python(corpus), _TOKENIZER.validate_python(tokenizer)
        except ValidationError as error:
            raise to_user_error(error, f"study {self.name}: arms.{arm}") from error

    def negligible_difference(self, expectation: Expectation) -> float | None:
        """Return the size below which a difference is none."""
        return self.negligible if expectation.negligible is None else expectation.negligible

    def bounds_of(self, metric: str) -> tuple[float, float] | None:
        """Return the scores of guessing and of perfect predictions; None if they are unknown."""
        if metric in self.bounds:
            return self.bounds[metric]
        measure, _, name = metric.partition(".")
        return self.measures[measure].bounds_of(name) if measure in self.measures else None

    def as_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return self.model_dump(mode="json", exclude_none=True)


def list_studies() -> list[str]:
    """Return the names of the built-in studies."""
    names = (file.stem for file in _claims_folder().glob("*.yaml"))
    return sorted(name for name in names if not name.startswith(BENCH_PREFIX))


def load_all_studies() -> Iterable[Study]:
    """Return the built-in studies, ordered by system."""

    def order(study: Study) -> tuple[int, str]:
        digits = "".join(c for c in study.system.split(",")[0] if c.isdigit())
        return int(digits or 0), study.name

    return sorted((Study.load(name) for name in list_studies()), key=order)


def _read_yaml(name: str | Path, children: tuple[Path, ...] = ()) -> dict[str, Any]:
    """Return a study's settings, merged into the file it extends; ``children`` extend this one."""
    path = Path(name)
    if path.suffix not in (".yaml", ".yml"):
        path = _claims_folder() / f"{name}.yaml"
        if not path.is_file():
            raise UserError(f"there is no study {name!r}{did_you_mean(str(name), list_studies())}")
    settings = {"name": path.stem, **read_yaml(path)}
    parent = settings.pop("extends", None)
    if parent is None:
        return settings
    if not isinstance(parent, str):
        raise UserError(f"{path}: extends is {quote(parent)}: name a study or a YAML file")
    if path.resolve() in children:
        raise UserError(f"{path}: extends {parent}, which extends it in turn")
    return merge(_read_yaml(parent, (*children, path.resolve())), settings)


def _claims_folder() -> Path:
    return Path(str(resources.files("bertwright.studies"))) / "claims"


def to_yaml(study: Study) -> str:
    """Return a study as YAML."""
    return yaml.safe_dump(study.as_dict(), sort_keys=False, allow_unicode=True)
