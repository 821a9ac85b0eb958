"""How fast this machine multiplies matrices, and the precision that follows from it.

A processor may have instructions for bfloat16 and still multiply float32 faster: a cloud guest on a
Xeon without AMX reached 168 GFLOP/s in bfloat16 and 337 in float32. So the precision is chosen by
measurement, once for each processor, number of threads and PyTorch, and remembered in the cache
folder.
"""

import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from bertwright.axes import Precision
from bertwright.machine.cache import recall, remember
from bertwright.machine.cores import is_quiet
from bertwright.machine.description import processor
from bertwright.machine.process import THREADS_FILE, synchronise, threads_key

if TYPE_CHECKING:
    import torch

PEAKS_FILE, RATES_FILE = "matrix_peaks.json", "product_rates.json"

_PEAK_SHAPES = {
    "cpu": ((4096, 768, 3072), (2048, 2048, 2048)),
    "cuda": ((16384, 4096, 4096), (8192, 8192, 8192)),
}
"""Sizes (m, k, n) that are large enough to reach the peak and small enough to repeat."""

RATE_SHAPE = (2048, 256, 1024)
"""The size (m, k, n) of a product in the feed-forward of a small encoder."""

RATE_SECONDS = 0.15
"""How long the products of one precision are repeated."""

HOPELESS = 8.0
"""A precision whose first product takes so many times as long as float32's is not repeated."""


NEARLY = 0.95
"""The part of a rate that is as good as the whole."""


@dataclass(frozen=True)
class Rates:
    """Operations per second of matrix products of a middle size, by precision, with the threads of
    this process; 0 where the processor cannot multiply in one."""

    float32: float
    bf16: float
    int8: float

    def described(self) -> str:
        """Return the rates in words: ``float32 173, bf16 402, int8 754 GFLOP/s``."""
        rates = ", ".join(f"{name} {rate / 1e9:,.0f}" for name, rate in asdict(self).items())
        return f"{rates} GFLOP/s"


def multiplies_bfloat16(device: "torch.device | str" = "cpu") -> bool:
    """Return whether a device has instructions that multiply bfloat16."""
    import torch

    if torch.device(device).type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    if not torch.backends.mkldnn.is_available():
        return False
    instructions: Callable[[], bool] = getattr(
        torch.cpu, "_is_avx512_bf16_supported", lambda: False
    )
    # oneDNN may be held to fewer instructions than the processor has.
    return bool(instructions()) and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def usual_precision(device: "torch.device | str" = "cpu") -> Precision:
    """Return the precision in which a device multiplies faster; a card with bfloat16 takes it."""
    import torch

    if torch.device(device).type == "cuda":
        return "bf16" if multiplies_bfloat16(device) else "float32"
    rates = product_rates()
    return "bf16" if rates.bf16 > rates.float32 else "float32"


def reason_for(precision: Precision, device: "torch.device | str" = "cpu") -> str:
    """Return why a precision is the usual one of a device, or that it is not."""
    import torch

    usual = usual_precision(device)
    measured = f"of this device, {usual} is faster"
    if torch.device(device).type == "cpu":
        measured = f"measured here: {product_rates().described()}"
    return measured if precision == usual else f"not the faster one ({measured})"


def product_rates() -> Rates:
    """Return the rates of this processor with the threads of this process, measured once."""
    import torch

    return _product_rates(
        f"{processor()}, {torch.get_num_threads()} threads, torch {torch.__version__}"
    )


@cache
def _product_rates(measured_on: str) -> Rates:
    known = recall(RATES_FILE).get(measured_on)
    entry = known if isinstance(known, dict) else {}
    remembered = {name: _number(entry.get(name)) for name in Rates.__annotations__}
    if entry.get("quiet") is True and remembered["float32"] > 0:
        return Rates(**remembered)
    # Other programs only make a rate lower: beside them it is measured again in the next process.
    now = asdict(measure_rates())
    rates = {name: max(rate, remembered[name]) for name, rate in now.items()}
    quiet = is_quiet()
    remember(RATES_FILE, {measured_on: {**rates, "quiet": quiet}})
    if quiet and "OMP_NUM_THREADS" not in os.environ:
        remember(THREADS_FILE, {threads_key(): useful_threads()})
    return Rates(**rates)


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def useful_threads(seconds: float = RATE_SECONDS) -> int:
    """Return the smallest number of threads, of those PyTorch would take and half of them, that
    multiplies nearly as fast as all of them; for the processes that follow."""
    import torch

    threads = torch.get_num_threads()
    candidates = sorted({threads, max(1, threads // 2)})
    product = _float_product("float32")
    times: dict[int, list[float]] = {number: [] for number in candidates}
    try:
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            for number in candidates:
                torch.set_num_threads(number)
                product()
                times[number].append(_seconds(product))
    finally:
        torch.set_num_threads(threads)
    fastest = min(_low(spent) for spent in times.values())
    return next(n for n in candidates if _low(times[n]) <= fastest / NEARLY)


def measure_rates(seconds: float = RATE_SECONDS) -> Rates:
    """Measure the products of every precision in turns, each for so many seconds."""
    products = {"float32": _float_product("float32"), "bf16": _float_product("bfloat16")}
    if (eight_bits := _eight_bit_product()) is not None:
        products["int8"] = eight_bits
    for product in products.values():
        product()
    first = {name: _seconds(product) for name, product in products.items()}
    times = {name: [spent] for name, spent in first.items()}
    end = time.perf_counter() + seconds * len(products)
    repeated = [n for n, spent in first.items() if spent <= HOPELESS * first["float32"]]
    while time.perf_counter() < end:
        for name in repeated:
            times[name].append(_seconds(products[name]))
    m, k, n = RATE_SHAPE
    rates = {name: 2.0 * m * k * n / _low(spent) for name, spent in times.items()}
    return Rates(**{"int8": 0.0, **rates})


def _low(times: list[float]) -> float:
    """Return the time that one in five falls below: neighbours on the machine only add to it."""
    return sorted(times)[len(times) // 5]


def _seconds(product: Callable[[], Any]) -> float:
    began = time.perf_counter()
    product()
    return time.perf_counter() - began


def _float_product(dtype_name: str) -> Callable[[], Any]:
    import torch

    m, k, n = RATE_SHAPE
    dtype: torch.dtype = getattr(torch, dtype_name)
    left, right = torch.randn(m, k, dtype=dtype), torch.randn(n, k, dtype=dtype)
    return lambda: torch.nn.functional.linear(left, right)


def _eight_bit_product() -> Callable[[], Any] | None:
    """Return a product by oneDNN's kernel in 8 bits, None where PyTorch has none for this
    processor."""
    import torch

    if not torch.backends.mkldnn.is_available():
        return None
    m, k, n = RATE_SHAPE
    left = torch.randint(0, 255, (m, k), dtype=torch.uint8)
    right = torch.randint(-63, 63, (n, k), dtype=torch.int8)
    scales, zeros = torch.ones(n), torch.zeros(n, dtype=torch.int64)
    try:
        packed = torch.ops.onednn.qlinear_prepack(right, [m, k])
    except (RuntimeError, AttributeError):
        return None
    inputs = (left, 1.0, 128, packed, scales, zeros, None)
    return lambda: torch.ops.onednn.qlinear_pointwise(
        *inputs, 1.0, 0, torch.float32, "none", [], ""
    )


def matrix_peak(
    precision: Precision, device: "torch.device | str" = "cpu", seconds: float = 0.5
) -> float:
    """Return the floating-point operations per second of large matrix products, as measured now.

    The rate that one product in ten exceeds: the best of many is luck, and neighbours on the same
    machine slow most of them down. A device without bfloat16 instructions could convert and
    multiply float32: that is its peak, where one product in emulated bfloat16 would take half a
    minute.
    """
    import torch

    kind = torch.device(device).type
    in_bfloat16 = precision == "bf16" and multiplies_bfloat16(device)
    dtype = torch.bfloat16 if in_bfloat16 else torch.float32
    rates: list[float] = []
    for m, k, n in _PEAK_SHAPES[kind]:
        left = torch.randn(m, k, device=device, dtype=dtype)
        right = torch.randn(k, n, device=device, dtype=dtype)
        result = torch.empty(m, n, device=device, dtype=dtype)
        end = time.perf_counter() + seconds / len(_PEAK_SHAPES[kind])
        while time.perf_counter() < end:
            began = time.perf_counter()
            torch.mm(left, right, out=result)
            synchronise(kind)
            rates.append(2.0 * m * k * n / (time.perf_counter() - began))
    return sorted(rates)[int(0.9 * len(rates))]


_peaks: dict[str, float] = {}
"""Those that this process has measured."""


def known_matrix_peak(precision: Precision, device: "torch.device | str" = "cpu") -> float:
    """Return the matrix peak of this machine: the highest of those measured in this and earlier
    runs.

    Neighbours only make it lower, so one quiet moment is enough: a process measures once. The
    highest is kept in the cache folder.
    """
    import torch

    kind = torch.device(device).type
    name = torch.cuda.get_device_name(device) if kind == "cuda" else processor()
    threads = f", {torch.get_num_threads()} threads" if kind == "cpu" else ""
    measured = f"{name}{threads}, {precision}, torch {torch.__version__}"
    remembered = recall(PEAKS_FILE).get(measured)
    known = remembered if isinstance(remembered, float) else 0.0
    if measured not in _peaks:
        _peaks[measured] = matrix_peak(precision, device)
    now = _peaks[measured]
    if now > known:
        remember(PEAKS_FILE, {measured: now})
    return max(now, known)
