"""Maps between layers of a student and its teacher."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from bertwright.compression.distillation.losses.layers import LayerMap
from bertwright.core.errors import UserError


@pytest.mark.parametrize(
    ("layer_map", "sizes", "expected"),
    [
        # PKD's two maps for six and three layers of twelve (Sun et al. 2019).
        (LayerMap(subset="but-last"), (6, 12), [(1, 2), (2, 4), (3, 6), (4, 8), (5, 10)]),
        (LayerMap(subset="but-last"), (3, 12), [(1, 4), (2, 8)]),
        (LayerMap(rule="last", subset="but-last"), (3, 12), [(1, 10), (2, 11)]),
        # TinyBERT's for four of twelve (Jiao et al. 2020).
        (LayerMap(embeddings=True), (4, 12), [(0, 0), (1, 3), (2, 6), (3, 9), (4, 12)]),
        (LayerMap(subset="last"), (6, 12), [(6, 12)]),
        (LayerMap(rule="first"), (2, 4), [(1, 1), (2, 2)]),
        (LayerMap(pairs="1-4 2-8"), (2, 12), [(1, 4), (2, 8)]),
    ],
)
def test_published_maps(
    layer_map: LayerMap, sizes: tuple[int, int], expected: list[tuple[int, int]]
) -> None:
    assert layer_map.layer_pairs(*sizes) == expected


@given(st.integers(1, 24), st.integers(0, 24), st.sampled_from(["uniform", "last", "first"]))
def test_layers_keep_their_order_and_exist(student: int, more: int, rule: str) -> None:
    pairs = LayerMap.model_validate({"rule": rule}).layer_pairs(student, student + more)
    assert [layer for layer, _ in pairs] == list(range(1, student + 1))
    others = [other for _, other in pairs]
    assert others == sorted(set(others))
    assert others[0] >= 1
    assert others[-1] <= student + more


def test_invalid_maps_are_refused() -> None:
    with pytest.raises(ValidationError, match="is not a list of layer pairs"):
        LayerMap(pairs="1:2")
    with pytest.raises(UserError, match="no layers 3 and 4: the student has 2"):
        LayerMap(pairs="3-4").layer_pairs(2, 4)
    with pytest.raises(UserError, match="a student with 1 layer leaves no layer pair"):
        LayerMap(subset="but-last").layer_pairs(1, 4)
