"""Available CPU cores and memory, and the load."""

import math
import os
import sys
from contextlib import suppress
from pathlib import Path

from bertwright.core.operating_system import load_average, system_memory_bytes


def num_cores() -> int:
    """Return the number of usable cores, limited by CPU affinity and the container's quota."""
    if sys.platform != "linux":
        return os.cpu_count() or 1
    cores, quota = len(os.sched_getaffinity(0)), cpu_quota()
    return cores if quota is None else max(1, min(cores, math.ceil(quota)))


def cpu_quota(root: Path = Path("/sys/fs/cgroup")) -> float | None:
    """Return the CPU quota of this process's control group, in cores; None if unlimited."""
    with suppress(OSError, ValueError):  # version 2
        quota, period = (root / "cpu.max").read_text().split()
        return None if quota == "max" else int(quota) / int(period)
    with suppress(OSError, ValueError):  # version 1
        quota = int((root / "cpu" / "cpu.cfs_quota_us").read_text())
        period = int((root / "cpu" / "cpu.cfs_period_us").read_text())
        return None if quota <= 0 else quota / period
    return None


def memory_bytes(root: Path = Path("/sys/fs/cgroup")) -> int:
    """Return the memory of this machine, or of the process's container, in bytes."""
    total = system_memory_bytes()
    with suppress(OSError, ValueError):
        return min(total, int((root / "memory.max").read_text()))
    return total


def is_idle() -> bool:
    """Return whether the load average leaves enough cores for this process; True if unknown."""
    runnable = load_average()
    return runnable is None or runnable < 0.75 * num_cores()
