"""Long short-term memory: a place is told what came before it by one state (Hochreiter 1997)."""

from collections.abc import Callable, Sequence
from typing import ClassVar, Literal, cast

import torch
from pydantic import Field
from torch import Tensor, nn

from bertwright.encoder.kernels.noise import Noise, weight_dropout
from bertwright.encoder.kernels.recurrence import State, Weights, explicit, final, fused
from bertwright.encoder.memory import Carried
from bertwright.encoder.mixers.mixer import Mixer
from bertwright.encoder.norms import Norm
from bertwright.encoder.positions import Positions
from bertwright.encoder.roles import Role
from bertwright.encoder.runs import Runs
from bertwright.encoder.surroundings import Surroundings
from bertwright.encoder.taps import Site, inside, tap
from bertwright.encoder.visibility import Visibility, Way, ways

OF_ATTENTION = ("query", "key", "value", "scores", "weights", "context", "heads")
"""Values that a recurrent mixer does not have."""


class LstmChoice(Mixer):
    """A recurrent layer for every way in which the rule of visibility reads: forward where it is
    causal, backward where it is reversed, each over its half of the states where it is both-ways.

    ``cell`` is the width of the cell, projected to that of the layer; None projects nothing.
    ``between`` is what layers but the last write, None as wide as the model. ``clip`` bounds cells
    and projected states. ``biases`` is 2 where a second, redundant one is counted, as in PyTorch.
    ``forget`` is added to the forget gate. ``dropout`` is the rate for recurrent weights
    (Merity et al. 2018). The kernel ``auto`` is fused where nothing is clipped or projected.
    """

    kind: Literal["lstm"] = "lstm"
    cell: int | None = Field(default=None, ge=1, le=65_536)
    between: int | None = Field(default=None, ge=1, le=65_536)
    clip: float | None = Field(default=None, gt=0)
    biases: Literal[1, 2] = 1
    forget: float = 1.0
    dropout: float = Field(default=0.0, ge=0, lt=1)
    kernel: Literal["auto", "explicit"] = "auto"

    any_rule: ClassVar[bool] = False
    remembers: ClassVar[bool] = True
    recurrent: ClassVar[bool] = True

    @property
    def is_plain(self) -> bool:
        """Whether nothing is clipped or projected."""
        return self.clip is None and self.cell is None

    def widths(self, entry: int, width: int, num_blocks: int) -> list[int]:
        if not num_blocks:
            return [width]
        return [entry, *[self.between or width] * (num_blocks - 1), width]

    def operations_between(
        self, reads: int, writes: int, parts: int, length: int
    ) -> tuple[float, float]:
        reads, writes = reads // parts, writes // parts
        cell = self.cell or writes
        projected = 2 * cell * writes if self.cell else 0
        return parts * (8 * cell * (reads + writes) + projected), 0.0

    def build_between(
        self, reads: int, writes: int, positions: Positions, norm: Norm, rule: Visibility
    ) -> nn.Module:
        return LstmMixer(self, reads, writes, ways(rule))


class LstmMixer(nn.Module):
    """One recurrent layer for each way; where there are two, each has its half of the states."""

    def __init__(self, choice: LstmChoice, reads: int, writes: int, of: Sequence[Way]) -> None:
        super().__init__()
        self.of, parts = tuple(of), len(of)
        self.ways = nn.ModuleList(Lstm(choice, reads // parts, writes // parts) for _ in of)
        # A compiler would write out every step. Stated here, since it imports one.
        self.read = cast(Callable[..., Tensor], torch.compiler.disable(LstmMixer._read))

    def forward(
        self,
        x: Tensor,
        around: Surroundings,
        noise: Noise | None = None,
        site: Site | None = None,
        past: Carried | None = None,
    ) -> Tensor:
        """x (B, L, reads) to (B, L, writes)."""
        if site is not None:
            site.lacks(OF_ATTENTION, "a recurrent mixer has no attention")
        return tap(site, "output", self.read(self, x, around, noise, site, past))

    def _read(
        self,
        x: Tensor,
        around: Surroundings,
        noise: Noise | None,
        site: Site | None,
        past: Carried | None,
    ) -> Tensor:
        found: list[Tensor] = []
        parts = x.chunk(len(self.of), dim=-1)
        for number, (way, lstm, part) in enumerate(zip(self.of, self.ways, parts, strict=True)):
            found.append(lstm(part, around.runs[way], number, noise, inside(site, way), past))
        return torch.cat(found, dim=-1)


class Lstm(nn.Module):
    """A recurrent layer that reads one way."""

    parameter_roles: ClassVar[dict[str, Role]] = {
        "input.weight": Role("matrix", parts=4),
        "recurrent.weight": Role("matrix", parts=4),
        "second_bias": Role("bias"),
    }

    def __init__(self, choice: LstmChoice, reads: int, writes: int) -> None:
        super().__init__()
        cell = choice.cell or writes
        self.clip, self.rate, self.forget = choice.clip, choice.dropout, choice.forget
        self.is_fused = choice.is_plain and choice.kernel != "explicit"
        self.input = nn.Linear(reads, 4 * cell)
        self.recurrent = nn.Linear(writes, 4 * cell, bias=False)
        self.projection = nn.Linear(cell, writes, bias=False) if choice.cell else None
        self.second_bias = nn.Parameter(torch.zeros(4 * cell)) if choice.biases == 2 else None

    def forward(
        self,
        x: Tensor,
        runs: Runs,
        number: int,
        noise: Noise | None = None,
        site: Site | None = None,
        past: Carried | None = None,
    ) -> Tensor:
        """x (B, L, reads) to (B, L, writes), in the way of this number."""
        read, weights = runs.read(x), self.weights(noise, number)
        start = self._start(read, runs, past)
        listening = site is not None and site.wants("state", "cell", "gates")
        if listening or not self.is_fused:
            trace = explicit(read, start, weights, self.clip)
            for name, values in (("gates", trace.gates), ("cell", trace.cell)):
                tap(site, name, runs.written(values, x))
            found, end = trace.h, final(trace, runs.lengths)
        else:
            found, end = fused(read, runs.lengths, start, weights)
        if past is not None:
            past.keep(torch.cat(end, dim=1)[runs.last][:, None])
        return tap(site, "state", runs.written(found, x))

    def weights(self, noise: Noise | None, number: int) -> Weights:
        """What one pass in the way of this number computes with."""
        bias = self.input.bias if self.second_bias is None else self.input.bias + self.second_bias
        cell = len(bias) // 4
        bias = bias + nn.functional.pad(bias.new_full((cell,), self.forget), (cell, 2 * cell))
        recurrent = weight_dropout(self.recurrent.weight, self.rate, noise, number)
        projection = None if self.projection is None else self.projection.weight
        return Weights(self.input.weight, recurrent, bias, projection)

    def _start(self, read: Tensor, runs: Runs, past: Carried | None) -> State:
        """Nothing, or where a run goes on what the rows before have come to."""
        widths = [self.recurrent.weight.shape[1], self.recurrent.weight.shape[0] // 4]
        if past is None or past.state is None:
            h, c = (read.new_zeros(len(runs.rows), width) for width in widths)
            return State(h, c)
        before = past.state[runs.rows, 0] * runs.continued[:, None]
        h, c = before.to(read.dtype).split(widths, dim=1)
        return State(h, c)
