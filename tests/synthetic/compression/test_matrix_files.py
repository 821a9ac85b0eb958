"""Matrices in files: their sizes, and the values when they are loaded again."""

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from experiments.compressions.matrix_files import MatrixFormat, load_matrices, save_matrices

FORMATS = [MatrixFormat(p, v) for p in ("all", "bitmap", "columns") for v in ("float32", "int8")]


def matrix(rows: int, columns: int, density: float, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(rows, columns, generator=generator)
    return values * (torch.rand(rows, columns, generator=generator) < density)


@pytest.mark.parametrize("format", FORMATS)
def test_a_file_has_the_size_of_its_matrices_and_names(
    format: MatrixFormat, tmp_path: Path
) -> None:
    matrices = {"a.weight": matrix(12, 7, 0.4), "nothing": torch.zeros(3, 5)}
    header = save_matrices(tmp_path / "m", matrices, format)
    num_bytes = sum(format.num_bytes(values) for values in matrices.values())
    assert (tmp_path / "m").stat().st_size == header + num_bytes
    loaded = load_matrices(tmp_path / "m", format)
    assert loaded.keys() == matrices.keys()
    for name, values in matrices.items():
        largest = values.abs().amax(1, keepdim=True)
        tolerance = largest / 254 * 1.005 if format.values == "int8" else 0 * largest
        assert ((loaded[name] - values).abs() <= tolerance).all(), name


@given(st.integers(1, 40), st.integers(1, 40), st.sampled_from([0.0, 0.1, 0.6, 1.0]))
def test_sizes_by_format(rows: int, columns: int, density: float) -> None:
    values = matrix(rows, columns, density)
    size, num_nonzero = values.numel(), int(values.count_nonzero())
    bitmap = -(-size // 8) + 4 * num_nonzero
    assert MatrixFormat().num_bytes(values) == 4 * size
    assert MatrixFormat(values="int8").num_bytes(values) == size + 4 * rows
    assert MatrixFormat("bitmap").num_bytes(values) == bitmap
    assert MatrixFormat("columns").num_bytes(values) == 8 * num_nonzero + 4 * rows
    assert sum(t.nbytes for t in MatrixFormat("bitmap").pack(values).values()) == bitmap


@pytest.mark.parametrize(
    ("density", "bitmap", "columns"), [(0.6, 1.58, 0.83), (0.1, 7.6, 5.0)], ids=["60 %", "10 %"]
)
def test_compression_ratios_of_pruned_matrices(
    density: float, bitmap: float, columns: float
) -> None:
    values = torch.zeros(768, 3072)
    values.view(-1)[: int(density * values.numel())] = 1
    for positions, expected in (("bitmap", bitmap), ("columns", columns)):
        ratio = 4 * values.numel() / MatrixFormat(positions).num_bytes(values)
        assert ratio == pytest.approx(expected, rel=0.01)


def test_rounding_twice_is_rounding_once() -> None:
    format, values = MatrixFormat(values="int8"), matrix(9, 33, 0.8)
    once = format.unpack(format.pack(values), 9, 33)
    again = format.unpack(format.pack(once), 9, 33)
    assert again.equal(once)
