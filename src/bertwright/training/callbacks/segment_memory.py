"""The segment-level memory of the encoder, kept from step to step and in checkpoints."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor

from bertwright.models.model import DeviceBatch
from bertwright.modules.attention.cache import Memory
from bertwright.recipes import Recipe
from bertwright.training.callbacks.callback import Callback


class SegmentMemory(Callback):
    """The memory of every micro-batch, keyed by the index of its first sequence in the step.

    ``length`` is the number of remembered positions, 0 for none; the first ``num_remembered`` of
    every sequence enter it, or all if None. With ``follows_text`` they follow the sequences, which
    are read backward. The memory is cleared if a batch
    does not continue the previous one. A checkpoint stores the memory per sequence over all
    processes, so a run can resume with other micro-batches or another number of processes.
    """

    name = "memory"
    is_sharded = True

    def __init__(
        self, length: int, follows_text: bool = False, num_remembered: int | None = None
    ) -> None:
        self._length, self._follows_text = length, follows_text
        self._num_remembered = num_remembered
        self._memories: dict[int, Memory] = {}
        self._loaded_memory: Memory | None = None

    @contextmanager
    def memory_of(self, batch: DeviceBatch) -> Generator[Memory | None]:
        """Provide the memory of a batch and update it on exit; None without a memory."""
        if not self._length:
            yield None
            return
        memory = self._memories.get(batch.first_sequence) or self._restore(batch)
        if memory is None or not batch.continues_previous:
            memory = Memory.empty(
                self._length, batch.token_ids, self._follows_text, self._num_remembered
            )
        yield memory
        self._memories[batch.first_sequence] = memory.next_memory(batch.token_info)

    @staticmethod
    def for_recipe(recipe: Recipe) -> "SegmentMemory":
        """Return the memory of a recipe's encoder."""
        encoder = recipe.encoder
        return SegmentMemory(
            encoder.memory_length, encoder.carries_backward, recipe.assembly.num_remembered
        )

    def state(self) -> dict[str, Tensor]:
        parts = [memory for _, memory in sorted(self._memories.items())]
        if not parts:
            return {}
        blocks = {
            str(block): torch.cat([memory.hidden_states[block] for memory in parts])
            for block in parts[0].hidden_states
        }
        return {"document": torch.cat([memory.document_ids for memory in parts]), **blocks}

    def load(self, state: Mapping[str, Tensor]) -> None:
        self._memories.clear()
        self._loaded_memory = None
        if state:
            blocks = {int(name): states for name, states in state.items() if name != "document"}
            self._loaded_memory = self._memory_of(blocks, state["document"])

    def _restore(self, batch: DeviceBatch) -> Memory | None:
        """Return the memory of a batch from the checkpoint, if any."""
        loaded, device = self._loaded_memory, batch.token_ids.device
        if loaded is None:
            return None
        part = slice(batch.first_sequence, batch.first_sequence + len(batch.token_ids))
        hidden_states = {
            block: states[part].to(device) for block, states in loaded.hidden_states.items()
        }
        return self._memory_of(hidden_states, loaded.document_ids[part].to(device))

    def _memory_of(self, hidden_states: dict[int, Tensor], document_ids: Tensor) -> Memory:
        return Memory(hidden_states, document_ids, self._follows_text, self._num_remembered)
