"""What an encoder remembers from one step for the next, through stops and evaluations."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor

from bertwright.encoder.memory import Memory
from bertwright.model.model import TensorBatch
from bertwright.training.procedure import Procedure


class StreamMemory(Procedure):
    """The memory of every micro-batch, by the number of its first row in the step.

    ``length`` is how many places are remembered, 0 for none. It begins empty wherever a batch does
    not continue the one before it. A checkpoint holds it by rows, those of all processes, so that a
    run may go on with other micro-batches, or with more processes or fewer.
    """

    name = "memory"
    parted = True

    def __init__(self, length: int) -> None:
        self._length = length
        self._kept: dict[int, Memory] = {}
        self._of_all: Memory | None = None

    @contextmanager
    def within(self, batch: TensorBatch) -> Generator[Memory | None]:
        """What the rows of a batch remember, while they pass; None where nothing is remembered."""
        if not self._length:
            yield None
            return
        memory = self._kept.get(batch.first_row) or self._restored(batch)
        if memory is None or not batch.continues:
            memory = Memory.empty(self._length, batch.pieces)
        yield memory
        self._kept[batch.first_row] = memory.following(batch.coordinates)

    def state(self) -> dict[str, Tensor]:
        parts = [memory for _, memory in sorted(self._kept.items())]
        if not parts:
            return {}
        blocks = {str(b): torch.cat([own.states[b] for own in parts]) for b in parts[0].states}
        return {"document": torch.cat([own.document for own in parts]), **blocks}

    def load(self, state: Mapping[str, Tensor]) -> None:
        self._kept.clear()
        self._of_all = None
        if state:
            blocks = {int(name): own for name, own in state.items() if name != "document"}
            self._of_all = Memory(blocks, state["document"])

    def _restored(self, batch: TensorBatch) -> Memory | None:
        """What the rows of a batch had come to when the run was stopped."""
        if self._of_all is None:
            return None
        rows = slice(batch.first_row, batch.first_row + len(batch.pieces))
        of_all, device = self._of_all, batch.pieces.device
        states = {block: own[rows].to(device) for block, own in of_all.states.items()}
        return Memory(states, of_all.document[rows].to(device))
