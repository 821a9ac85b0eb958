"""Which layers a vector is made of, and how they become one (Peters et al. 2018; Devlin et al.
2019, section 5.3).

Layer 0 is the embeddings, layer k what block k gives, and the last one the states, after the last
norm where there is one.
"""

import re
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from bertwright.encoder.encoder import Encoder
from bertwright.encoder.stream import Coordinates
from bertwright.errors import UserError

Mix = Literal["concat", "sum", "mean"]

_NUMBERS = re.compile(r"(\d+)(?:-(\d+))?")
_LAST = re.compile(r"last(?:-(\d+))?")


@dataclass(frozen=True)
class Layers:
    """Layers by their numbers, and how they are mixed: side by side, their sum or their mean."""

    numbers: tuple[int, ...]
    mix: Mix

    def states(self, encoder: Encoder, pieces: Tensor, coordinates: Coordinates) -> Tensor:
        """(B, L, D), or (B, L, N D) where N layers stand side by side.

        What lies above the highest of them is not computed.
        """
        depth, highest = len(encoder.blocks), max(self.numbers)
        if self.numbers == (depth,):
            return encoder(pieces, coordinates)
        names = [_tap(number, depth) for number in self.numbers]
        stop_after = None if highest == depth else max(highest - 1, 0)
        with encoder.record(*names) as values:
            encoder(pieces, coordinates, stop_after=stop_after)
        found = [values[name] for name in names]
        if self.mix == "concat":
            return torch.cat(found, dim=-1)
        together = torch.stack(found)
        return together.sum(0) if self.mix == "sum" else together.mean(0)

    def width(self, of_one: int) -> int:
        """The width of the states, of layers that are so wide."""
        return of_one * (len(self.numbers) if self.mix == "concat" else 1)


def layers_of(said: str, mix: Mix, depth: int) -> Layers:
    """The layers that ``last``, ``last-4``, ``7``, ``5-8``, ``2,4,6`` or ``all`` name in a model of
    ``depth`` blocks; ``all`` leaves the embeddings out, ``last-4`` takes fewer where there are not
    so many.

    Errors: UserError for what names none.
    """
    if mix not in get_args(Mix):
        raise UserError(f"layers are not mixed by {mix!r}: choose {', '.join(get_args(Mix))}")
    numbers = [number for part in said.split(",") for number in _named(part.strip(), depth)]
    return Layers(tuple(dict.fromkeys(numbers)), mix)


def _named(part: str, depth: int) -> range:
    if part == "all":
        return range(1, depth + 1)
    if last := _LAST.fullmatch(part):
        found = range(depth + 1 - min(int(last[1] or 1), depth), depth + 1)
    elif numbers := _NUMBERS.fullmatch(part):
        found = range(int(numbers[1]), int(numbers[2] or numbers[1]) + 1)
    else:
        found = range(0)
    if not found or found[-1] > depth:
        raise UserError(
            f"no layers {part!r}: the model has 0 (the embeddings) to {depth}; write a number, "
            f"5-8, last, last-4 or all"
        )
    return found


def _tap(number: int, depth: int) -> str:
    if number == depth:
        return "output"
    return f"blocks.{number - 1}.residual" if number else "embeddings.output"
