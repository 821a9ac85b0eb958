"""Families account for every setting that changes what a model computes, in both directions."""

import inspect
from collections.abc import Iterator
from typing import Any, get_args

import pytest
import transformers
from pydantic import BaseModel

from bertwright.core.config import Config
from bertwright.encoder.config import EncoderConfig
from bertwright.encoder.decoder import TransformerDecoderConfig
from bertwright.interop.huggingface.families.family import ModelFamily
from bertwright.interop.huggingface.families.registry import FAMILIES

IRRELEVANT = {
    "encoder.initialisation": "before training only",
    "encoder.depth.drop": "in training only",
    "encoder.embeddings.embedding_dropout": "in training only",
    "encoder.embeddings.word_dropout": "in training only",
    "encoder.depth.groups": "groups of shared layers, supported by ALBERT only",
    "encoder.output_dropout": "in training only",
    "encoder.feed_forward.dropout": "in training only",
    "encoder.feed_forward.expansion": "equivalent to the width",
    "encoder.mixer.head_width": "equivalent to the number of heads and the width",
    "encoder.mixer.kernel": "equivalent results",
}

HANDLED_BY_FAMILY = {
    "encoder.bottleneck.shared": ("mobilebert",),
    "encoder.feed_forward.width": ("openai-gpt", "xlm"),
    "encoder.visibility.rules": ("longformer", "big_bird"),
    # The rows of the position table before the offset are dropped.
    "encoder.positions.offset": ("bert", "albert", "electra", "big_bird"),
    # Norms without statistics have none.
    "encoder.norm.epsilon": ("mobilebert",),
    # For consecutive segments, and for models without a decoder.
    "encoder.memory_length": ("xlnet", "t5", "bart"),
    "encoder.mixer.width": ("t5",),
}
"""Settings that a family checks itself, or does not need to."""


def handled_paths(family: ModelFamily) -> dict[str, set[Any] | None]:
    """The paths that a family handles, with the supported values if they are listed."""
    keys = {
        key.recipe_path: {*key.value_map.values()} if key.value_map else None
        for key in (*family.config_keys, family.tie_key)
    }
    paths = (*family.fixed_axes, *keys)
    unsupported = {
        path: choices
        for path, choices in family.unsupported_axes.items()
        if not any(f"{name}.".startswith(f"{path}.") for name in paths)
    }
    lists = {
        path: {choice for choice in choices if not isinstance(choice, list)}
        for path, choices in (unsupported | family.fixed_axes).items()
    }
    return lists | keys


def setting_groups(annotation: Any) -> Iterator[type[BaseModel]]:
    """The groups of settings that a field may hold."""
    if (
        inspect.isclass(annotation)
        and issubclass(annotation, Config)
        and "kind" not in annotation.model_fields
    ):
        yield from annotation.kinds().values()
    elif inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from setting_groups(part)


def unhandled_paths(settings: type[BaseModel], path: str, handled: dict[str, Any]) -> set[str]:
    """The fields below a path that are neither handled nor part of one that is."""
    unhandled: set[str] = set()
    for name, field in settings.model_fields.items():
        field_path = f"{path}.{field.alias or name}"
        if field_path in handled:
            continue
        kinds = handled.get(f"{field_path}.kind")
        groups = [*setting_groups(field.annotation)]
        if kinds is not None:
            groups = [
                group
                for group in groups
                if issubclass(group, Config) and group.kind_name() in kinds
            ]
        elif not any(path.startswith(f"{field_path}.") for path in handled):
            groups = []
        unhandled |= {field_path} if not groups else set()
        for group in groups:
            unhandled |= unhandled_paths(group, field_path, handled)
    return unhandled


@pytest.mark.parametrize("name", FAMILIES)
def test_every_setting_is_handled(name: str) -> None:
    handled = handled_paths(FAMILIES[name]) | dict.fromkeys(IRRELEVANT)
    handled |= {path: None for path, families in HANDLED_BY_FAMILY.items() if name in families}
    unhandled = unhandled_paths(EncoderConfig, "encoder", handled)
    if "decoder" not in handled:
        unhandled |= unhandled_paths(TransformerDecoderConfig, "decoder", handled)
    assert unhandled == set()


DERIVED = ("offset", "sliding_window", "rope_theta", "sharing", "languages")
"""Keys that ``normalise_config`` derives from several stock keys."""


@pytest.mark.parametrize("name", FAMILIES)
def test_defaults_equal_those_of_the_stock_class(name: str) -> None:
    family = FAMILIES[name]
    stock = getattr(transformers, f"{family.class_name}Config")()
    keys = [key for key in (*family.config_keys, family.tie_key) if key.stock_key not in DERIVED]
    # The default is the number of encoder layers, which is None in our recipe.
    ours = {
        (key.stock_key, 6 if key.stock_key == "num_decoder_layers" else key.default) for key in keys
    }
    assert ours == {(key.stock_key, getattr(stock, key.stock_key)) for key in keys}
    assert all(
        getattr(stock, name, value) == value for name, value in family.required_config.items()
    )
