"""Compression methods: how a student is built, and the stages of its training."""

from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any, Literal, Self, TypeVar

from pydantic import Field, ValidationError, model_validator

from bertwright.compression import pruning
from bertwright.compression.distillation.augmentation import Augmentation
from bertwright.compression.distillation.fine_tuning_loss import TeacherTaskDistillation
from bertwright.compression.distillation.losses import DistillationTermConfig
from bertwright.compression.distillation.transfer.transfer_sets import ExampleSource
from bertwright.compression.module_replacement import ModuleReplacement
from bertwright.compression.parameter_sharing import ParameterSharing
from bertwright.compression.pruning.importance import StructuredPruning
from bertwright.compression.pruning.layers import LayerStrategy
from bertwright.compression.quantization.sharpness import MixedPrecision
from bertwright.core.config import Settings, did_you_mean, to_user_error
from bertwright.core.errors import UserError
from bertwright.core.schedules import ConstantSchedule, NumberOrSchedule
from bertwright.data.tokenization.tokenizer import Tokenizer
from bertwright.recipes.loading import merge, read_yaml
from bertwright.tasks.adapters import Quantization
from bertwright.tasks.fine_tuned_model import FineTunedModel
from bertwright.tasks.finetuning.build_run import TaskDistillation
from bertwright.tasks.finetuning.config import FineTuningConfig

METHODS_PACKAGE = "bertwright.compression.methods"
"""Package with the method files."""

ADAPTATION_MODULES = (pruning,)
"""Packages whose import registers the adaptations that stages can name."""

EmbeddingInit = Literal["teacher", "random"]


class CompressionStage(Settings):
    """One training stage of the student.

    Attributes:
        structured_pruning: heads and units to remove before the stage, from a model that has
            learned the task.
        mixed_precision: bits per block, chosen by the sharpness of the loss; None for the bits in
            ``settings``.
        examples: the labelled examples of the task, or unlabelled texts.
        augmentation: how the examples are augmented; None for no augmentation.
        losses: the distillation losses.
        objective_weight: weight of the loss on the labels.
        replacement_probability: probability that a student block runs instead of the teacher blocks
            that it replaces; None for no module replacement.
        settings: fine-tuning settings that differ from the defaults.
    """

    structured_pruning: StructuredPruning | None = None
    mixed_precision: MixedPrecision | None = None
    examples: ExampleSource = "task"
    augmentation: Augmentation | None = None
    losses: tuple[DistillationTermConfig, ...] = ()
    objective_weight: NumberOrSchedule = ConstantSchedule(value=1.0)
    replacement_probability: NumberOrSchedule | None = None
    settings: dict[str, Any] = Field(default_factory=dict[str, Any])

    @model_validator(mode="after")
    def _check_consistency(self) -> Self:
        if self.replacement_probability is not None and self.losses:
            raise ValueError("replacement_probability trains on labels alone: leave losses out")
        if not self.losses and self.objective_weight != ConstantSchedule(value=1.0):
            raise ValueError(
                "objective_weight weighs the labels against losses, and there are none: leave "
                "objective_weight out, or state losses"
            )
        if {"seed", "seeds"} & self.settings.keys():
            raise ValueError("all stages use the seeds of the run: leave seed and seeds out")
        adaptation = FineTuningConfig.from_settings(self.settings).adaptation
        if self.mixed_precision is not None and not isinstance(adaptation, Quantization):
            raise ValueError(
                "mixed_precision needs quantized weights: set settings.adaptation to quantised"
            )
        return self

    def distillation(self, teacher: FineTunedModel) -> TaskDistillation | None:
        """Return the distillation from this teacher; None for a stage without one."""
        if self.replacement_probability is not None:
            return ModuleReplacement(teacher, self.replacement_probability)
        if not self.losses:
            return None
        return TeacherTaskDistillation(teacher, self.losses, self.objective_weight)


class CompressionMethod(Settings):
    """A published way to compress a model.

    Attributes:
        layer_selection: which layers of a model the student takes, by default half of them: the
            first, the last, evenly spaced ones, or the most important ones, whose removal raises
            the loss of the fine-tuned model most.
        keep_all_layers: take all layers.
        sharing: share parameters between blocks.
        student: the recipe of a student that starts untrained.
        student_embeddings: how the embedding table of such a student is initialised.
    """

    description: str
    source: str
    layer_selection: LayerStrategy | Literal["important"] = "even"
    keep_all_layers: bool = False
    sharing: ParameterSharing | None = None
    student: str | None = None
    student_embeddings: EmbeddingInit = "teacher"
    stages: tuple[CompressionStage, ...] = Field(min_length=1)

    def require_mask_token(self, student: Tokenizer, teacher: Tokenizer) -> None:
        """Raise UserError if augmentation inserts a mask token that the student does not have."""
        mask_token = teacher.id_to_token(teacher.special_tokens.mask)
        inserts_masks = any(
            stage.augmentation and stage.augmentation.inserts_masks for stage in self.stages
        )
        if inserts_masks and student.token_to_id(mask_token) != student.special_tokens.mask:
            raise UserError(
                f"the augmentation masks words as {mask_token}, which is not the mask token of the "
                f"student: set mask_probability of the augmentation to 0, or choose a student with "
                f"the tokenizer of its teacher"
            )

    def with_defaults(self, defaults: Mapping[str, Any]) -> "CompressionMethod":
        """Return the method with defaults for settings that its stages do not set."""
        stages = tuple(
            stage.model_copy(update={"settings": merge(defaults, stage.settings)})
            for stage in self.stages
        )
        return self.model_copy(update={"stages": stages})

    @property
    def uses_unlabelled(self) -> bool:
        """True if a stage trains on unlabelled texts."""
        return any(stage.examples == "unlabelled" for stage in self.stages)

    @property
    def needs_augmenter(self) -> bool:
        """True if a stage augments texts with a masked language model."""
        return any(s.augmentation and s.augmentation.needs_augmenter for s in self.stages)

    @staticmethod
    def load(name: str) -> "CompressionMethod":
        """Load a method by its name, or from a file by its path.

        Raises UserError if there is no such method or the file is invalid.
        """
        return load_resource(name, METHODS_PACKAGE, CompressionMethod, "method")


SettingsT = TypeVar("SettingsT", bound=Settings)


def resource_names(package: str) -> list[str]:
    """Return the names of the YAML files in a package."""
    files = resources.files(package).iterdir()
    return sorted(Path(file.name).stem for file in files if file.name.endswith(".yaml"))


def load_resource(
    name: str, package: str, settings_class: type[SettingsT], description: str
) -> SettingsT:
    """Load settings from a file in a package, by name, or from any file, by path.

    ``description`` names the kind of file in errors. Raises UserError if there is no such file or
    it is invalid.
    """
    path = Path(name)
    if path.suffix not in (".yaml", ".yml"):
        if name not in resource_names(package):
            raise UserError(
                f"there is no {description} {name!r}{did_you_mean(name, resource_names(package))}"
            )
        path = Path(str(resources.files(package).joinpath(f"{name}.yaml")))
    try:
        return settings_class.model_validate(read_yaml(path))
    except ValidationError as error:
        raise to_user_error(error, f"{description} {name}") from error
