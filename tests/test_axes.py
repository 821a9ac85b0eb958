"""Axes: a choice is found by its kind, and a mistake is answered with what was meant."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from pydantic import Field, ValidationError

from bertwright.axes import Choice, Settings, did_you_mean, explain


class Positions(Choice):
    """An axis."""

    def name(self) -> str:
        raise TypeError


class Learned(Positions):
    kind: Literal["learned"] = "learned"
    size: int = 512

    def name(self) -> str:
        return "learned"


class Rotary(Positions):
    kind: Literal["rotary"] = "rotary"
    base: float = 1e4
    scale: Annotated[float, Field(alias="by")] = 1.0

    def name(self) -> str:
        return f"rotary with base {self.base:g}"


class Encoder(Settings):
    positions: Positions = Learned()
    width: int = 128


class Recipe(Settings):
    encoder: Encoder = Encoder()
    extra: dict[str, Positions] = Field(default_factory=dict)


def test_a_choice_is_found_by_its_kind() -> None:
    recipe = Recipe.model_validate({"encoder": {"positions": {"kind": "rotary", "base": 100}}})
    assert recipe.encoder.positions.name() == "rotary with base 100"


def test_a_bare_kind_takes_the_defaults() -> None:
    assert Recipe.model_validate({"encoder": {"positions": "rotary"}}).encoder.positions == Rotary()


def test_a_choice_already_made_is_taken_as_it_is() -> None:
    choice = Learned(size=7)
    assert Encoder(positions=choice).positions is choice


def test_what_is_dumped_can_be_read_again() -> None:
    recipe = Recipe(encoder=Encoder(positions=Rotary(by=2.0)), extra={"a": Learned(size=3)})
    dumped = recipe.model_dump(mode="json", by_alias=True)
    assert dumped["encoder"]["positions"] == {"kind": "rotary", "base": 1e4, "by": 2.0}
    assert Recipe.model_validate(dumped) == recipe


def test_a_plugin_needs_only_to_be_imported() -> None:
    class Spiral(Positions):
        kind: Literal["spiral"] = "spiral"

    class TightSpiral(Spiral):
        kind: Literal["tight-spiral"] = "tight-spiral"  # type: ignore[assignment]

    assert isinstance(Encoder.model_validate({"positions": "spiral"}).positions, Spiral)
    assert isinstance(Encoder.model_validate({"positions": "tight-spiral"}).positions, TightSpiral)


def test_a_kind_is_a_value_of_its_own_axis_only() -> None:
    class Norm(Choice):
        """Another axis."""

    class LayerNorm(Norm):
        kind: Literal["layernorm"] = "layernorm"

    assert Norm.kinds() == {"layernorm": LayerNorm}
    assert "layernorm" not in Positions.kinds()


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"encodr": {}}, "r.yaml: has no key 'encodr': did you mean 'encoder'?"),
        ({"encoder": {"widht": 3}}, "r.yaml: encoder: has no key 'widht': did you mean 'width'?"),
        (
            {"encoder": {"positions": {"kind": "learned", "sze": 3}}},
            "r.yaml: encoder.positions: has no key 'sze': did you mean 'size'?",
        ),
        (
            {"extra": {"a": {"kind": "rotary", "bass": 3}}},
            "r.yaml: extra.a: has no key 'bass': did you mean 'base'?",
        ),
        (
            {"encoder": {"positions": "learnt"}},
            "r.yaml: encoder.positions: has no kind 'learnt': did you mean 'learned'?",
        ),
        (
            {"encoder": {"width": "wide"}},
            "r.yaml: encoder.width: must be a whole number, not 'wide'",
        ),
    ],
)
def test_a_mistake_is_one_sentence(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Recipe.model_validate(settings)
    message = str(explain(caught.value, "r.yaml"))
    assert message.startswith(sentence)
    assert "\n" not in message


def test_a_choice_without_a_kind_is_told_the_kinds() -> None:
    with pytest.raises(ValidationError, match=r"needs a kind, one of: .*learned, rotary"):
        Encoder.model_validate({"positions": {"size": 3}})


def test_settings_do_not_change() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        Encoder().width = 3  # type: ignore[misc]


def test_did_you_mean_lists_all_when_nothing_is_near() -> None:
    assert did_you_mean("qqq", ["beta", "alpha"]) == " (known: alpha, beta)"
