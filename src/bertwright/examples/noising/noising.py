"""The axis of noising, and how the targets of a decoder lie beside the rows of its encoder.

The rows keep their length L, whatever is taken out of them, and every row has the same number T of
targets, those behind its last of weight 0: a step never changes shape.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from bertwright.axes import Choice
from bertwright.errors import UserError
from bertwright.examples.coordinates import Coordinates, Rows
from bertwright.examples.questions import Question
from bertwright.examples.vocabulary import Vocabulary
from bertwright.randomness import Draw

if TYPE_CHECKING:
    from bertwright.text.tokenizers import Specials

Places = NDArray[np.int64]


class Noising(Choice):
    """The axis. ``begins`` is the special piece that a decoder is given before its first target."""

    begins: Literal["pad", "start", "end", "mask"] = "pad"

    rearranges: ClassVar[bool] = True
    """Whether what stays comes to stand elsewhere than in the text."""

    @property
    def masking_rate(self) -> float | None:
        """The fraction of a text that is masked, halfway through training; None where none is."""
        return None

    def noised(
        self, rows: Rows, vocabulary: Vocabulary, draw: Draw, progress: float
    ) -> tuple[Rows, Question]:
        """The damaged rows, and the question of what undoes the damage: in ``beside``, ``given`` is
        the piece before each target, ``position`` where it stands, if that is not its number among
        the targets, and ``language`` its language, if the rows know theirs."""
        raise TypeError(f"{type(self).__name__} is an axis, not a noising")

    def targets(self, length: int) -> int:
        """T, for rows of a length."""
        raise TypeError(f"{type(self).__name__} is an axis, not a noising")

    def positions(self, length: int) -> int:
        """How many positions the targets of rows of a length may have."""
        return self.targets(length)

    def first(self, source: Sequence[int], specials: "Specials") -> int:
        """The position of the first target, of a text that someone else has damaged."""
        return 0

    def ask(
        self, targets: "Targets", shown: Rows, vocabulary: Vocabulary, hidden: tuple[int, int]
    ) -> Question:
        """The question of these targets, each to be named when those before it are known; of so
        many places so many were ``hidden``."""
        begin = getattr(vocabulary.specials, self.begins)
        given = np.full_like(targets.piece, begin)
        given[:, 1:] = np.where(targets.real, targets.piece, begin)[:, :-1]
        beside = {"given": given.ravel()}
        if targets.position is not None:
            beside["position"] = targets.position.ravel()
        if shown.coordinates.language is not None:
            language = np.take_along_axis(shown.coordinates.language, targets.where, axis=1)
            beside["language"] = language.astype(np.int64).ravel()
        num_rows, length = shown.pieces.shape
        flat = targets.where + length * np.arange(num_rows)[:, None]
        predicted = targets.real
        if targets.skipped is not None:
            predicted = predicted & ~targets.skipped
        weight = predicted.astype(np.float32).ravel()
        return Question(flat.ravel(), targets.piece.ravel(), weight, beside, hidden)


@dataclass(frozen=True, slots=True, eq=False)
class Targets:
    """What a decoder is asked for, row by row; each array is (B, T).

    - ``piece``: int64
    - ``real``: bool, whether it is one of the targets of the row, which come first
    - ``where``: int64, the place in the damaged row that it has to do with
    - ``position``: int64, where it stands in the text; None for its number among the targets
    - ``skipped``: bool, targets that are given to the decoder and never predicted; None for none
    """

    piece: Places
    real: NDArray[np.bool_]
    where: Places
    position: Places | None = None
    skipped: NDArray[np.bool_] | None = None


def rearranged(rows: Rows, pieces: Places, source: Places, real: NDArray[np.bool_]) -> Rows:
    """Rows with other pieces (B, L): each stands for the place ``source`` (B, L) of the text, where
    it is ``real`` (B, L). Positions count anew; words and sentences are known no longer."""
    language = rows.coordinates.language
    if language is not None:
        language = np.take_along_axis(language, source, axis=1)
    document = np.where(real, np.int32(0), np.int32(-1))
    return replace(
        rows,
        pieces=pieces.astype(np.int32),
        coordinates=Coordinates(document=document, language=language),
        special=np.take_along_axis(rows.special, source, axis=1) | ~real,
        cut=None,
    )


def require_plain(rows: Rows) -> None:
    """UserError where rows hold more than one text."""
    if rows.relation is not None:
        raise UserError("objectives.denoising damages one text: choose an assembly without pairs")
