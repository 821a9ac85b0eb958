"""Gates of heads: what a head writes is multiplied with a number; where blocks share their weights,
each application has gates of its own."""

from contextlib import AbstractContextManager

import torch
from torch import Tensor

from bertwright.analysis.subject import Subject

SITE = "attention.context"


def gated(subject: Subject, gates: Tensor) -> AbstractContextManager[None]:
    """Multiply what heads read by ``gates`` (layers, H), or (layers, B, H) for each text of a
    batch."""
    return subject.encoder.gate(
        {f"blocks.{n}.{SITE}": own[..., None, None] for n, own in enumerate(gates)}
    )


def open_gates(subject: Subject) -> Tensor:
    """All 1: (layers, H)."""
    return torch.ones(
        subject.num_layers,
        subject.num_heads,
        dtype=subject.text_model.model.embedding.dtype,
        device=subject.text_model.device,
    )
