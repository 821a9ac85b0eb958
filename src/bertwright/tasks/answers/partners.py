"""Which texts belong together: known of all training examples, so that none of them is taken for a
wrong one in a step where it stands beside another pair."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from bertwright.tasks.formats.examples import Example


@dataclass(frozen=True, eq=False)
class Partners:
    """The texts of N examples by numbers, on the CPU.

    Attributes:
        firsts: (N,) int64.
        candidates: of every example the numbers of its second text and of its ``others``.
        pairs: (P,) int64, ordered: first text x number of texts + second text, of every example.
        num_texts: of all examples together.
    """

    firsts: Tensor
    candidates: Sequence[Sequence[int]]
    pairs: Tensor
    num_texts: int

    @staticmethod
    def of(examples: Sequence[Example]) -> "Partners":
        """Those of examples whose first and second text belong together."""
        known: dict[str | None, int] = {}

        def number(text: str | None) -> int:
            return known.setdefault(text, len(known))

        firsts = torch.tensor([number(e.first) for e in examples], dtype=torch.int64)
        candidates = [[number(text) for text in (e.second, *e.others)] for e in examples]
        seconds = torch.tensor([own[0] for own in candidates], dtype=torch.int64)
        pairs = (firsts * len(known) + seconds).unique()
        return Partners(firsts, candidates, pairs, len(known))

    def belong(self, numbers: Tensor) -> Tensor:
        """Of the examples of a step (B,) int64, which of its candidates belong to each first text:
        (B, C) bool; the second texts come before all others."""
        chosen = [self.candidates[number] for number in numbers.tolist()]
        named = [own[0] for own in chosen] + [text for own in chosen for text in own[1:]]
        firsts = self.firsts[numbers.cpu()]
        pairs = firsts[:, None] * self.num_texts + torch.tensor(named, dtype=torch.int64)
        return torch.isin(pairs, self.pairs).to(numbers.device)
