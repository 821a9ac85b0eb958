"""A model is replaced part by part while it goes on working (Xu et al. 2020, BERT-of-Theseus).

Each block of the student takes the place of some blocks of its predecessor: in every step by
chance, ever more often, in the end always. Only the blocks of the student learn, by the loss of the
task alone; what stands before and behind them is that of the predecessor.
"""

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from bertwright.compression.students import shortened
from bertwright.encoder.encoder import blocks_of
from bertwright.encoder.kernels.noise import Noise, uniform
from bertwright.encoder.passage import Notes, Passage, Step
from bertwright.errors import UserError
from bertwright.model.text_model import TextModel
from bertwright.schedules import Schedule
from bertwright.tasks.fine_tuned import FineTuned
from bertwright.tasks.heads import shapes_of
from bertwright.tasks.parts import Part
from bertwright.tasks.seen_pieces import SeenPieces
from bertwright.tasks.task_model import Adapted
from bertwright.tasks.teaching import TaskTeaching
from bertwright.training.clock import Place
from bertwright.training.procedure import Procedure

SITE = 66
"""Of the random numbers that choose between the two."""


def require_equal_parts(depth: int, layers: int) -> None:
    """Errors: UserError where so many blocks do not fall into so many parts."""
    if not layers or depth % layers:
        raise UserError(f"{depth} blocks do not fall into {layers} equal parts: choose layers")


@dataclass(frozen=True)
class Replacement:
    """A predecessor that was fine-tuned, and how likely a block of its successor runs."""

    predecessor: FineTuned
    rate: Schedule

    def successor(self, layers: int) -> TextModel:
        """What it begins as: so many of the first blocks.

        Errors: UserError where the predecessor does not fall into so many equal parts.
        """
        depth = len(self.predecessor.net.encoder.blocks)
        require_equal_parts(depth, layers)
        return shortened(self.predecessor, range(layers))

    def teaching(
        self, student: Adapted, parts: Sequence[Part], seen: SeenPieces | None
    ) -> TaskTeaching:
        """The predecessor within a student, which :meth:`successor` has made."""
        ours, theirs = len(student.encoder.blocks), len(self.predecessor.net.encoder.blocks)
        plain = type(student.encoder.passage) is Passage and not student.encoder.looks_back
        if len(parts) > 1 or theirs % ours or not plain:
            raise UserError(
                "replacement: a stack of alike blocks that learns one task can be replaced block "
                "by block, and this is none"
            )
        return _Replacing(self, student, parts[0])


class _Replacing(TaskTeaching):
    """The predecessor within a student."""

    def __init__(self, replacement: Replacement, student: Adapted, part: Part) -> None:
        super().__init__()
        known = replacement.predecessor.net
        passage = Either(blocks_of(known.encoder), len(student.encoder.blocks))
        # In lists, so that the parameters of neither are taken for its own.
        self._student, self._head, self._part = [student], [known.head], part
        self.procedures = [_Rate(passage, replacement.rate)]
        student.encoder.passage = passage

    def begin(self, seed: int) -> None:
        student = self._student[0]
        heads = (student.head(0), self._head[0])
        own, known = ((shapes_of(head), head.choice.read, head.choice.layers) for head in heads)
        if own != known:
            raise UserError(
                "replacement: what takes the place of blocks stands before the head of the model "
                "that it is made of: leave head out"
            )
        student.head(0).load_state_dict(self._head[0].state_dict())
        self._part.answering.unfold_from(student.head(0).out)
        for frozen in (student.encoder.embeddings, student.encoder.norm, student.heads):
            frozen.requires_grad_(False)


class _Rate(Procedure):
    """How likely a block is that of the successor, step by step."""

    name = "replacement"

    def __init__(self, passage: "Either", rate: Schedule) -> None:
        self._passage, self._rate = passage, rate

    def before_step(self, place: Place) -> None:
        self._passage.rate = min(max(self._rate.at(place.progress), 0.0), 1.0)


class Either(Passage):
    """In training each block, with the probability 1 - ``rate``, is what it replaces: ``old``
    blocks, equally many for each of ``number``. One draw, a function of seed, step and block, holds
    for all rows of a step."""

    def __init__(self, old: Sequence[nn.Module], number: int, rate: float = 1.0) -> None:
        super().__init__()
        many = len(old) // number
        self.rate = rate
        # In a tuple, because they are no part of what is trained.
        self._old = tuple(deepcopy(list(old[n * many : (n + 1) * many])) for n in range(number))

    @property
    def old(self) -> list[nn.Module]:
        """The blocks of the predecessor that run, its first one first."""
        return [block for part in self._old for block in part]

    def forward(
        self,
        x: Tensor,
        blocks: Sequence[int],
        step: Callable[[int], Step],
        noise: Noise | None = None,
        real: Tensor | None = None,
        notes: Notes | None = None,
    ) -> Tensor:
        if noise is None:
            return super().forward(x, blocks, step, noise, real, notes)
        places = torch.tensor(blocks, device=noise.seed.device)
        drawn: list[float] = uniform(noise, places, SITE).tolist()
        for index, number in zip(blocks, drawn, strict=True):
            own = step(index)
            if number < self.rate:
                x = own(x)
                continue
            for old in self._old[index]:
                wanted = own.wanted if old is self._old[index][-1] else None
                x = replace(own, block=old.to(x.dtype), noise=None, wanted=wanted)(x)
        return x
