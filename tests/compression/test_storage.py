"""Matrices on a disk: as large as was told, and the same when they are read again."""

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bertwright.compression.storage import Form, load_matrices, save_matrices

FORMS = [Form(p, v) for p in ("all", "bitmap", "columns") for v in ("float32", "int8")]


def matrix(rows: int, columns: int, kept: float, seed: int = 0) -> torch.Tensor:
    draw = torch.Generator().manual_seed(seed)
    values = torch.randn(rows, columns, generator=draw)
    return values * (torch.rand(rows, columns, generator=draw) < kept)


@pytest.mark.parametrize("form", FORMS)
def test_a_file_is_as_large_as_its_matrices_and_their_names(form: Form, tmp_path: Path) -> None:
    matrices = {"a.weight": matrix(12, 7, 0.4), "nothing": torch.zeros(3, 5)}
    header = save_matrices(tmp_path / "m", matrices, form)
    told = sum(form.num_bytes(each) for each in matrices.values())
    assert (tmp_path / "m").stat().st_size == header + told
    read = load_matrices(tmp_path / "m", form)
    assert read.keys() == matrices.keys()
    for name, each in matrices.items():
        greatest = each.abs().amax(1, keepdim=True)
        within = greatest / 254 * 1.005 if form.values == "int8" else 0 * greatest
        assert ((read[name] - each).abs() <= within).all(), name


@given(st.integers(1, 40), st.integers(1, 40), st.sampled_from([0.0, 0.1, 0.6, 1.0]))
def test_what_matrices_take(rows: int, columns: int, kept: float) -> None:
    own = matrix(rows, columns, kept)
    size, left = own.numel(), int(own.count_nonzero())
    assert Form().num_bytes(own) == 4 * size
    assert Form(values="int8").num_bytes(own) == size + 4 * rows
    assert Form("bitmap").num_bytes(own) == -(-size // 8) + 4 * left
    assert Form("columns").num_bytes(own) == 8 * left + 4 * rows
    assert sum(t.nbytes for t in Form("bitmap").packed(own).values()) == -(-size // 8) + 4 * left


@pytest.mark.parametrize(
    ("kept", "bitmap", "columns"), [(0.6, 1.58, 0.83), (0.1, 7.6, 5.0)], ids=["60 %", "10 %"]
)
def test_how_much_smaller_what_is_pruned_is(kept: float, bitmap: float, columns: float) -> None:
    own = torch.zeros(768, 3072)
    own.view(-1)[: int(kept * own.numel())] = 1
    for places, smaller in (("bitmap", bitmap), ("columns", columns)):
        found = 4 * own.numel() / Form(places).num_bytes(own)
        assert found == pytest.approx(smaller, rel=0.01)


def test_rounded_twice_is_rounded_once() -> None:
    form, own = Form(values="int8"), matrix(9, 33, 0.8)
    once = form.unpacked(form.packed(own), 9, 33)
    again = form.unpacked(form.packed(once), 9, 33)
    assert again.equal(once)
