"""The parameters of a model as a few flat buffers.

The optimiser updates the float32 master parameters. In ``bf16`` the model computes with a bf16 copy
that the optimiser refreshes once per step; in ``float32`` it computes with the master parameters.
The module's parameters are views into the flat buffers, so the optimiser processes a few large
ranges, independent of the number of parameters. Embedding kernels write sparse gradients directly
into the buffer; every other gradient is copied into it, which takes half the memory traffic of
adding it to zeros.

The order in the buffers is matrices, tables, all other trained parameters (biases, norms, gates),
then frozen parameters. So parameters with weight decay are contiguous, and so are those that Muon
updates.

Parameters have *levels*: 0 before the blocks, i + 1 in block i, and the highest after the blocks
(the heads). Learning rates may decay by level or be set per level, and low levels may be frozen.
"""

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from bertwright.core.config import Precision
from bertwright.core.errors import UserError
from bertwright.modules.embedding_lookup import set_in_place_gradient
from bertwright.modules.parameter_roles import (
    ParameterRole,
    num_parameter_levels,
    parameter_levels,
)
from bertwright.optimisers.tensor_parts import copy_into

ALIGNMENT = 64
"""Alignment of parameters in elements, so that each starts at a cache line in any precision."""

ALL_ELEMENTS = slice(None)

GROUPS = ("matrix", "table", "rest", "frozen")


@dataclass(frozen=True)
class ParameterSlot:
    """The range of one parameter in the flat buffers, in elements, and its level.

    ``shape`` is that of the rows in the buffers, which are all rows of ``whole_shape`` unless the
    model is sharded.
    """

    name: str
    shape: tuple[int, ...]
    whole_shape: tuple[int, ...]
    start: int
    num_parts: int
    level: int = 0

    @property
    def stop(self) -> int:
        return self.start + prod(self.shape)

    @property
    def next_start(self) -> int:
        """Return the start of the next slot."""
        return self.start + _align(max(1, prod(self.shape)))


class MasterParameters:
    """The flat buffers of one model.

    ``roles`` has a role for every parameter of ``model``; tied parameters occur once, under their
    first name. From construction until :meth:`release`, the module's parameters are views into
    ``compute``, and backward passes write into ``gradient``.

    Attributes:
        master: (N,) float32.
        compute: (N,) in the computing precision; the same tensor as ``master`` in float32.
        gradient: (T,) in the computing precision, where T is the trainable part of N.
        first_level: the lowest trained level.
        level_factors: learning rate factors by level, None if all are 1; a factor of 0 freezes the
            level.
        is_sharded: whether the buffers hold only some rows of every parameter.
    """

    is_sharded: ClassVar[bool] = False

    def __init__(
        self,
        model: nn.Module,
        roles: Mapping[str, ParameterRole],
        precision: Precision,
        device: torch.device | str = "cpu",
    ) -> None:
        self.precision: Precision = precision
        self._parameters = dict(model.named_parameters())
        self.slots, self._ends = self._assign_slots(roles)
        self.master = torch.zeros(self._ends["frozen"], device=device)
        for slot in self.slots:
            self._view(self.master, slot).copy_(self._initial_value(slot))
        self.compute, self.gradient = self._make_compute()
        self._gradient_sum: Tensor | None = None
        self._has_sum = False
        self._names_with_gradient: set[str] = set()
        self._gradient_views: dict[str, Tensor] = {}
        self._hooks = [
            self._register_copy_hook(slot) for slot in self.slots if self._is_copied(slot)
        ]
        self.num_levels = num_parameter_levels(roles)
        self.first_level = 0
        self.level_factors: Sequence[float] | None = None
        self._bind()

    @property
    def compute_dtype(self) -> torch.dtype:
        """Return the type that the model computes with."""
        return self.compute.dtype

    def compute_slice(self, elements: slice) -> Tensor | None:
        """Return the part of ``compute`` that an update must refresh; None if there is none."""
        return None if self.compute is self.master else self.compute[elements]

    @property
    def num_trainable(self) -> int:
        """Return the number of trainable elements of the buffers, alignment included."""
        return self._ends["rest"]

    def range(self, *groups: str) -> slice:
        """Return the range of consecutive groups, e.g. ``range("matrix", "table")``."""
        first = GROUPS.index(groups[0])
        start = self._ends[GROUPS[first - 1]] if first else 0
        return slice(start, self._ends[groups[-1]])

    def trained_slots(self, *groups: str) -> list[ParameterSlot]:
        """Return the trained parameters of consecutive groups, in order."""
        return self._trained_slots_in(self.range(*groups))

    def trained_ranges(
        self, elements: slice, layer_decay: float = 1.0
    ) -> list[tuple[slice, float]]:
        """Return the trained parts of a range, with their learning rate factors.

        The factor of a level is ``layer_decay`` for each level above it, times its entry in
        ``level_factors``.
        """
        if layer_decay == 1.0 and self.first_level == 0 and self.level_factors is None:
            return [(elements, 1.0)] if elements.start < elements.stop else []
        ranges: list[tuple[slice, float]] = []
        previous: ParameterSlot | None = None
        for slot in self._trained_slots_in(elements):
            if previous is not None and (previous.next_start, previous.level) == (
                slot.start,
                slot.level,
            ):
                last, factor = ranges.pop()
                ranges.append((slice(last.start, slot.stop), factor))
            else:
                ranges.append(
                    (slice(slot.start, slot.stop), self.learning_rate_factor(slot, layer_decay))
                )
            previous = slot
        return ranges

    def learning_rate_factor(self, slot: ParameterSlot, layer_decay: float) -> float:
        """Return the learning rate factor of one parameter."""
        decayed = layer_decay ** (self.num_levels - 1 - slot.level)
        return decayed if self.level_factors is None else decayed * self.level_factors[slot.level]

    def freeze_below(self, level: int) -> None:
        """Train only this level and those above; others get no gradient and no updates.

        Errors: UserError if no parameters are left.
        """
        self.first_level = level
        if not self._trained_slots_in(slice(0, self.num_trainable)):
            raise UserError("no trainable parameters after the blocks: train a block as well")
        self._bind()

    def _trained_slots_in(self, elements: slice) -> list[ParameterSlot]:
        return [
            slot
            for slot in self.slots
            if elements.start <= slot.start < elements.stop and self._is_trained(slot)
        ]

    def _is_trained(self, slot: ParameterSlot) -> bool:
        is_frozen = self.level_factors is not None and self.level_factors[slot.level] == 0.0
        return slot.level >= self.first_level and not is_frozen

    def zero_gradient(self) -> None:
        """Clear the gradient before the first micro-batch of a step."""
        self._reset_gradient()
        self._has_sum = False

    def accumulate_gradient(self) -> None:
        """Add the gradient of a micro-batch to the float32 sum, if a step has several.

        In float32 the gradient buffer itself is the sum.
        """
        if self.gradient.dtype == torch.float32:
            return
        if self._gradient_sum is None:
            self._gradient_sum = torch.empty_like(self.gradient, dtype=torch.float32)
        if not self._has_sum:
            self._gradient_sum.zero_()
            self._has_sum = True
        self._zero_missing()
        self._gradient_sum += self.gradient
        self._reset_gradient()

    def step_gradient(self) -> Tensor:
        """Return the gradient (T,) of the step, which is the float32 sum if there is one."""
        if self._gradient_sum is not None and self._has_sum:
            return self._gradient_sum
        self._zero_missing()
        return self.gradient

    def refresh_compute(self, elements: slice = ALL_ELEMENTS) -> None:
        """Copy the master parameters to the computing precision, after an update."""
        if self.compute is not self.master:
            self.compute[elements].copy_(self.master[elements])

    def finish_update(self) -> None:
        """Make the result of an optimiser's step the parameters of the model."""

    @contextmanager
    def whole_tensors(self, slot: ParameterSlot, *buffers: Tensor) -> Generator[list[Tensor]]:
        """Yield a whole parameter in several buffers; changes within the block are kept."""
        yield [self._view(flat, slot) for flat in buffers]

    def matrix_groups(self, *buffers: Tensor) -> Iterator[tuple[list[Tensor], ...]]:
        """Yield the whole trained matrices of several buffers, grouped by shape.

        Fused projections are split into separate matrices. Changes are kept. If the model is
        sharded, each process is given some of the matrices.
        """
        slots = self.trained_slots("matrix")
        yield from group_by_shape(
            [
                [part for s in slots for part in self._view(flat, s).chunk(s.num_parts)]
                for flat in buffers
            ]
        )

    def views(self, flat: Tensor, offset: int = 0) -> dict[str, Tensor]:
        """Return views by parameter name of a buffer with the layout of ``master``.

        The buffer begins at element ``offset`` of the master.
        """
        stop = offset + len(flat)
        return {
            s.name: flat[s.start - offset : s.stop - offset].view(s.shape)
            for s in self.slots
            if offset <= s.start and s.stop <= stop
        }

    def saved_views(self, flat: Tensor, offset: int = 0) -> dict[str, Tensor]:
        """Return the views of a buffer for a checkpoint, which has whole tensors.

        They are those of :meth:`views`, or DTensors if the model is sharded.
        """
        slots = {slot.name: slot for slot in self.slots}
        return {
            name: self._saved(view, slots[name]) for name, view in self.views(flat, offset).items()
        }

    def state_views(self, buffers: Mapping[str, Tensor], offset: int = 0) -> dict[str, Tensor]:
        """Return named views of several buffers, for a checkpoint; see :meth:`saved_views`."""
        return {
            f"{kind}.{name}": view
            for kind, flat in buffers.items()
            for name, view in self.saved_views(flat, offset).items()
        }

    def state_dict(self) -> dict[str, Tensor]:
        """Return the float32 parameters by name, as views; see :meth:`saved_views`."""
        return self.saved_views(self.master)

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Load parameters by name.

        Errors: UserError if names or shapes do not match this model.
        """
        copy_into(self.state_dict(), state)
        self.refresh_compute()

    @contextmanager
    def computing_in_float32(self) -> Generator[None]:
        """Let the model compute with the float32 master and a separate gradient in the block."""
        saved = self.precision, self.compute, self.gradient, self._gradient_sum
        self.precision, self.compute = "float32", self.master
        self.gradient = torch.zeros(self.num_trainable, device=self.master.device)
        self._gradient_sum, self._has_sum = None, False
        self._bind()
        try:
            yield
        finally:
            self.precision, self.compute, self.gradient, self._gradient_sum = saved
            self._bind()

    def release(self) -> None:
        """Give the module plain float32 parameters without gradients again."""
        for hook in self._hooks:
            hook.remove()
        for slot in self.slots:
            parameter = self._parameters[slot.name]
            set_in_place_gradient(parameter, None)
            parameter.data = self._view(self.master, slot)
            parameter.requires_grad_(slot.start < self.num_trainable)

    def _bind(self) -> None:
        self._gradient_views = self.views(self.gradient)
        for slot in self.slots:
            parameter = self._parameters[slot.name]
            set_in_place_gradient(parameter, None)
            parameter.data = self._view(self.compute, slot)
            is_trained = slot.start < self.num_trainable and slot.level >= self.first_level
            parameter.requires_grad_(is_trained)
            if is_trained and not self._is_copied(slot):
                set_in_place_gradient(parameter, self._view(self.gradient, slot))

    def _is_copied(self, slot: ParameterSlot) -> bool:
        tables = self.range("table")
        return slot.stop <= self.num_trainable and not tables.start <= slot.start < tables.stop

    def _register_copy_hook(self, slot: ParameterSlot) -> RemovableHandle:
        def gather(parameter: Tensor) -> None:
            gradient, view = parameter.grad, self._gradient_views[slot.name]
            assert gradient is not None
            gradient = self._local_gradient(gradient)
            if slot.level < self.first_level:
                view.zero_()
            elif slot.name in self._names_with_gradient:
                view.add_(gradient)
            else:
                view.copy_(gradient)
                self._names_with_gradient.add(slot.name)
            parameter.grad = None

        return self._parameters[slot.name].register_post_accumulate_grad_hook(gather)

    def _reset_gradient(self) -> None:
        self.gradient[self.range("table")].zero_()
        self._names_with_gradient.clear()

    def _zero_missing(self) -> None:
        """Set the gradients of parameters that no backward pass reached to 0."""
        for slot in self.slots:
            if self._is_copied(slot) and slot.name not in self._names_with_gradient:
                self._view(self.gradient, slot).zero_()

    def _assign_slots(
        self, roles: Mapping[str, ParameterRole]
    ) -> tuple[list[ParameterSlot], dict[str, int]]:
        """Return the slots, and the end of every group."""
        grouped: dict[str, list[str]] = {group: [] for group in GROUPS}
        for name, parameter in self._parameters.items():
            kind = roles[name].kind if parameter.requires_grad else "frozen"
            grouped[kind if kind in GROUPS else "rest"].append(name)
        levels = parameter_levels(roles)
        slots: list[ParameterSlot] = []
        ends: dict[str, int] = {}
        end = 0
        for group, names in grouped.items():
            for name in names:
                shape = tuple(self._parameters[name].shape)
                local_shape = self._local_shape(shape)
                slots.append(
                    ParameterSlot(
                        name, local_shape, shape, end, roles[name].num_parts, levels[name]
                    )
                )
                end = slots[-1].next_start
            ends[group] = end
        return slots, ends

    def _local_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of the rows of a parameter in these buffers."""
        return shape

    def _initial_value(self, slot: ParameterSlot) -> Tensor:
        """Return the initial rows of a parameter."""
        return self._parameters[slot.name].detach()

    def _make_compute(self) -> tuple[Tensor, Tensor]:
        """Return ``compute`` and ``gradient``."""
        compute = self.master if self.precision == "float32" else self.master.bfloat16()
        return compute, compute.new_zeros(self.num_trainable)

    def _local_gradient(self, gradient: Tensor) -> Tensor:
        """Return the rows of a gradient in these buffers."""
        return gradient

    def _saved(self, view: Tensor, slot: ParameterSlot) -> Tensor:
        """Return the view of a parameter as a checkpoint has it."""
        return view

    @staticmethod
    def _view(flat: Tensor, slot: ParameterSlot) -> Tensor:
        return flat[slot.start : slot.stop].view(slot.shape)


def group_by_shape(buffers: Sequence[Sequence[Tensor]]) -> list[tuple[list[Tensor], ...]]:
    """Return the tensors of several buffers, in the same order in each, grouped by shape."""
    groups: dict[torch.Size, list[tuple[Tensor, ...]]] = {}
    for tensors in zip(*buffers, strict=True):
        groups.setdefault(tensors[0].shape, []).append(tensors)
    return [tuple(map(list, zip(*group, strict=True))) for group in groups.values()]


def _align(num_elements: int) -> int:
    return -(-num_elements // ALIGNMENT) * ALIGNMENT
