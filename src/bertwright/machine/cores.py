"""How many cores this process may use, and how busy they are."""

import math
import os
import sys
from contextlib import suppress
from pathlib import Path


def num_cores() -> int:
    """Return the number of cores that this process may use: by its affinity, and by the quota of
    its container."""
    if sys.platform != "linux":
        return os.cpu_count() or 1
    cores, quota = len(os.sched_getaffinity(0)), cpu_quota()
    return cores if quota is None else max(1, min(cores, math.ceil(quota)))


def cpu_quota(root: Path = Path("/sys/fs/cgroup")) -> float | None:
    """Return the cores' worth of time that the control group of this process may use, None where
    there is no limit."""
    with suppress(OSError, ValueError):  # version 2
        quota, period = (root / "cpu.max").read_text().split()
        return None if quota == "max" else int(quota) / int(period)
    with suppress(OSError, ValueError):  # version 1
        quota = int((root / "cpu" / "cpu.cfs_quota_us").read_text())
        period = int((root / "cpu" / "cpu.cfs_period_us").read_text())
        return None if quota <= 0 else quota / period
    return None


def load() -> float | None:
    """Return the mean number of runnable processes of the last minute, None where the system does
    not say."""
    try:
        return os.getloadavg()[0]
    except OSError:
        return None


def is_quiet() -> bool:
    """Return whether other programs leave this process its cores, as far as the system says."""
    runnable = load()
    return runnable is None or runnable < 0.75 * num_cores()
