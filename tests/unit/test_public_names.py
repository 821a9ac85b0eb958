"""The public API."""

import pytest

import bertwright as bw


@pytest.mark.parametrize("name", bw.__all__)
def test_public_names_exist(name: str) -> None:
    assert getattr(bw, name) is not None
    assert name in dir(bw)


def test_the_core_has_at_most_fifteen_names() -> None:
    assert len(bw.__all__) <= 15


def test_unknown_name_raises_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'bertwright' has no attribute 'lode'"):
        bw.lode  # noqa: B018
