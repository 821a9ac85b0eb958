"""Entering a model by vectors: gradients with respect to what its blocks read."""

from contextlib import AbstractContextManager

import torch
from torch import Tensor

from bertwright.analysis.subject import Subject
from bertwright.encoder.stream import Coordinates

ENTRY = "embeddings.output"


@torch.no_grad()
def entered(subject: Subject, pieces: Tensor, coordinates: Coordinates) -> Tensor:
    """What the blocks read of rows of pieces (B, L): (B, L, D)."""
    with subject.encoder.record(ENTRY) as values:
        subject.encoder(pieces, coordinates, stop_after=0)
    return values[ENTRY]


def entering(subject: Subject, vectors: Tensor) -> AbstractContextManager[None]:
    """Let the blocks read ``vectors`` (B, L, D) in the place of what pieces become."""
    return subject.encoder.replace(ENTRY, lambda own: vectors)
