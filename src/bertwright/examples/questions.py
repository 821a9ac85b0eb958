"""Questions: which places are asked, and what the right answers are.

A question does not know who answers. One that hides something also returns the rows to show.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from bertwright.errors import UserError
from bertwright.examples.coordinates import RELATIONS, Relation, Rows
from bertwright.examples.corruption import Corruption
from bertwright.examples.selection import Selection
from bertwright.examples.vocabulary import Vocabulary
from bertwright.randomness import Draw


@dataclass(frozen=True, slots=True, eq=False)
class Question:
    """M places, the same number in every step, row after row.

    - ``where``: (M,) int64, flat places in the B * L of the rows
    - ``target``: (M,) int64, the right answers
    - ``weight``: (M,) float32, 0 for fillers, which only keep M what it is
    - ``beside``: what else the answer depends on, by name: (M,) int64 each
    - ``hidden``: how many places were hidden, and of how many, where those are not the M
    """

    where: NDArray[np.int64]
    target: NDArray[np.int64]
    weight: NDArray[np.float32]
    beside: Mapping[str, NDArray[np.int64]] = field(default_factory=dict[str, NDArray[np.int64]])
    hidden: tuple[int, int] | None = None


def hide(
    rows: Rows,
    selection: Selection,
    corruption: Corruption,
    vocabulary: Vocabulary,
    draw: Draw,
    progress: float,
) -> tuple[Rows, Question]:
    """Choose places, corrupt them, and ask for what stood there.

    Returns the rows to show and the question.
    """
    draw = draw.in_epoch(corruption.visit(draw.epoch))
    chosen = selection.select(rows, vocabulary, draw.named("selection"), progress)
    shown = corruption.corrupt(rows, chosen, vocabulary, draw.named("corruption"))
    return replace(rows, pieces=shown), ask_pieces(rows, chosen.where, chosen.weight)


def next_pieces(rows: Rows) -> Question:
    """Ask at every place but the last for the piece that follows it (causal language model).

    A place counts if the next one is real and of the same document; the end of a document is a
    piece to predict, the end of a row that was cut within one is not, nor a special token that the
    text spells. Those that do not count have weight 0.
    """
    where, weight = _with_a_next(rows)
    if rows.cut is not None:
        weight[rows.cut[:, 1:]] = 0
    weight[rows.spelled[:, 1:]] = 0
    return ask_pieces(rows, where, weight, shift=1)


def every_place(rows: Rows) -> Question:
    """Every place, those that are not real with weight 0; there is nothing to answer."""
    where = np.arange(rows.pieces.size)
    return Question(where, np.zeros_like(where), rows.real.ravel().astype(np.float32))


def every_step(rows: Rows) -> Question:
    """Every place that another of the same document follows; there is nothing to answer."""
    question = ask_pieces(rows, *_with_a_next(rows))
    return replace(question, target=np.zeros_like(question.target))


def previous_pieces(rows: Rows) -> Question:
    """Ask at every place for the piece before it: :func:`next_pieces` read backwards."""
    where, weight = _with_a_next(rows)
    if rows.cut is not None:
        weight[rows.cut[:, :-1]] = 0
    weight[rows.spelled[:, :-1]] = 0
    return ask_pieces(rows, where + 1, weight, shift=-1)


def both_neighbours(rows: Rows) -> Question:
    """Ask for the next pieces, then for the previous ones; ``beside`` holds in ``behind`` whether
    the asked piece stands behind the place (1) or before it (0)."""
    after, before = next_pieces(rows), previous_pieces(rows)
    behind = np.repeat(np.array([1, 0], np.int64), [len(after.where), len(before.where)])
    return Question(
        np.concatenate((after.where, before.where)),
        np.concatenate((after.target, before.target)),
        np.concatenate((after.weight, before.weight)),
        {"behind": behind},
    )


def _with_a_next(rows: Rows) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """The places (B, L - 1) but the last, and weight 1 for those that a real one of the same
    document follows."""
    document = rows.coordinates.document
    num_rows, length = rows.pieces.shape
    counts = np.ones((num_rows, length - 1), np.bool_)
    if document is not None:
        counts = (document[:, 1:] == document[:, :-1]) & (document[:, 1:] >= 0)
    return np.broadcast_to(np.arange(length - 1), counts.shape), counts.astype(np.float32)


def sentence_relation(rows: Rows, classes: Sequence[Relation]) -> Question:
    """Ask at the first place of each row what its texts are to each other, one of ``classes``.

    A row of a relation that is none of them weighs nothing.
    """
    if rows.relation is None:
        raise UserError(
            "a question about several texts needs rows that have them: choose the assembly "
            "segment-pair, sentence-pair or dialogue"
        )
    label = np.array([classes.index(r) if r in classes else -1 for r in RELATIONS])
    target = label[rows.relation]
    num_rows, length = rows.pieces.shape
    where = length * np.arange(num_rows, dtype=np.int64)
    return Question(where, np.maximum(target, 0), (target >= 0).astype(np.float32))


def span_boundary(rows: Rows, hidden: Question, longest: int) -> Question:
    """Ask once more for what is hidden, by the two places around the run that it stands in.

    ``beside`` holds the flat places ``left`` and ``right`` and the ``offset`` within the run, from
    0. A run that touches a special token or an end of its row weighs nothing, nor does what lies
    beyond ``longest``.
    """
    num_places = rows.pieces.size
    flat = np.arange(num_places)
    chosen = np.zeros(num_places, np.bool_)
    chosen[hidden.where[hidden.weight > 0]] = True
    special = rows.special.ravel()
    left = np.maximum.accumulate(np.where(chosen, 0, flat))[hidden.where]
    right = np.minimum.accumulate(np.where(chosen, num_places - 1, flat)[::-1])[::-1][hidden.where]
    offset = hidden.where - left - 1
    length = rows.pieces.shape[1]
    around = ~chosen[left] & ~chosen[right] & (left // length == right // length)
    counts = (hidden.weight > 0) & around & ~special[left] & ~special[right] & (offset < longest)
    beside = {"left": left, "right": right, "offset": np.clip(offset, 0, longest - 1)}
    return Question(hidden.where, hidden.target, counts.astype(np.float32), beside)


def ask_pieces(
    rows: Rows, where: NDArray[np.int64], weight: NDArray[np.float32], shift: int = 0
) -> Question:
    """Ask at places (B, m) for the pieces ``shift`` places further on."""
    num_rows, length = rows.pieces.shape
    target = np.take_along_axis(rows.pieces, where + shift, axis=1).astype(np.int64)
    flat = where + length * np.arange(num_rows)[:, None]
    return Question(flat.ravel(), target.ravel(), weight.ravel())
