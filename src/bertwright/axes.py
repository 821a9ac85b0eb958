"""Axes: typed choices that a recipe makes.

An axis is an abstract subclass of :class:`Choice`; each value of the axis is a concrete subclass
with a ``kind`` of its own, defined beside the code that it configures. A field typed with the axis
accepts ``{kind: ..., ...}`` for every kind that is known when the recipe is read, so a plugin needs
only to be imported.
"""

import difflib
import inspect
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Literal, Self, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    GetCoreSchemaHandler,
    ValidationError,
    model_validator,
)
from pydantic_core import CoreSchema, core_schema

from bertwright.errors import UserError

LARGEST = (1 << 63) - 1
"""The largest whole number of any setting: what 64 bits hold."""


def _dump(choice: BaseModel) -> dict[str, Any]:
    return choice.model_dump(mode="json", by_alias=True)


class Settings(BaseModel):
    """A frozen group of settings; a key it does not know is an error."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", populate_by_name=True, allow_inf_nan=False
    )

    @model_validator(mode="before")
    @classmethod
    def _knows_every_key(cls, settings: Any) -> Any:
        """Refuse an unknown key here, where the known ones are at hand to suggest."""
        if isinstance(settings, dict):
            fields = cls.model_fields
            known = {field.alias or name for name, field in fields.items()}
            for key, value in settings.items():
                if key not in known and key not in fields:
                    raise ValueError(f"has no key {quoted(key)}{did_you_mean(str(key), known)}")
                if isinstance(value, int) and abs(value) > LARGEST:
                    raise ValueError(f"{key} must lie between -{LARGEST:,} and {LARGEST:,}")
        return settings

    def changed(self, what: str, **settings: Any) -> Self:
        """The same with other settings, checked as if it had been read so; ``what`` it is.

        Errors: ValueError in one sentence.
        """
        try:
            return type(self).model_validate({**dict(self), **settings})
        except ValidationError as error:
            raise ValueError(str(explain(error, what))) from None


class Choice(Settings):
    """The base of every axis (no ``kind``) and of every value of an axis (with a ``kind``)."""

    # Asked of every class of an axis whenever a choice is read: found out once.
    states_kind: ClassVar[bool] = False

    @classmethod
    def __pydantic_init_subclass__(cls, **settings: Any) -> None:
        super().__pydantic_init_subclass__(**settings)
        cls.states_kind = "kind" in inspect.get_annotations(cls)

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: type[BaseModel], handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        if any("kind" in inspect.get_annotations(c) for c in cls.__mro__):
            return handler(source)
        return core_schema.no_info_plain_validator_function(
            cls.choose,
            serialization=core_schema.plain_serializer_function_ser_schema(_dump),
        )

    @classmethod
    def choose(cls, value: Any) -> Self:
        """The choice that ``{kind: ..., ...}`` or a bare kind describes."""
        if isinstance(value, cls):
            return value
        settings = {"kind": value} if isinstance(value, str) else value
        if not isinstance(settings, dict) or "kind" not in settings:
            raise ValueError(f"needs a kind, one of: {', '.join(cls.kinds())}")
        kinds = cls.kinds()
        kind = settings["kind"]
        if not isinstance(kind, str) or kind not in kinds:
            near = did_you_mean(str(kind), kinds)
            own = "" if near.endswith("?") else ", or one of your own with --plugin"
            raise ValueError(f"has no kind {quoted(kind)}{near}{own}")
        return kinds[kind].model_validate(settings)

    @classmethod
    def namesake(cls) -> "type[Choice] | None":
        """Another value of the same axis that has its kind."""
        if not cls.states_kind:
            return None
        axis = next(c for c in cls.__mro__ if Choice in c.__bases__)
        others = (other for other in axis.with_kinds() if other is not cls)
        return next((other for other in others if other.own_kind() == cls.own_kind()), None)

    @classmethod
    def with_kinds(cls) -> "list[type[Self]]":
        """Every value of this axis."""
        children = cls.__subclasses__()
        own = [child for child in children if child.states_kind]
        return own + [found for child in children for found in child.with_kinds()]

    @classmethod
    def kinds(cls) -> dict[str, type[Self]]:
        """Every known value of this axis, by kind."""
        return {value.own_kind(): value for value in cls.with_kinds()}

    @classmethod
    def own_kind(cls) -> str:
        """What names this value of an axis."""
        return get_args(cls.model_fields["kind"].annotation)[0]


LONGEST = 200
"""Characters of what was given that a sentence repeats: a body that is read may be all one name."""


def quoted(given: object) -> str:
    """Return a value that was read, as a sentence repeats it."""
    if isinstance(given, str):
        return f"{given[:LONGEST]!r}..." if len(given) > LONGEST else repr(given)
    try:
        shown = repr(given)
    except (RecursionError, ValueError):
        return f"a {type(given).__name__}"  # too deep, or of too many digits
    return f"{shown[:LONGEST]}..." if len(shown) > LONGEST else shown


def did_you_mean(wrong: str, known: Iterable[str], listed: Iterable[str] | None = None) -> str:
    """The end of a sentence: the nearest known name, or all of them; where those are too many to
    read, those that are ``listed``."""
    names = sorted(known)
    near = difflib.get_close_matches(wrong[:LONGEST], names, n=1, cutoff=0.6)
    if near:
        return f": did you mean {near[0]!r}?"
    return f" (known: {', '.join(names if listed is None else listed)})"


_NAMES_OF_TYPES = ("constrained-float", "constrained-int", "float", "int", "str")
"""What pydantic writes into the path of a value that may be of several types."""


_SENTENCES = {
    **dict.fromkeys(("int_parsing", "int_type", "int_from_float"), "must be a whole number"),
    **dict.fromkeys(("float_parsing", "float_type"), "must be a number"),
    **dict.fromkeys(("bool_parsing", "bool_type"), "must be true or false"),
    **dict.fromkeys(("tuple_type", "list_type"), "must be a list"),
    "dict_type": "must be a mapping",
    "string_type": "must be text",
    "literal_error": "must be {expected}",
    "finite_number": "must be a finite number",
    "greater_than": "must be more than {gt}",
    "greater_than_equal": "must be {ge} or more",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be {le} or less",
    "too_short": "must hold {min_length} or more",
    "too_long": "must hold {max_length} at most",
}
"""What pydantic finds wrong with a value, in the words of this program."""


def explain(error: ValidationError, what: str) -> UserError:
    """One sentence for the first thing that is wrong with a recipe or another settings file."""
    return UserError(sentence_of(error.errors()[0], what))


def sentence_of(error: Mapping[str, Any], what: str) -> str:
    """One sentence for an error as pydantic tells it, in something that is called ``what``."""
    parts = (str(part) for part in error["loc"] if part not in _NAMES_OF_TYPES)
    path = ".".join(part for part in parts if not part.startswith(("literal[", "dict[")))
    message = error["msg"].removeprefix("Value error, ")
    if error["type"] == "missing":
        message = "is missing"
    if (sentence := _SENTENCES.get(error["type"])) is not None:
        limits = {name: _written(limit) for name, limit in error.get("ctx", {}).items()}
        message = f"{sentence.format(**limits)}, not {quoted(error['input'])}"
    return ": ".join(part for part in (what, path, message) if part)


def _written(limit: Any) -> Any:
    if isinstance(limit, int | float):
        return f"{limit:,}" if isinstance(limit, int) else f"{limit:g}"
    return limit


Precision = Literal["float32", "bf16"]
"""In which a model learns."""

ReadingPrecision = Literal["float32", "bf16", "int8"]
"""In which a model that has learned is used."""
