"""The parameters of a model as a few flat buffers.

The float32 master holds the truth. Under ``bf16`` the model computes with a bf16 copy that the
optimiser refreshes once a step; under ``float32`` the master is what the model computes with. The
module's parameters become views into the flat buffers, hence the optimiser runs over a handful of
large ranges, whatever the number of parameters. Gradients of tables are written where they belong
by those who read rows of them; any other is copied there as soon as it is known, which is half of
the traffic of adding it to zeros.

Order in the buffers: matrices, tables, everything else (biases, norms, gates), then what is frozen.
So what decays, and what Muon takes, are contiguous ranges.

Parameters stand on *levels*: 0 before the blocks, i + 1 in block i, the highest behind them (the
heads). Learning rates may fall from level to level, or be each level's own; and the levels from
some one on may be all that is trained.
"""

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from bertwright.axes import Precision
from bertwright.encoder.roles import Role
from bertwright.errors import UserError

ALIGNMENT = 64
"""Every parameter starts at a multiple of this many elements: a cache line in either precision."""

EVERYWHERE = slice(None)

GROUPS = ("matrix", "table", "rest", "frozen")


@dataclass(frozen=True)
class Slot:
    """Where one parameter lies in the flat buffers, in elements, and on which level."""

    name: str
    shape: tuple[int, ...]
    start: int
    parts: int
    level: int = 0

    @property
    def stop(self) -> int:
        return self.start + prod(self.shape)

    @property
    def end(self) -> int:
        """Where the next one starts."""
        return self.start + _aligned(prod(self.shape))


class MasterParameters:
    """The flat buffers of one model.

    ``roles`` names a role for every parameter of ``model`` (tied parameters appear once, under
    their first name). From construction until :meth:`release` the parameters of the module are
    views into ``compute``, and what backward passes find goes into ``gradient``.

    Attributes:
        master: (N,) float32.
        compute: (N,) of the computing precision; the same tensor as ``master`` under float32.
        gradient: (T,) of the computing precision, T the trainable part of N.
        first_level: the lowest level that is trained.
        level_rates: what learning rates are multiplied with by level, None where all are 1; no
            optimiser touches a level whose rate is 0.
    """

    def __init__(
        self,
        model: nn.Module,
        roles: Mapping[str, Role],
        precision: Precision,
        device: torch.device | str = "cpu",
    ) -> None:
        self.precision: Precision = precision
        self._parameters = dict(model.named_parameters())
        self.slots, self._ends = _lay_out(self._parameters, roles)
        self.master = torch.zeros(self._ends["frozen"], device=device)
        for slot in self.slots:
            self._view(self.master, slot).copy_(self._parameters[slot.name].detach())
        self.compute = self.master if precision == "float32" else self.master.bfloat16()
        self.gradient = torch.zeros(self.num_trainable, dtype=self.compute.dtype, device=device)
        self._sum: Tensor | None = None
        self._summed = False
        self._written: set[str] = set()
        self._gradient_views: dict[str, Tensor] = {}
        self._hooks = [self._gather(slot) for slot in self.slots if self._is_gathered(slot)]
        self.num_levels = 1 + max((slot.level for slot in self.slots), default=0)
        self.first_level = 0
        self.level_rates: Sequence[float] | None = None
        self._bind()

    @property
    def num_trainable(self) -> int:
        """Elements of the buffers that are trained, alignment included."""
        return self._ends["rest"]

    def range(self, *groups: str) -> slice:
        """The contiguous range of neighbouring groups, e.g. ``range("matrix", "table")``."""
        first = GROUPS.index(groups[0])
        start = self._ends[GROUPS[first - 1]] if first else 0
        return slice(start, self._ends[groups[-1]])

    def slots_of(self, *groups: str) -> list[Slot]:
        """The parameters of neighbouring groups that are trained, in their order."""
        return self._trained_slots(self.range(*groups))

    def trained(self, where: slice, layer_decay: float = 1.0) -> list[tuple[slice, float]]:
        """The stretches of a range that are trained, and what their learning rate is multiplied
        with: ``layer_decay`` for each level that they stand below the highest, and the rate of
        their level.
        """
        if layer_decay == 1.0 and self.first_level == 0 and self.level_rates is None:
            return [(where, 1.0)] if where.start < where.stop else []
        found: list[tuple[slice, float]] = []
        previous: Slot | None = None
        for slot in self._trained_slots(where):
            if previous is not None and (previous.end, previous.level) == (slot.start, slot.level):
                before, factor = found.pop()
                found.append((slice(before.start, slot.stop), factor))
            else:
                found.append((slice(slot.start, slot.stop), self.factor(slot, layer_decay)))
            previous = slot
        return found

    def factor(self, slot: Slot, layer_decay: float) -> float:
        """What the learning rate of one parameter is multiplied with."""
        decayed = layer_decay ** (self.num_levels - 1 - slot.level)
        return decayed if self.level_rates is None else decayed * self.level_rates[slot.level]

    def train_from(self, level: int) -> None:
        """Train only what stands on this level or above it; the rest has no gradient, and no
        optimiser touches it.

        Errors: UserError where nothing stands there.
        """
        self.first_level = level
        if not self._trained_slots(slice(0, self.num_trainable)):
            raise UserError("no parameters stand behind the blocks: train a block as well")
        self._bind()

    def _trained_slots(self, where: slice) -> list[Slot]:
        return [
            slot
            for slot in self.slots
            if where.start <= slot.start < where.stop and self._is_trained(slot)
        ]

    def _is_trained(self, slot: Slot) -> bool:
        rests = self.level_rates is not None and self.level_rates[slot.level] == 0.0
        return slot.level >= self.first_level and not rests

    def clear_gradient(self) -> None:
        """Before the first micro-batch of a step."""
        self._forget()
        self._summed = False

    def accumulate(self) -> None:
        """Add the gradient of one micro-batch of several to the float32 sum.

        Under float32 the gradient buffer is itself that sum.
        """
        if self.gradient.dtype == torch.float32:
            return
        if self._sum is None:
            self._sum = torch.empty_like(self.gradient, dtype=torch.float32)
        if not self._summed:
            self._sum.zero_()
            self._summed = True
        self._fill_gaps()
        self._sum += self.gradient
        self._forget()

    def step_gradient(self) -> Tensor:
        """(T,) the gradient of the step: the float32 sum if this step accumulated any."""
        if self._sum is not None and self._summed:
            return self._sum
        self._fill_gaps()
        return self.gradient

    def refresh(self, where: slice = EVERYWHERE) -> None:
        """Copy the master to what the model computes with, after it was written to."""
        if self.compute is not self.master:
            self.compute[where].copy_(self.master[where])

    def views(self, flat: Tensor) -> dict[str, Tensor]:
        """The named parts of a flat buffer laid out like ``master`` (or its trainable part)."""
        return {s.name: self._view(flat, s) for s in self.slots if s.stop <= len(flat)}

    def state(self) -> dict[str, Tensor]:
        """The float32 parameters by name, as views."""
        return self.views(self.master)

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Take over parameters by name.

        Errors: UserError when names or shapes are not those of this model.
        """
        fill(self.views(self.master), state)
        self.refresh()

    @contextmanager
    def in_float32(self) -> Generator[None]:
        """Let the model compute with the float32 master, into a gradient of its own."""
        kept = self.precision, self.compute, self.gradient, self._sum
        self.precision, self.compute = "float32", self.master
        self.gradient = torch.zeros(self.num_trainable, device=self.master.device)
        self._sum, self._summed = None, False
        self._bind()
        try:
            yield
        finally:
            self.precision, self.compute, self.gradient, self._sum = kept
            self._bind()

    def release(self) -> None:
        """Give the module plain float32 parameters again, without gradients."""
        for hook in self._hooks:
            hook.remove()
        for slot in self.slots:
            parameter = self._parameters[slot.name]
            parameter.grad = None
            parameter.data = self._view(self.master, slot)
            parameter.requires_grad_(slot.start < self.num_trainable)

    def _bind(self) -> None:
        self._gradient_views = self.views(self.gradient)
        for slot in self.slots:
            parameter = self._parameters[slot.name]
            parameter.grad = None
            parameter.data = self._view(self.compute, slot)
            trained = slot.start < self.num_trainable and slot.level >= self.first_level
            parameter.requires_grad_(trained)
            if trained and not self._is_gathered(slot):
                # Kernels that know which rows they read add to this view themselves.
                parameter.grad = self._view(self.gradient, slot)

    def _is_gathered(self, slot: Slot) -> bool:
        tables = self.range("table")
        return slot.stop <= self.num_trainable and not tables.start <= slot.start < tables.stop

    def _gather(self, slot: Slot) -> RemovableHandle:
        def gather(parameter: Tensor) -> None:
            gradient, view = parameter.grad, self._gradient_views[slot.name]
            assert gradient is not None
            if slot.name in self._written:
                view.add_(gradient)
            else:
                view.copy_(gradient)
                self._written.add(slot.name)
            parameter.grad = None

        return self._parameters[slot.name].register_post_accumulate_grad_hook(gather)

    def _forget(self) -> None:
        self.gradient[self.range("table")].zero_()
        self._written.clear()

    def _fill_gaps(self) -> None:
        """Nothing is the gradient of what no backward pass came to."""
        for slot in self.slots:
            if self._is_gathered(slot) and slot.name not in self._written:
                self._view(self.gradient, slot).zero_()

    @staticmethod
    def _view(flat: Tensor, slot: Slot) -> Tensor:
        return flat[slot.start : slot.stop].view(slot.shape)


def fill(views: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> None:
    """Copy named tensors into the views of the same names.

    Errors: UserError when names or shapes differ.
    """
    if odd := sorted(views.keys() ^ state.keys()):
        raise UserError(f"the saved tensors are not this model's: {odd[0]!r} is on one side only")
    for name, view in views.items():
        if view.shape != state[name].shape:
            saved, here = tuple(state[name].shape), tuple(view.shape)
            raise UserError(f"the saved tensor {name!r} has shape {saved}, the model's has {here}")
        view.copy_(state[name])


def levels_of(roles: Mapping[str, Role]) -> dict[str, int]:
    """The level of every parameter: 0 before the blocks, the highest behind them."""
    highest = 2 + max((role.depth for role in roles.values() if role.depth is not None), default=-2)
    return {name: highest if role.depth is None else role.depth + 1 for name, role in roles.items()}


def _lay_out(
    parameters: Mapping[str, nn.Parameter], roles: Mapping[str, Role]
) -> tuple[list[Slot], dict[str, int]]:
    grouped: dict[str, list[str]] = {group: [] for group in GROUPS}
    for name, parameter in parameters.items():
        kind = roles[name].kind if parameter.requires_grad else "frozen"
        grouped[kind if kind in GROUPS else "rest"].append(name)
    levels = levels_of(roles)
    slots: list[Slot] = []
    ends: dict[str, int] = {}
    end = 0
    for group, names in grouped.items():
        for name in names:
            shape = tuple(parameters[name].shape)
            slots.append(Slot(name, shape, end, roles[name].parts, levels[name]))
            end = slots[-1].end
        ends[group] = end
    return slots, ends


def _aligned(number: int) -> int:
    return -(-number // ALIGNMENT) * ALIGNMENT
