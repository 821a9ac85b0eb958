"""Several short sequences in one row, isolated from each other (Krell et al. 2021).

The attention mask separates the sequences of a row, and positions start again with each. So the
hidden states equal those of padded sequences, and little is computed for padding.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from bertwright.modules.token_tensors import TokenInfo


@dataclass(frozen=True, eq=False)
class SequencePacking:
    """An arrangement of B sequences of at most L tokens in R rows of L positions.

    Attributes:
        sources: (R, L) int64, the flat position in the padded batch (B, L) of each token.
        is_real: (R, L) bool, False at the padding of rows.
        targets: (B, L) int64, the flat position in the rows of each token; at padding, that of the
            first token of the sequence.
    """

    sources: Tensor
    is_real: Tensor
    targets: Tensor

    @staticmethod
    def from_lengths(
        lengths: Sequence[int], row_length: int, device: torch.device
    ) -> "SequencePacking | None":
        """Return the packing of sequences of these lengths; None if it saves no row."""
        rows = pack_first_fit(lengths, row_length)
        if len(rows) == len(lengths):
            return None
        sources = torch.full((len(rows), row_length), -1)
        targets = torch.zeros(len(lengths), row_length, dtype=torch.int64)
        for row, members in enumerate(rows):
            start = 0
            for sequence in members:
                offsets = torch.arange(lengths[sequence])
                sources[row, start : start + len(offsets)] = sequence * row_length + offsets
                targets[sequence] = row * row_length + start
                targets[sequence, : len(offsets)] += offsets
                start += len(offsets)
        is_real = (sources >= 0).to(device)
        return SequencePacking(sources.clamp(min=0).to(device), is_real, targets.to(device))

    def pack(self, token_ids: Tensor, token_info: TokenInfo) -> tuple[Tensor, TokenInfo]:
        """Return the token ids (R, L) and token info of the rows, given those of a batch (B, L)."""

        def to_rows(values: Tensor) -> Tensor:
            return values.expand_as(token_ids).flatten()[self.sources]

        length = token_ids.shape[1]
        packed = replace(token_info, position_ids=token_info.resolved_position_ids).map(to_rows)
        texts = torch.zeros_like(packed.index)
        if packed.document_ids is not None:
            texts = packed.document_ids
        # Siamese texts stay isolated within their sequence.
        document_ids = self.sources // length * length + texts
        return to_rows(token_ids), replace(
            packed,
            index=torch.arange(length, device=token_ids.device)[None],
            document_ids=document_ids.where(self.is_real, -1),
        )

    def pack_positions(self, positions: Tensor | None) -> Tensor | None:
        """Return flat positions (M,) in the rows, given those in a batch; None for all."""
        return None if positions is None else self.targets.flatten()[positions]

    def unpack(self, hidden_states: Tensor) -> Tensor:
        """Return the hidden states (B, L, W) of a batch, given those of the rows (R, L, W)."""
        flat = hidden_states.flatten(0, 1).index_select(0, self.targets.flatten())
        return flat.view(*self.targets.shape, hidden_states.shape[-1])


def pack_first_fit(lengths: Sequence[int], row_length: int) -> list[list[int]]:
    """Return the indices of the sequences in each row: the longest first, where it first fits."""
    rows: list[list[int]] = []
    free: list[int] = []
    for sequence in sorted(range(len(lengths)), key=lambda n: -lengths[n]):
        length = lengths[sequence]
        row = next((n for n, size in enumerate(free) if size >= length), None)
        if row is None:
            row = len(rows)
            rows.append([])
            free.append(row_length)
        rows[row].append(sequence)
        free[row] -= length
    return rows
