"""Rounds of about the same time for processes of different speed."""

from collections.abc import Callable, Iterator, Mapping

from bertwright.timing.interleaved import TimedProcess

ROUND_SECONDS = 2.0
NUM_WARM_UP_STEPS = 3


def interleave(
    processes: Mapping[str, TimedProcess], num_rounds: int, say: Callable[[str], None]
) -> Iterator[dict[str, float]]:
    """Yield the seconds per step of every process, round by round.

    Each runs for about ``ROUND_SECONDS`` per round.
    """
    num_steps: dict[str, int] = {}
    for name, process in processes.items():
        seconds = process.seconds_per_step(1)
        if seconds < ROUND_SECONDS:
            seconds = process.seconds_per_step(NUM_WARM_UP_STEPS)
        num_steps[name] = max(1, round(ROUND_SECONDS / seconds))
    for index in range(num_rounds):
        times = {name: p.seconds_per_step(num_steps[name]) for name, p in processes.items()}
        summary = ", ".join(f"{name} {1e3 * seconds:.0f} ms" for name, seconds in times.items())
        say(f"round {index + 1} of {num_rounds}: {summary}")
        yield times
