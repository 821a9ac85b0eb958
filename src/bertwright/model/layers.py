"""Which layers a vector is made of, and how they become one (Peters et al. 2018; Devlin et al.
2019, section 5.3).

Layer 0 is the embeddings, layer k what block k gives, and the last one the states, after the last
norm where there is one.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from bertwright.encoder.encoder import Encoder
from bertwright.encoder.kernels.noise import Noise
from bertwright.encoder.stream import Coordinates
from bertwright.errors import UserError

Mix = Literal["concat", "sum", "mean"]

_NUMBERS = re.compile(r"(\d+)(?:-(\d+))?")
_LAST = re.compile(r"last(?:-(\d+))?")


@dataclass(frozen=True)
class Layers:
    """Layers by their numbers, and how they are mixed: side by side, their sum or their mean;
    ``width`` is what they come to."""

    numbers: tuple[int, ...]
    mix: Mix
    width: int

    def states(
        self,
        encoder: Encoder,
        pieces: Tensor,
        coordinates: Coordinates,
        noise: Noise | None = None,
        wanted: Tensor | None = None,
    ) -> Tensor:
        """(B, L, width), or (M, width) of the ``wanted`` flat places (M,) alone.

        What lies above the highest of them is not computed.
        """
        depth, highest = len(encoder.blocks), max(self.numbers)
        if self.numbers == (depth,):
            return encoder(pieces, coordinates, noise=noise, wanted=wanted)
        names = [_tap(number, depth) for number in self.numbers]
        stop_after = None if highest == depth else max(highest - 1, 0)
        with encoder.record(*names, gradients=torch.is_grad_enabled()) as values:
            encoder(pieces, coordinates, noise=noise, stop_after=stop_after)
        found = [values[name] for name in names]
        if wanted is not None:
            found = [each.flatten(0, 1).index_select(0, wanted) for each in found]
        if self.mix == "concat":
            return torch.cat(found, dim=-1)
        together = torch.stack(found)
        return together.sum(0) if self.mix == "sum" else together.mean(0)


def layers_of(said: str, mix: Mix, widths: Sequence[int]) -> Layers:
    """The layers that ``last``, ``last-but-one``, ``last-4``, ``7``, ``5-8``, ``2,4,6`` or ``all``
    name in a model whose layers are so wide, from the embeddings on; ``all`` leaves these out,
    ``last-4`` takes fewer where there are not so many.

    Errors: UserError for what names none, or cannot be mixed so.
    """
    if mix not in get_args(Mix):
        raise UserError(f"layers are not mixed by {mix!r}: choose {', '.join(get_args(Mix))}")
    depth = len(widths) - 1
    named = [number for part in said.split(",") for number in _named(part.strip(), depth)]
    numbers = tuple(dict.fromkeys(named))
    wide = [widths[number] for number in numbers]
    if mix == "concat":
        return Layers(numbers, mix, sum(wide))
    if len(set(wide)) > 1:
        raise UserError(f"layers {said} are {sorted(set(wide))} wide, which have no {mix}")
    return Layers(numbers, mix, wide[0])


def _named(part: str, depth: int) -> range:
    if part == "all":
        found = range(1, depth + 1)
    elif part == "last-but-one":
        found = range(depth - 1, depth)
    elif last := _LAST.fullmatch(part):
        found = range(depth + 1 - min(int(last[1] or 1), max(depth, 1)), depth + 1)
    elif numbers := _NUMBERS.fullmatch(part):
        found = range(int(numbers[1]), int(numbers[2] or numbers[1]) + 1)
    else:
        found = range(0)
    if not found or not 0 <= found[0] <= found[-1] <= depth:
        raise UserError(
            f"no layers {part!r}: the model has 0 (the embeddings) to {depth}; write a number, "
            f"5-8, last, last-but-one, last-4 or all"
        )
    return found


def _tap(number: int, depth: int) -> str:
    if number == depth:
        return "output"
    return f"blocks.{number - 1}.residual" if number else "embeddings.output"
