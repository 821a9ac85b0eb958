"""Requirements of fine-tuning for token weights and for vectors of tokens."""

from collections.abc import Sequence

from bertwright.core.errors import UserError
from bertwright.tasks.finetuning.config import FineTuningConfig
from bertwright.tasks.outputs.vectors.matching import RetrievalOutput
from bertwright.tasks.task import Task


def check_retrieval(config: FineTuningConfig, tasks: Sequence[Task], has_teacher: bool) -> None:
    """Raise UserError for settings that do not allow a head that reads all tokens of texts."""
    task = next((task for task in tasks if isinstance(task.output_type, RetrievalOutput)), None)
    if task is None:
        return
    settings = {
        "adaptation": (
            config.adaptation.has_frozen_encoder,
            "a frozen encoder's features are a summary of each text: choose full or lora",
        ),
        "perturbation": (config.perturbation is not None, "leave it out"),
        "language_model": (config.language_model > 0, "leave it out"),
        "distillation": (
            has_teacher,
            "name the teacher's score differences as label and choose output_type.loss=margin-mse",
        ),
    }
    for name, (is_set, remedy) in settings.items():
        if is_set:
            kind = task.output_type.kind_name()
            raise UserError(
                f"{name}: output type {kind} reads all tokens of queries and documents: {remedy}"
            )
