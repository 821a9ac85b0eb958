"""What an encoder remembers from one step for the next, through stops and evaluations."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager

from torch import Tensor

from bertwright.encoder.memory import Memory
from bertwright.model.model import TensorBatch
from bertwright.training.procedure import Procedure


class StreamMemory(Procedure):
    """The memory of every micro-batch, by the number of its first row in the step.

    ``length`` is how many places are remembered, 0 for none. It begins empty wherever a batch does
    not continue the one before it.
    """

    name = "memory"

    def __init__(self, length: int) -> None:
        self._length = length
        self._kept: dict[int, Memory] = {}

    @contextmanager
    def within(self, batch: TensorBatch) -> Generator[Memory | None]:
        """What the rows of a batch remember, while they pass; None where nothing is remembered."""
        if not self._length:
            yield None
            return
        memory = self._kept.get(batch.first_row)
        if memory is None or not batch.continues:
            memory = Memory.empty(self._length, batch.pieces)
        yield memory
        self._kept[batch.first_row] = memory.following(batch.coordinates)

    def state(self) -> dict[str, Tensor]:
        named: dict[str, Tensor] = {}
        for row, memory in self._kept.items():
            named[f"{row}.document"] = memory.document
            named |= {f"{row}.{block}": states for block, states in memory.states.items()}
        return named

    def load(self, state: Mapping[str, Tensor]) -> None:
        by_row: dict[int, dict[str, Tensor]] = {}
        for name, tensor in state.items():
            row, part = name.split(".")
            by_row.setdefault(int(row), {})[part] = tensor
        self._kept = {
            row: Memory({int(b): t for b, t in parts.items() if b != "document"}, parts["document"])
            for row, parts in by_row.items()
        }
