"""Configuration by kind, and error messages with suggestions."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from pydantic import Field, ValidationError

from bertwright.core.config import Config, Settings, did_you_mean, to_user_error


class Positions(Config):
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


def test_kind_selects_the_class() -> None:
    recipe = Recipe.model_validate({"encoder": {"positions": {"kind": "rotary", "base": 100}}})
    assert recipe.encoder.positions.name() == "rotary with base 100"


def test_bare_kind_uses_defaults() -> None:
    assert Recipe.model_validate({"encoder": {"positions": "rotary"}}).encoder.positions == Rotary()


def test_config_object_is_accepted() -> None:
    config = Learned(size=7)
    assert Encoder(positions=config).positions is config


def test_dump_round_trip() -> None:
    recipe = Recipe(encoder=Encoder(positions=Rotary(by=2.0)), extra={"a": Learned(size=3)})
    data = recipe.model_dump(mode="json", by_alias=True)
    assert data["encoder"]["positions"] == {"kind": "rotary", "base": 1e4, "by": 2.0}
    assert Recipe.model_validate(data) == recipe


def test_imported_plugin_adds_a_kind(temporary_plugins: None) -> None:
    class Spiral(Positions):
        kind: Literal["spiral"] = "spiral"

    class TightSpiral(Spiral):
        kind: Literal["tight-spiral"] = "tight-spiral"  # type: ignore[assignment]

    assert isinstance(Encoder.model_validate({"positions": "spiral"}).positions, Spiral)
    assert isinstance(Encoder.model_validate({"positions": "tight-spiral"}).positions, TightSpiral)


def test_kinds_of_axes_are_separate() -> None:
    class Norm(Config):
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
        ({"encoder": {"width": 1e308}}, "r.yaml: encoder.width: must be a smaller number, not 1e"),
        ({"encoder": True}, "r.yaml: encoder: must be a mapping, not True"),
    ],
)
def test_error_is_one_sentence(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValidationError) as raised:
        Recipe.model_validate(settings)
    message = str(to_user_error(raised.value, "r.yaml"))
    assert message.startswith(sentence)
    assert "\n" not in message


def test_missing_kind_error_lists_kinds() -> None:
    with pytest.raises(ValidationError, match=r"needs a kind, one of: .*learned, rotary"):
        Encoder.model_validate({"positions": {"size": 3}})


def test_settings_are_frozen() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        Encoder().width = 3  # type: ignore[misc]


def test_did_you_mean_lists_all_names_without_a_near_match() -> None:
    assert did_you_mean("qqq", ["beta", "alpha"]) == " (known: alpha, beta)"
