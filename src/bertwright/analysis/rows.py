"""A text as a row of its own."""

import torch
from torch import Tensor

from bertwright.analysis.subject import Subject
from bertwright.analysis.texts import ReadText
from bertwright.encoder.stream import Coordinates


def row_of(subject: Subject, text: ReadText) -> tuple[Tensor, Coordinates]:
    """Its pieces (1, T) and their coordinates, as the encoder reads them among others."""
    device = subject.text_model.device
    pieces = torch.tensor([text.pieces], device=device)
    plain = Coordinates.plain(pieces)
    if not text.segmented:
        return pieces, plain
    return pieces, Coordinates(plain.place, segment=torch.tensor([text.parts], device=device))
