"""What a training would take on a machine one can name: hours and money from operations."""

from bertwright.axes import did_you_mean
from bertwright.errors import UserError

PEAK_FLOPS = {
    "v100": 125e12,
    "t4": 65e12,
    "a100": 312e12,
    "a6000": 155e12,
    "l4": 121e12,
    "h100": 989e12,
    "h200": 989e12,
}
"""Dense 16-bit matrix operations per second, from the makers' data sheets."""


def hours(operations: float, gpu: str, utilisation: float) -> float:
    """Hours for so many floating-point operations on one named GPU at a share of its peak."""
    if gpu not in PEAK_FLOPS:
        raise UserError(f"--gpu {gpu} is not in the table{did_you_mean(gpu, PEAK_FLOPS)}")
    if not 0.0 < utilisation <= 1.0:
        raise UserError(f"--utilisation {utilisation} must lie between 0 and 1")
    return operations / (PEAK_FLOPS[gpu] * utilisation) / 3600
