"""Weights of few bits: on a grid, as near as it is said, and back from a file bit for bit."""

import json
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from bertwright.errors import UserError
from bertwright.model.folder import read_tensors, save_weights
from bertwright.model.grids import Grid, steps_within
from bertwright.model.packing import as_bytes, from_bytes, num_bytes, packed_weight, unpacked_weight

SCHEMES = ("symmetric", "asymmetric")

grids = st.builds(
    Grid, st.integers(2, 8), st.integers(1, 7), st.integers(1, 9), st.sampled_from(SCHEMES)
)


def drawn(seed: int, rows: int = 6, columns: int = 8, shift: float = 0.3) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, columns, generator=generator) * 0.1 + shift * 0.1


def over(grid: Grid, weight: Tensor) -> Tensor:
    """The scale at every weight."""
    groups = grid.cut(weight)
    return grid.joined(grid.steps(groups).scale.expand_as(groups), weight.shape)


@given(grids, st.integers(0, 10**6), st.floats(-3, 3))
def test_what_is_rounded_is_near_stays_and_comes_back(grid: Grid, seed: int, shift: float) -> None:
    weight = drawn(seed, shift=shift)
    rounded = grid.rounded(weight)
    scale = over(grid, weight)
    # A scale is exact in 16 bits: what a step has to do with a group is not.
    assert ((rounded - weight).abs() <= scale * (0.5 + 1e-4)).all()
    of_groups = grid.cut(rounded).transpose(1, 2).flatten(2).flatten(0, 1)
    assert max(len(group.unique()) for group in of_groups) <= 2**grid.bits
    packed = packed_weight(rounded, grid)
    assert packed is not None
    assert torch.equal(unpacked_weight(packed, grid, rounded.shape), rounded)
    if grid.scheme == "symmetric":
        assert torch.equal(grid.rounded(rounded), rounded)
    groups = grid.cut(weight)
    steps = grid.steps(groups)
    assert torch.equal(steps.rounded(steps.rounded(groups)), steps.rounded(groups))


def test_a_half_goes_to_the_even_number() -> None:
    steps = steps_within(torch.tensor(-127.0), torch.tensor(127.0), 8, "symmetric")
    values = torch.tensor([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 126.5, 127.5, 1000.0, -1000.0])
    expected = torch.tensor([-2.0, -2.0, -0.0, 0.0, 2.0, 2.0, 126.0, 127.0, 127.0, -127.0])
    assert steps.scale == 1
    assert torch.equal(steps.levels(values), expected)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_scales_are_those_of_the_papers(scheme: str) -> None:
    low, high = torch.tensor([-0.3, 0.2, 0.0]), torch.tensor([0.7, 0.9, 0.0])
    found = steps_within(low, high, 4, scheme)
    # 0 is always within.
    wanted = [0.7 / 7, 0.9 / 7, 1.0] if scheme == "symmetric" else [1.0 / 15, 0.9 / 15, 1.0]
    torch.testing.assert_close(found.scale, torch.tensor(wanted), rtol=2**-14, atol=0)
    if scheme == "asymmetric":
        assert found.lowest.tolist() == [-4.0, 0.0, 0.0]
        assert (found.highest - found.lowest).tolist() == [15.0] * 3


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("bits", [2, 8])
def test_nothing_but_zeros_is_on_every_grid(bits: int, scheme: str) -> None:
    grid, zeros = Grid(bits, 2, 3, scheme), torch.zeros(4, 7)
    assert torch.equal(grid.rounded(zeros), zeros)
    packed = packed_weight(zeros, grid)
    assert packed is not None
    assert torch.equal(packed["scale"], torch.ones(2, 3))
    assert torch.equal(unpacked_weight(packed, grid, zeros.shape), zeros)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("bits", range(2, 9))
def test_no_bound_grows_where_a_group_is_split(bits: int, scheme: str) -> None:
    weight = drawn(1, 32, 64)
    for larger, smaller in pairwise([(32, 64), (8, 64), (1, 64), (1, 32), (1, 8), (1, 1)]):
        before, after = (over(Grid(bits, *size, scheme), weight) for size in (larger, smaller))
        assert (after <= before).all()


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_mean_error_grows_as_bits_and_groups_go(scheme: str) -> None:
    weight = torch.stack([drawn(seed, 16, 64) for seed in range(20)]).flatten(0, 1)
    errors = {
        (bits, groups): (Grid(bits, 1, 64 // groups, scheme).rounded(weight) - weight)
        .abs()
        .mean()
        .item()
        for bits in (8, 6, 4, 3, 2)
        for groups in (1, 4, 16)
    }
    for (bits, groups), error in errors.items():
        fewer = {8: 6, 6: 4, 4: 3, 3: 2}.get(bits)
        assert fewer is None or error < errors[fewer, groups]
        assert groups == 1 or error < errors[bits, groups // 4]


@given(st.integers(2, 8), st.lists(st.integers(0, 255), max_size=50))
def test_bits_stand_side_by_side(bits: int, numbers: list[int]) -> None:
    codes = torch.tensor([number % 2**bits for number in numbers], dtype=torch.uint8)
    packed = as_bytes(codes, bits)
    assert len(packed) == -(-len(codes) * bits // 8)
    assert torch.equal(from_bytes(packed, bits, len(codes)), codes)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("bits", [2, 3, 5, 8])
def test_a_file_is_as_large_as_its_formula_and_holds_what_was_written(
    tmp_path: Path, bits: int, scheme: str
) -> None:
    rows, columns, group = 24, 40, 16
    net, grid = nn.Linear(columns, rows), Grid(bits, 1, group, scheme)
    net.weight.data = grid.rounded(drawn(3, rows, columns))
    path = tmp_path / "weights.safetensors"
    save_weights(path, net, {"weight": grid})
    header = 8 + int.from_bytes(path.read_bytes()[:8], "little")
    number, groups = rows * columns, rows * 3
    zeros = groups if scheme == "asymmetric" else 0
    formula = number * bits // 8 + 4 * groups + zeros + 4 * rows
    assert path.stat().st_size - header == formula == num_bytes(net, {"weight": grid})
    found = read_tensors(path)
    assert {name: tensor.dtype for name, tensor in found.items()} == dict.fromkeys(
        ("weight", "bias"), torch.float32
    )
    assert all(torch.equal(found[name], tensor) for name, tensor in net.state_dict().items())


def test_what_stands_on_no_grid_is_stored_whole(tmp_path: Path) -> None:
    net, grid = nn.Linear(8, 4), Grid(4, 1, 8)
    assert packed_weight(net.weight.detach(), grid) is None
    assert num_bytes(net, {"weight": grid}) == num_bytes(net) == 4 * (8 * 4 + 4)
    save_weights(tmp_path / "w.safetensors", net, {"weight": grid})
    assert torch.equal(read_tensors(tmp_path / "w.safetensors")["weight"], net.weight)


def test_a_damaged_file_is_said(tmp_path: Path) -> None:
    net, grid, path = nn.Linear(8, 4), Grid(4, 1, 8), tmp_path / "w.safetensors"
    net.weight.data = grid.rounded(net.weight.data)
    save_weights(path, net, {"weight": grid})
    about = json.dumps({"weight": {**asdict(grid), "shape": [4, 8]}})
    whole = load_file(path)
    for changed in ({"weight.codes": whole["weight.codes"][:3]}, {"weight.codes": None}):
        tensors = {name: t for name, t in (whole | changed).items() if t is not None}
        save_file(tensors, path, metadata={"packed": about})
        with pytest.raises(UserError, match="damaged"):
            read_tensors(path)
