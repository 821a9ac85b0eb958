"""Limits of packing: settings that need one example per sequence."""

from bertwright.core.errors import UserError
from bertwright.encoder.config import EncoderConfig
from bertwright.tasks.finetuning.config import FineTuningConfig
from bertwright.tasks.heads.task_visibility import isolate_texts


def check_packing(config: FineTuningConfig, encoder: EncoderConfig, is_distilled: bool) -> None:
    """Raise UserError for packed batches if the encoder or a setting needs unpacked examples."""
    if config.batching != "packed":
        return
    settings = {
        "adaptation=frozen computes the features of every example once": (
            config.adaptation.has_frozen_encoder
        ),
        "truncated_backprop reads a text in chunks": config.truncated_backprop is not None,
        "perturbation changes the embeddings of each example": config.perturbation is not None,
        "distillation compares the values of each example with those of a teacher": is_distilled,
    }
    if reason := next((reason for reason, is_set in settings.items() if is_set), None):
        raise UserError(f"batching: packed does not work here: {reason}: choose buckets or padded")
    try:
        isolate_texts(encoder)
    except ValueError as error:
        raise UserError(
            f"batching: packed does not work with this encoder: {error}: choose buckets or padded"
        ) from error
