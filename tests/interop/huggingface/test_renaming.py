"""A rename table reads the same in both directions."""

import pytest
import torch

from bertwright.errors import UserError
from bertwright.interop.huggingface.families import FAMILIES
from bertwright.interop.huggingface.family import Family
from bertwright.interop.huggingface.purposes import POOLER
from bertwright.interop.huggingface.renaming import Table, to_ours, to_theirs

TABLE: Table = (
    ("output.bias", ("decoder.bias",)),
    ("output.table", ("decoder",)),
    ("blocks.#.projection", ("layer.#.query", "layer.#.key", "layer.#.value")),
)


def test_stacked_parts_keep_their_order() -> None:
    parts = {
        f"layer.7.{name}.weight": torch.full((2, 3), float(i))
        for i, name in enumerate(("query", "key", "value"))
    }
    ((name, fused),) = to_ours(TABLE, dict(reversed(parts.items()))).items()
    assert name == "blocks.7.projection.weight"
    assert fused[:, 0].tolist() == [0, 0, 1, 1, 2, 2]


def test_there_and_back() -> None:
    ours = {
        "output.bias": torch.rand(5),
        "output.table.weight": torch.rand(5, 4),
        "blocks.0.projection.weight": torch.rand(12, 4),
        "blocks.10.projection.bias": torch.rand(12),
    }
    back = to_ours(TABLE, to_theirs(TABLE, ours))
    assert back.keys() == ours.keys()
    assert all(torch.equal(back[name], ours[name]) for name in ours)


def test_the_first_row_that_fits_decides() -> None:
    assert list(to_ours(TABLE, {"decoder.bias": torch.zeros(1)})) == ["output.bias"]


def test_a_missing_part_is_named() -> None:
    with pytest.raises(UserError, match=r"layer\.0\.key\.bias is missing"):
        to_ours(TABLE, {f"layer.0.{name}.bias": torch.zeros(2) for name in ("query", "value")})


@pytest.mark.parametrize("name", ["qa_outputs.weight", "layer.x.query.weight", "layer.0"])
def test_an_unknown_name_is_named(name: str) -> None:
    with pytest.raises(UserError, match=name):
        to_ours(TABLE, {name: torch.zeros(2)})


@pytest.mark.parametrize(
    ("family", "purpose"),
    [(f, p) for f in FAMILIES.values() for p in (*f.purposes.values(), *f.classifiers)],
    ids=lambda value: value if isinstance(value, str) else value.model_type,
)
def test_every_name_of_every_stock_class_comes_back(family: Family, purpose: str) -> None:
    table = family.table(purpose)
    # A lone pooler has no place where a head is made of it.
    ours = {f"{name}.weight".replace("#", "3") for name, _ in table if name != POOLER}
    back = to_ours(table, to_theirs(table, {name: torch.zeros(6, 2) for name in ours}))
    assert back.keys() == ours
