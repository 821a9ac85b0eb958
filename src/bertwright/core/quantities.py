"""Numbers with units, as people read them."""

import math
from collections.abc import Sequence


def readable_count(number: int, unit: str = "") -> str:
    """Return a number with three digits, such as ``110 M parameters``; below 1,000 it is exact."""
    return f"{_scaled(number, ('', ' K', ' M', ' B', ' T'), 3)} {unit}".rstrip()


def readable_bytes(num_bytes: float) -> str:
    """Return a size with three digits, such as ``12.0 GB``, which is 12.0e9 bytes."""
    return _scaled(num_bytes, (" bytes", " KB", " MB", " GB", " TB"), 3)


def readable_flops(flops: float) -> str:
    """Return FLOPs with two digits, such as ``2.3e19 FLOPs``."""
    mantissa, exponent = f"{flops:.1e}".split("e")
    return f"{mantissa}e{int(exponent)} FLOPs"


def readable_fraction(fraction: float) -> str:
    """Return a fraction in percent, such as ``85.3 %``."""
    return f"{100 * fraction:.1f} %"


def _scaled(number: float, units: Sequence[str], num_digits: int) -> str:
    """Return a number in the largest unit in which it is at least 1, after rounding."""
    if number < 1000:
        return f"{number:,.0f}{units[0]}"
    rounded = float(f"{number:.{num_digits - 1}e}")
    scale = min(int(math.log10(rounded)) // 3, len(units) - 1)
    value = rounded / 1000**scale
    num_decimals = max(0, num_digits - 1 - int(math.log10(value)))
    return f"{value:,.{num_decimals}f}{units[scale]}"
