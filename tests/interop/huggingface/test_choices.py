"""No choice that changes what a model computes is left out when it is exported, and none is taken
for another when it is read."""

import inspect
from collections.abc import Iterator
from typing import Any, get_args

import pytest
import transformers
from pydantic import BaseModel

from bertwright.axes import Choice
from bertwright.encoder.choice import EncoderChoice
from bertwright.encoder.decoder import DecoderChoice
from bertwright.interop.huggingface.families import FAMILIES
from bertwright.interop.huggingface.family import Family

DOES_NOT_MATTER = {
    "encoder.initialisation": "what training begins with",
    "encoder.depth.drop": "while training",
    "encoder.embeddings.row_dropout": "while training",
    "encoder.depth.groups": "of what is shared, which all but ALBERT refuse",
    "encoder.feed_forward.expansion": "said by its width",
    "encoder.mixer.head_width": "said by the number of heads and their width together",
    "encoder.mixer.kernel": "computes the same",
}

SAID_OTHERWISE = {
    "encoder.bottleneck.shared": ("mobilebert",),
    "encoder.feed_forward.width": ("openai-gpt", "xlm"),
    "encoder.visibility.rules": ("longformer", "big_bird"),
    # The rows of positions before the first are cut off.
    "encoder.positions.offset": ("bert", "albert", "electra", "big_bird"),
    # No norm of the kind has one.
    "encoder.norm.epsilon": ("mobilebert",),
    # Of several rows in turn, or of what has no decoder.
    "encoder.memory": ("xlnet", "t5", "bart"),
    "encoder.mixer.width": ("t5",),
}
"""What a family looks at by itself, or does not need to."""


def stated(family: Family) -> dict[str, set[Any] | None]:
    """The paths that a family looks at, and what of them it takes where that is a list."""
    keys = {k.ours: {*k.values.values()} if k.values else None for k in (*family.keys, family.tie)}
    own = (*family.axes, *keys)
    usual = {
        path: choices
        for path, choices in family.nowhere.items()
        if not any(f"{name}.".startswith(f"{path}.") for name in own)
    }
    lists = {p: {c for c in v if not isinstance(c, list)} for p, v in (usual | family.axes).items()}
    return lists | keys


def values(annotation: Any) -> Iterator[type[BaseModel]]:
    """The groups of settings that a field may hold."""
    if (
        inspect.isclass(annotation)
        and issubclass(annotation, Choice)
        and not annotation.states_kind
    ):
        yield from annotation.with_kinds()
    elif inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from values(part)


def forgotten(settings: type[BaseModel], path: str, known: dict[str, Any]) -> set[str]:
    """The fields below a path that are neither known nor parts of one that is."""
    found: set[str] = set()
    for name, field in settings.model_fields.items():
        own = f"{path}.{field.alias or name}"
        if own in known:
            continue
        kinds = known.get(f"{own}.kind")
        groups = [*values(field.annotation)]
        if kinds is not None:
            groups = [v for v in groups if issubclass(v, Choice) and v.own_kind() in kinds]
        elif not any(path.startswith(f"{own}.") for path in known):
            groups = []
        found |= {own} if not groups else set()
        for group in groups:
            found |= forgotten(group, own, known)
    return found


@pytest.mark.parametrize("name", FAMILIES)
def test_every_choice_is_looked_at(name: str) -> None:
    known = stated(FAMILIES[name]) | dict.fromkeys(DOES_NOT_MATTER)
    known |= {path: None for path, families in SAID_OTHERWISE.items() if name in families}
    found = forgotten(EncoderChoice, "encoder", known)
    if "decoder" not in known:
        found |= forgotten(DecoderChoice, "decoder", known)
    assert found == set()


DERIVED = ("offset", "local", "rope_theta", "sharing", "languages")
"""Keys of our own, that ``simplified`` finds from several of theirs."""


@pytest.mark.parametrize("name", FAMILIES)
def test_what_a_file_does_not_state_is_what_the_stock_class_takes(name: str) -> None:
    family = FAMILIES[name]
    stock = getattr(transformers, f"{family.class_name}Config")()
    keys = [key for key in (*family.keys, family.tie) if key.theirs not in DERIVED]
    # As many layers as the other stack has: to us those that are not stated.
    ours = {(k.theirs, 6 if k.theirs == "num_decoder_layers" else k.default) for k in keys}
    assert ours == {(key.theirs, getattr(stock, key.theirs)) for key in keys}
    assert all(getattr(stock, n, value) == value for n, value in family.required.items())
