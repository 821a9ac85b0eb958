"""Quantization-aware training: rounded weights, and observed ranges of activations."""

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from bertwright.models.quantized_weights import QuantizationGrid
from bertwright.tasks.adapters.parametrisation import WeightParametrisation
from bertwright.tasks.adapters.quantization.fake_quantize import (
    FakeQuantize,
    StaticFakeQuantize,
    fake_quantize_weight,
)
from bertwright.tasks.adapters.quantization.observers import ActivationRangeObserver, ObserverConfig
from bertwright.training.callbacks.callback import Callback
from bertwright.training.clock import Progress


class QuantizationAwareTraining(WeightParametrisation):
    """A parametrisation with rounded weights and observed ranges of activations."""

    def __init__(
        self,
        grids: Mapping[str, QuantizationGrid],
        fake_quantizers: Sequence[FakeQuantize],
        observer: ObserverConfig | None,
        clips_gradients: bool,
        start_fraction: float,
        freeze_fraction: float,
    ) -> None:
        super().__init__()
        self.grids, self.clips_gradients = grids, clips_gradients
        self.start_fraction, self.freeze_fraction = start_fraction, freeze_fraction
        # In a tuple, so that these modules of the encoder are not registered with this module.
        self._fake_quantizers = tuple(fake_quantizers)
        self.has_inner_hooks = bool(fake_quantizers)
        self.observation = ObservationState()
        self._observer_hooks = tuple(
            ObserverHook(self.observation, fake_quantizer, observer)
            for fake_quantizer in fake_quantizers
            if observer is not None and isinstance(fake_quantizer, StaticFakeQuantize)
        )
        self.observers = nn.ModuleList(hook.range_observer for hook in self._observer_hooks)
        self.callbacks = [_QuantizationSchedule(self)]

    @property
    def is_final(self) -> bool:
        return self.observation.is_enabled

    def init_parameters(self, seed: int, weights: Mapping[str, Tensor]) -> None:
        self.observation.is_enabled, self.observation.is_observing = self.start_fraction <= 0, False
        for hook in self._observer_hooks:
            hook.reset()
        for fake_quantizer in self._fake_quantizers:
            fake_quantizer.is_enabled.fill_(
                self.observation.is_enabled and not isinstance(fake_quantizer, StaticFakeQuantize)
            )

    def update(self, fraction: float) -> None:
        """Enable quantization and freeze ranges when ``fraction`` of the training is due for it."""
        self.observation.is_enabled = fraction >= self.start_fraction
        self.observation.updates_ranges = fraction < self.freeze_fraction
        for hook in self._observer_hooks:
            hook.apply_range()
        for fake_quantizer in self._fake_quantizers:
            if not isinstance(fake_quantizer, StaticFakeQuantize):
                fake_quantizer.is_enabled.fill_(self.observation.is_enabled)

    @contextmanager
    def forward_context(
        self, document_ids: Tensor | None, output_positions: Tensor | None
    ) -> Generator[None]:
        state = self.observation
        state.attention_mask = None if document_ids is None else document_ids >= 0
        state.output_positions = output_positions
        state.is_observing = state.updates_ranges
        try:
            yield
        finally:
            state.is_observing, state.attention_mask, state.output_positions = False, None, None

    def forward(self, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        if not self.observation.is_enabled:
            return {}
        return {
            name: fake_quantize_weight(weights[name], grid, self.clips_gradients)
            for name, grid in self.grids.items()
        }


@dataclass
class ObservationState:
    """The state shared by all observer hooks.

    ``is_observing`` is True within a training forward pass; ``attention_mask`` (B, L) and the flat
    ``output_positions`` (M,) then describe its batch.
    """

    is_enabled: bool = False
    updates_ranges: bool = True
    is_observing: bool = False
    attention_mask: Tensor | None = None
    output_positions: Tensor | None = None

    def at_real_positions(self, values: Tensor) -> Tensor:
        """Return the values (N, parts, w) at real positions of values (..., parts, w)."""
        shape = values.shape[:-2]
        if self.attention_mask is None:
            return values.flatten(0, -3)
        if shape == self.attention_mask.shape:
            return values[self.attention_mask]
        if self.output_positions is not None and shape == self.output_positions.shape:
            return values[self.attention_mask.flatten()[self.output_positions]]
        return values.flatten(0, -3)


class ObserverHook:
    """A hook that observes the values in a fake quantizer and sets its range."""

    def __init__(
        self,
        observation: ObservationState,
        fake_quantizer: StaticFakeQuantize,
        observer: ObserverConfig,
    ) -> None:
        self._observation, self._fake_quantizer = observation, fake_quantizer
        self.range_observer: ActivationRangeObserver = observer.build(
            fake_quantizer.num_parts, fake_quantizer.scheme
        )
        fake_quantizer.observer_hook = self.observe

    def reset(self) -> None:
        """Discard all observations."""
        self.range_observer.to(self._fake_quantizer.is_enabled.device).reset()
        for buffer in self._fake_quantizer.buffers():
            buffer.zero_()

    @torch.no_grad()
    def observe(self, values: Tensor) -> None:
        """Observe values (..., parts, w) before rounding."""
        if self._observation.is_observing:
            self.range_observer.update(self._observation.at_real_positions(values))
            self.apply_range()

    @torch.no_grad()
    def apply_range(self) -> None:
        """Set the range of the fake quantizer to the observed one."""
        low, high = self.range_observer.value_range()
        self._fake_quantizer.low.copy_(low)
        self._fake_quantizer.high.copy_(high)
        self._fake_quantizer.is_enabled.fill_(
            self._observation.is_enabled and int(self.range_observer.count) > 0
        )


class _QuantizationSchedule(Callback):
    """The callback that updates quantization-aware training and stores its observers."""

    name = "quantised"

    def __init__(self, training: QuantizationAwareTraining) -> None:
        self._training = training

    def before_step(self, progress: Progress) -> None:
        self._training.update(progress.fraction)

    def state(self) -> dict[str, Tensor]:
        return dict(self._training.observers.state_dict())

    def load(self, state: Mapping[str, Tensor]) -> None:
        self._training.observers.load_state_dict(dict(state))
