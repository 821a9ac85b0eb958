"""Requirements of fine-tuning for outputs that a decoder generates."""

from collections.abc import Sequence

from bertwright.core.errors import UserError
from bertwright.models.model import Model
from bertwright.tasks.adapters import FullFineTuningConfig
from bertwright.tasks.finetuning.config import FineTuningConfig
from bertwright.tasks.heads.decoder_head import check_decoder
from bertwright.tasks.outputs import GeneratedOutput
from bertwright.tasks.task import Task


def check_generation(
    model: Model, config: FineTuningConfig, tasks: Sequence[Task], has_teacher: bool
) -> None:
    """Raise UserError for a model or settings that do not allow generated outputs.

    Errors: MissingExtra if a metric needs a library that is not installed.
    """
    generated = [task for task in tasks if isinstance(task.output_type, GeneratedOutput)]
    if not generated:
        if config.label_smoothing is not None:
            raise UserError(
                "label_smoothing is for outputs that a decoder generates: leave it out, or choose "
                "--task text-to-text or --as-text"
            )
        return
    if problem := check_decoder(model.recipe):
        raise UserError(f"task {generated[0].name} generates text, and {problem}")
    settings = {
        "adaptation": not isinstance(config.adaptation, FullFineTuningConfig),
        "adaptation.reinitialised_blocks": config.adaptation.has_reinitialised_blocks,
        "perturbation": config.perturbation is not None,
        "language_model": config.language_model > 0,
        "distillation": has_teacher,
    }
    if unsupported := next((name for name, is_set in settings.items() if is_set), None):
        raise UserError(
            f"{unsupported}: task {generated[0].name} generates text, for which encoder and "
            f"decoder are trained in full: leave it out"
        )
    longest = None if model.decoder is None else model.decoder.max_length
    for task in generated:
        assert isinstance(task.output_type, GeneratedOutput)
        limit = task.output_type.max_target_length
        if longest is not None and limit > longest:
            raise UserError(
                f"output_type.max_target_length is {limit}, and the decoder has {longest} "
                f"positions: set it to {longest} or less"
            )
        task.output_type.require_metric_libraries(task.metrics)
