"""Measured matrix multiplication throughput, and the default precision chosen by it.

A processor with bfloat16 instructions may still multiply float32 faster: a virtual machine on a
Xeon without AMX reached 168 GFLOP/s in bfloat16 and 337 in float32. So the throughput is measured
once for each processor, number of threads and PyTorch version, and kept in the cache folder.
"""

import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from bertwright.core.cache_folder import read_cache, update_cache
from bertwright.core.config import Precision
from bertwright.core.hardware import is_idle
from bertwright.runtime.device import cpu_description
from bertwright.runtime.process import THREADS_FILE, synchronise, threads_cache_key

if TYPE_CHECKING:
    import torch

MATMUL_PEAKS_FILE, MATMUL_THROUGHPUT_FILE = "matmul_peaks.json", "matmul_throughput.json"

_PEAK_SHAPES = {
    "cpu": ((4096, 768, 3072), (2048, 2048, 2048)),
    "cuda": ((16384, 4096, 4096), (8192, 8192, 8192)),
}
"""Sizes (m, k, n) of products, large enough to reach the peak and small enough to repeat."""

THROUGHPUT_SHAPE = (2048, 256, 1024)
"""Size (m, k, n) of a product in the feed-forward layer of a small encoder."""

MEASUREMENT_SECONDS = 0.15
"""Time to measure one precision, in seconds."""

MAX_SLOWDOWN = 8.0
"""A precision that is this many times slower than float32 is not measured further."""

NEAR_BEST_FRACTION = 0.95
"""Fraction of the best throughput that counts as equally fast."""


@dataclass(frozen=True)
class MatmulThroughput:
    """A throughput of matrix products in FLOP/s for each precision; 0 if unsupported.

    It is measured at a medium size, with the threads of this process.
    """

    float32: float
    bf16: float
    int8: float

    def describe(self) -> str:
        """Return a text such as ``float32 173, bf16 402, int8 754 GFLOP/s``."""
        rates = ", ".join(f"{name} {rate / 1e9:,.0f}" for name, rate in asdict(self).items())
        return f"{rates} GFLOP/s"


def supports_bfloat16(device: "torch.device | str" = "cpu") -> bool:
    """Return whether a device has bfloat16 multiply instructions."""
    import torch

    if torch.device(device).type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    if not torch.backends.mkldnn.is_available():
        return False
    instructions: Callable[[], bool] = getattr(
        torch.cpu, "_is_avx512_bf16_supported", lambda: False
    )
    # oneDNN may be limited to fewer instructions than the processor has.
    return bool(instructions()) and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def default_precision(device: "torch.device | str" = "cpu") -> Precision:
    """Return the faster precision of a device; bf16 on a GPU that supports it."""
    import torch

    if torch.device(device).type == "cuda":
        return "bf16" if supports_bfloat16(device) else "float32"
    rates = matmul_throughput()
    return "bf16" if rates.bf16 > rates.float32 else "float32"


def explain_precision(precision: Precision, device: "torch.device | str" = "cpu") -> str:
    """Return why a precision is the default of a device, or that it is not."""
    import torch

    default = default_precision(device)
    reason = f"of this device, {default} is faster"
    if torch.device(device).type == "cpu":
        reason = f"measured here: {matmul_throughput().describe()}"
    return reason if precision == default else f"not the faster one ({reason})"


def matmul_throughput() -> MatmulThroughput:
    """Return the CPU's throughput with the threads of this process, measured once."""
    import torch

    return _cached_matmul_throughput(
        f"{cpu_description()}, {torch.get_num_threads()} threads, torch {torch.__version__}"
    )


@cache
def _cached_matmul_throughput(machine: str) -> MatmulThroughput:
    value = read_cache(MATMUL_THROUGHPUT_FILE).get(machine)
    entry = value if isinstance(value, dict) else {}
    cached = {name: _as_float(entry.get(name)) for name in MatmulThroughput.__annotations__}
    if entry.get("idle") is True and cached["float32"] > 0:
        return MatmulThroughput(**cached)
    # Other programs only lower a throughput; on a busy machine the next process measures again.
    measured = asdict(measure_matmul_throughput())
    rates = {name: max(rate, cached[name]) for name, rate in measured.items()}
    idle = is_idle()
    update_cache(MATMUL_THROUGHPUT_FILE, {machine: {**rates, "idle": idle}})
    if idle and "OMP_NUM_THREADS" not in os.environ:
        update_cache(THREADS_FILE, {threads_cache_key(): measure_num_threads()})
    return MatmulThroughput(**rates)


def _as_float(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def measure_num_threads(seconds: float = MEASUREMENT_SECONDS) -> int:
    """Return PyTorch's number of threads, or half of it if half is nearly as fast."""
    import torch

    threads = torch.get_num_threads()
    candidates = sorted({threads, max(1, threads // 2)})
    product = _float_matmul("float32")
    times: dict[int, list[float]] = {number: [] for number in candidates}
    try:
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            for number in candidates:
                torch.set_num_threads(number)
                product()
                times[number].append(_time_call(product))
    finally:
        torch.set_num_threads(threads)
    fastest = min(_low_quantile(values) for values in times.values())
    return next(n for n in candidates if _low_quantile(times[n]) <= fastest / NEAR_BEST_FRACTION)


def measure_matmul_throughput(seconds: float = MEASUREMENT_SECONDS) -> MatmulThroughput:
    """Measure all precisions in alternation, each for ``seconds``."""
    products = {"float32": _float_matmul("float32"), "bf16": _float_matmul("bfloat16")}
    if (int8_product := _int8_matmul()) is not None:
        products["int8"] = int8_product
    for product in products.values():
        product()
    first = {name: _time_call(product) for name, product in products.items()}
    times = {name: [elapsed] for name, elapsed in first.items()}
    end = time.perf_counter() + seconds * len(products)
    repeated = [n for n, elapsed in first.items() if elapsed <= MAX_SLOWDOWN * first["float32"]]
    while time.perf_counter() < end:
        for name in repeated:
            times[name].append(_time_call(products[name]))
    m, k, n = THROUGHPUT_SHAPE
    rates = {name: 2.0 * m * k * n / _low_quantile(values) for name, values in times.items()}
    return MatmulThroughput(**{"int8": 0.0, **rates})


def _low_quantile(times: list[float]) -> float:
    """Return the 20 % quantile of times, as other programs can only lengthen them."""
    return sorted(times)[len(times) // 5]


def _time_call(product: Callable[[], Any]) -> float:
    start = time.perf_counter()
    product()
    return time.perf_counter() - start


def _float_matmul(dtype_name: str) -> Callable[[], Any]:
    import torch

    m, k, n = THROUGHPUT_SHAPE
    dtype: torch.dtype = getattr(torch, dtype_name)
    left, right = torch.randn(m, k, dtype=dtype), torch.randn(n, k, dtype=dtype)
    return lambda: torch.nn.functional.linear(left, right)


def _int8_matmul() -> Callable[[], Any] | None:
    """Return a matrix product with oneDNN's int8 kernel; None if it is unsupported."""
    import torch

    if not torch.backends.mkldnn.is_available():
        return None
    m, k, n = THROUGHPUT_SHAPE
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


def measure_matmul_peak(
    precision: Precision, device: "torch.device | str" = "cpu", seconds: float = 0.5
) -> float:
    """Measure the FLOP/s of large matrix products.

    The result is the 90 % quantile: the maximum may be an outlier, and other programs slow most
    products down. A device without bfloat16 instructions is measured in float32, because an
    emulated product takes half a minute.
    """
    import torch

    device_type = torch.device(device).type
    uses_bfloat16 = precision == "bf16" and supports_bfloat16(device)
    dtype = torch.bfloat16 if uses_bfloat16 else torch.float32
    rates: list[float] = []
    for m, k, n in _PEAK_SHAPES[device_type]:
        left = torch.randn(m, k, device=device, dtype=dtype)
        right = torch.randn(k, n, device=device, dtype=dtype)
        result = torch.empty(m, n, device=device, dtype=dtype)
        end = time.perf_counter() + seconds / len(_PEAK_SHAPES[device_type])
        while time.perf_counter() < end:
            start = time.perf_counter()
            torch.mm(left, right, out=result)
            synchronise(device_type)
            rates.append(2.0 * m * k * n / (time.perf_counter() - start))
    return sorted(rates)[int(0.9 * len(rates))]


_matmul_peaks: dict[str, float] = {}
"""Peaks measured by this process."""


def matmul_peak(precision: Precision, device: "torch.device | str" = "cpu") -> float:
    """Return this machine's peak FLOP/s, the highest measured in this and earlier runs.

    Other programs can only lower it. Each process measures once; the cache folder keeps the
    maximum.
    """
    import torch

    device_type = torch.device(device).type
    name = torch.cuda.get_device_name(device) if device_type == "cuda" else cpu_description()
    threads = f", {torch.get_num_threads()} threads" if device_type == "cpu" else ""
    key = f"{name}{threads}, {precision}, torch {torch.__version__}"
    value = read_cache(MATMUL_PEAKS_FILE).get(key)
    cached = value if isinstance(value, float) else 0.0
    if key not in _matmul_peaks:
        _matmul_peaks[key] = measure_matmul_peak(precision, device)
    measured = _matmul_peaks[key]
    if measured > cached:
        update_cache(MATMUL_PEAKS_FILE, {key: measured})
    return max(measured, cached)
