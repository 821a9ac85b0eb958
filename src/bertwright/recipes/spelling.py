"""Texts among settings, as a user spells them: YAML makes a truth value of ``yes`` and a number of
``1``, whatever the setting is."""

from collections.abc import Mapping, Sequence
from types import UnionType
from typing import Annotated, Any, Union, cast, get_args, get_origin

from pydantic import BaseModel


def as_spelled(
    model: type[BaseModel], stated: Mapping[str, Any], spelled: Mapping[str, Any]
) -> dict[str, Any]:
    """Return settings in which every text of ``model`` is as it is ``spelled``, a tree of the same
    shape whose scalars are all texts; what that leaves out stays."""
    fields = model.model_fields
    return {
        name: _as_spelled(fields[name].annotation, value, spelled[name])
        if name in spelled and name in fields
        else value
        for name, value in stated.items()
    }


def _as_spelled(kind: Any, value: Any, spelled: Any) -> Any:
    if get_origin(kind) in (Union, UnionType):
        kinds = [one for one in get_args(kind) if one is not type(None)]
        if value is None and len(kinds) < len(get_args(kind)):
            return None
        wanted = (dict, str) if isinstance(value, Mapping) else (list, tuple, str)
        kind = next((one for one in kinds if (get_origin(one) or one) in wanted), None)
    if get_origin(kind) is Annotated:
        return _as_spelled(get_args(kind)[0], value, spelled)
    arguments = get_args(kind)
    if kind is str:
        return spelled if isinstance(spelled, str) else value
    if get_origin(kind) is dict and isinstance(value, Mapping) and isinstance(spelled, Mapping):
        texts = cast(Mapping[str, Any], spelled)
        return {
            key: _as_spelled(arguments[1], typed, texts[key]) if key in texts else typed
            for key, typed in cast(Mapping[str, Any], value).items()
        }
    if get_origin(kind) in (list, tuple) and isinstance(value, list) and arguments:
        pairs = zip(cast(list[Any], value), cast(Sequence[Any], spelled), strict=True)
        return [_as_spelled(arguments[0], typed, text) for typed, text in pairs]
    return value
