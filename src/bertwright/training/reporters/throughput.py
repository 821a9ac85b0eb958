"""The measurement of throughput."""

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from bertwright.training.callbacks.callback import Callback, StepReport
from bertwright.training.clock import Progress

WINDOW_SECONDS = 15.0
"""Length of the window in which the speed is measured."""


class ThroughputMeter(Callback):
    """Measures steps and tokens per second, and the FLOPs utilisation of the hardware.

    ``flops_per_token`` has one number per phase; ``peak_flops`` is per second. Without them the
    utilisation is unknown. List this callback before those that read it.
    """

    def __init__(
        self,
        flops_per_token: Sequence[float] = (),
        peak_flops: float | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._flops_per_token = flops_per_token
        self._peak_flops = peak_flops
        self._now = now
        self._samples: deque[tuple[float, int, int]] = deque()
        self._phase = 0

    def report_step(self, report: StepReport) -> None:
        if report.progress.phase != self._phase:
            self._samples.clear()
            self._phase = report.progress.phase
        self._samples.append((self._now(), report.num_tokens, report.progress.step))
        while (
            len(self._samples) > 2 and self._samples[-1][0] - self._samples[0][0] > WINDOW_SECONDS
        ):
            self._samples.popleft()

    def report_evaluation(self, progress: Progress, metrics: Mapping[str, float]) -> None:
        self._samples.clear()

    def tokens_per_second(self) -> float | None:
        """Return the tokens per second; None before the second step."""
        return self._per_second(1)

    def steps_per_second(self) -> float | None:
        """Return the steps per second; None before the second step."""
        return self._per_second(2)

    def flops_utilisation(self) -> float | None:
        """Return the used fraction of peak FLOPs; None if unknown."""
        speed = self.tokens_per_second()
        if speed is None or self._peak_flops is None or not self._flops_per_token:
            return None
        return speed * self._flops_per_token[self._phase] / self._peak_flops

    def _per_second(self, field: int) -> float | None:
        if len(self._samples) < 2 or self._samples[-1][0] <= self._samples[0][0]:
            return None
        first, last = self._samples[0], self._samples[-1]
        return (last[field] - first[field]) / (last[0] - first[0])
