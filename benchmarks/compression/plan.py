"""Plan of a comparison: tasks of one encoder and variants of compressing it."""

from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, ValidationError, model_validator

from benchmarks.adaptation.plan import AdaptationTask
from bertwright.compression.method import CompressionMethod
from bertwright.core.config import Settings, did_you_mean, to_user_error
from bertwright.recipes.loading import merge, read_yaml
from bertwright.tasks.finetuning.config import FineTuningConfig

ArtefactForm = Literal["float32", "bf16", "int8", "graph", "graph-int8"]
"""Weights in a precision, or an ONNX graph."""


class CompressionVariant(Settings):
    """A way to compress a fine-tuned model; without a ``method`` the model itself.

    Attributes:
        student: a model folder or a recipe; by default the fine-tuned model.
        num_layers: layers of the student.
        with_undistilled: also train the same student without the teacher.
        settings: settings of fine-tuning, for all stages of the method.
        prune_vocabulary: remove the tokens that no training example uses.
        forms: forms that are scored, measured and timed.
        tasks: the tasks to which the variant applies; all by default.
    """

    method: str | None = None
    student: str | None = None
    num_layers: int | None = Field(default=None, ge=1)
    with_undistilled: bool = False
    settings: dict[str, Any] = Field(default_factory=dict[str, Any])
    prune_vocabulary: bool = False
    forms: tuple[ArtefactForm, ...] = Field(default=("float32",), min_length=1)
    tasks: tuple[str, ...] | None = None

    @model_validator(mode="after")
    def _require_method(self) -> Self:
        stated = self.model_fields_set & {"student", "num_layers", "with_undistilled", "settings"}
        if self.method is None and stated:
            raise ValueError(
                f"{', '.join(sorted(stated))}: needs a method: state one, or leave it out"
            )
        return self


class CompressionClaim(Settings):
    """A claim that one variant scores higher than another, on average over tasks.

    Attributes:
        claim: the claim in a sentence.
        variant, above: the two variants.
        undistilled: which of them is trained without its teacher.
        margin: minimum difference in points; below 0 if almost as good is enough.
    """

    claim: str
    source: str
    variant: str
    above: str
    undistilled: Literal["variant", "above"] | None = None
    margin: float = 0.0

    @property
    def comparison(self) -> str:
        """The comparison in words."""
        names = {"variant": self.variant, "above": self.above}
        for side, name in names.items():
            if self.undistilled == side:
                names[side] = f"{name} without its teacher"
        margin = f" by {self.margin:g}" if self.margin else ""
        return f"{names['variant']} above {names['above']}{margin}"


class CompressionPlan(Settings):
    """Every variant on every task.

    Attributes:
        encoder: a model folder; null is all-MiniLM-L6-v2.
        settings: settings of fine-tuning the encoder.
        timed_tasks: tasks whose models are timed, all by default; one is enough where the models
            have the same shapes.
        baseline: a variant without a method; its first form is the reference of all others.
        negligible: points below which a difference is none.
    """

    description: str
    source: str = ""
    encoder: Path | None = None
    tasks: dict[str, AdaptationTask]
    variants: dict[str, CompressionVariant]
    baseline: str
    settings: dict[str, Any] = Field(default_factory=dict[str, Any])
    timed_tasks: tuple[str, ...] | None = None
    seeds: int = Field(default=3, ge=1)
    claims: tuple[CompressionClaim, ...] = ()
    negligible: float | None = Field(default=None, gt=0)

    @model_validator(mode="after")
    def _require_known_names(self) -> Self:
        if self.baseline not in self.variants:
            raise ValueError(
                f"baseline: there is no variant {self.baseline!r}"
                f"{did_you_mean(self.baseline, self.variants)}"
            )
        baseline = self.variants[self.baseline]
        if baseline.method is not None or baseline.tasks is not None:
            raise ValueError(f"baseline: {self.baseline} has a method or tasks: leave them out")
        self._require_tasks("timed_tasks", self.timed_tasks)
        for name, variant in self.variants.items():
            self._require_tasks(f"variants.{name}.tasks", variant.tasks)
            if variant.method is not None:
                CompressionMethod.load(variant.method)
            FineTuningConfig.from_settings(variant.settings)
        for claim in self.claims:
            self._require_variants(claim)
        for task in self.tasks:
            FineTuningConfig.from_settings(self.teacher_settings(task, seed=0))
        return self

    def _require_tasks(self, key: str, tasks: tuple[str, ...] | None) -> None:
        for task in tasks or ():
            if task not in self.tasks:
                raise ValueError(f"{key}: there is no {task!r}{did_you_mean(task, self.tasks)}")

    def _require_variants(self, claim: CompressionClaim) -> None:
        for name in (claim.variant, claim.above):
            if name not in self.variants:
                raise ValueError(
                    f"claims: there is no variant {name!r}{did_you_mean(name, self.variants)}"
                )
        undistilled = {"variant": claim.variant, "above": claim.above, None: None}
        name = undistilled[claim.undistilled]
        if name is not None and not self.variants[name].with_undistilled:
            raise ValueError(f"claims: variants.{name} needs with_undistilled: true")

    @staticmethod
    def load(file: Path) -> "CompressionPlan":
        """Read a plan; UserError names the wrong key."""
        try:
            return CompressionPlan.model_validate(read_yaml(file))
        except ValidationError as error:
            raise to_user_error(error, str(file)) from error

    def teacher_settings(self, task: str, seed: int) -> dict[str, Any]:
        """Return the settings of fine-tuning the encoder for a task."""
        return {**merge(self.settings, self.tasks[task].settings), "seed": seed}
