"""Axes: typed configuration choices of a recipe.

An axis is an abstract subclass of :class:`Config`. Each value of the axis is a concrete subclass
with its own ``kind``, defined next to the code that it configures. A field typed with the axis
accepts ``{kind: ..., ...}`` for every kind registered when the recipe is read. A class registers
itself where it is defined, so importing a plugin is enough to add a kind.
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

from bertwright.core.errors import UserError
from bertwright.core.registry import Registry

MAX_INTEGER = (1 << 63) - 1
"""Largest integer of any setting (64 bits)."""


def _dump_config(config: BaseModel) -> dict[str, Any]:
    return config.model_dump(mode="json", by_alias=True)


class Settings(BaseModel):
    """A frozen group of settings that rejects unknown keys."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", populate_by_name=True, allow_inf_nan=False
    )

    @model_validator(mode="before")
    @classmethod
    def _reject_unknown_keys(cls, settings: Any) -> Any:
        """Reject an unknown key with a suggestion."""
        if isinstance(settings, dict):
            fields = cls.model_fields
            known = {field.alias or name for name, field in fields.items()}
            for key, value in settings.items():
                if key not in known and key not in fields:
                    raise ValueError(f"has no key {quote(key)}{did_you_mean(str(key), known)}")
                if isinstance(value, int) and abs(value) > MAX_INTEGER:
                    raise ValueError(f"{key} must lie between -{MAX_INTEGER:,} and {MAX_INTEGER:,}")
        return settings

    def copy_with(self, subject: str, **changes: Any) -> Self:
        """Return a validated copy with some settings changed.

        Errors: ValueError, one sentence that names the ``subject``.
        """
        try:
            return type(self).model_validate({**dict(self), **changes})
        except ValidationError as error:
            raise ValueError(str(to_user_error(error, subject))) from None


class Config(Settings):
    """A base class of every axis (no ``kind``) and of every value of an axis (with a ``kind``)."""

    _registry: ClassVar[Registry[type[Any]]]
    """The values of this class's axis by kind."""

    @classmethod
    def __pydantic_init_subclass__(cls, **settings: Any) -> None:
        super().__pydantic_init_subclass__(**settings)
        if Config in cls.__bases__:
            cls._registry = Registry()
        if "kind" in inspect.get_annotations(cls):
            cls._register()

    @classmethod
    def _register(cls) -> None:
        """Add this value to its axis; the same class, defined again, replaces itself."""
        kind = cls.kind_name()
        for axis in (c for c in cls.__mro__ if issubclass(c, Config) and Config in c.__bases__):
            other = axis._registry.get(kind)
            if other is not None and _full_name(other) != _full_name(cls):
                raise UserError(
                    f"{cls.__name__} has the same kind as {other.__name__}: choose another"
                )
            axis._registry.register(kind, cls, cls.__module__)

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: type[BaseModel], handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        if "kind" in cls.model_fields:
            return handler(source)
        return core_schema.no_info_plain_validator_function(
            cls.parse,
            serialization=core_schema.plain_serializer_function_ser_schema(_dump_config),
        )

    @classmethod
    def parse(cls, value: Any) -> Self:
        """Return the config that ``{kind: ..., ...}`` or a bare kind describes."""
        if isinstance(value, cls):
            return value
        settings = {"kind": value} if isinstance(value, str) else value
        if not isinstance(settings, dict) or "kind" not in settings:
            raise ValueError(f"needs a kind, one of: {', '.join(cls.kinds())}")
        kind = settings["kind"]
        config = cls._registry.find(kind) if isinstance(kind, str) else None
        if config is None or not issubclass(config, cls):
            near = did_you_mean(str(kind), cls.kinds())
            plugin = "" if near.endswith("?") else ", or one of your own with --plugin"
            raise ValueError(f"has no kind {quote(kind)}{near}{plugin}")
        return config.model_validate(settings)

    @classmethod
    def kinds(cls) -> dict[str, type[Self]]:
        """Return every concrete class of this axis by kind."""
        return {kind: c for kind, c in cls._registry.items() if issubclass(c, cls)}

    @classmethod
    def kind_name(cls) -> str:
        """Return the ``kind`` of this class."""
        return get_args(cls.model_fields["kind"].annotation)[0]


def _full_name(value: type) -> str:
    return f"{value.__module__}.{value.__qualname__}"


MAX_QUOTED_LENGTH = 200
"""Maximum characters of user input that a message repeats."""


def quote(value: object) -> str:
    """Return a value from user input, quoted and shortened for a message."""
    if isinstance(value, str):
        return (
            f"{value[:MAX_QUOTED_LENGTH]!r}..." if len(value) > MAX_QUOTED_LENGTH else repr(value)
        )
    try:
        shown = repr(value)
    except (RecursionError, ValueError):
        return f"a {type(value).__name__}"  # nested too deep, or too many digits
    return f"{shown[:MAX_QUOTED_LENGTH]}..." if len(shown) > MAX_QUOTED_LENGTH else shown


def did_you_mean(
    unknown: str, known_names: Iterable[str], shown_names: Iterable[str] | None = None
) -> str:
    """Return the end of a message: the nearest known name, or else all ``shown_names``.

    ``shown_names`` are the known names by default.
    """
    names = sorted(known_names)
    near = difflib.get_close_matches(unknown[:MAX_QUOTED_LENGTH], names, n=1, cutoff=0.6)
    if near:
        return f": did you mean {near[0]!r}?"
    return f" (known: {', '.join(names if shown_names is None else shown_names)})"


_UNION_MEMBER_NAMES = ("bool", "constrained-float", "constrained-int", "float", "int", "str")
"""Parts that pydantic adds to the path of a field with a union type."""


_MESSAGES = {
    **dict.fromkeys(("int_parsing", "int_type", "int_from_float"), "must be a whole number"),
    **dict.fromkeys(("float_parsing", "float_type"), "must be a number"),
    **dict.fromkeys(("bool_parsing", "bool_type"), "must be true or false"),
    **dict.fromkeys(("tuple_type", "list_type"), "must be a list"),
    **dict.fromkeys(("dict_type", "model_type"), "must be a mapping"),
    "int_parsing_size": "must be a smaller number",
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
"""Messages for pydantic's error types."""


def to_user_error(error: ValidationError, subject: str) -> UserError:
    """Return a UserError for the first error of a pydantic validation."""
    return UserError(error_message(error.errors()[0], subject))


def error_message(error: Mapping[str, Any], subject: str) -> str:
    """Return one sentence for a pydantic error in ``subject``, such as a file name."""
    parts = (str(part) for part in error["loc"] if part not in _UNION_MEMBER_NAMES)
    path = ".".join(part for part in parts if not part.startswith(("literal[", "dict[")))
    message = error["msg"].removeprefix("Value error, ")
    if error["type"] == "missing":
        message = "is missing"
    if (sentence := _MESSAGES.get(error["type"])) is not None:
        limits = {name: _format_limit(limit) for name, limit in error.get("ctx", {}).items()}
        message = f"{sentence.format(**limits)}, not {quote(error['input'])}"
    return ": ".join(part for part in (subject, path, message) if part)


def _format_limit(limit: Any) -> Any:
    if isinstance(limit, int | float):
        return f"{limit:,}" if isinstance(limit, int) else f"{limit:g}"
    return limit


Precision = Literal["float32", "bf16"]
"""Precision of training."""

InferencePrecision = Literal["float32", "bf16", "int8"]
"""Precision of inference."""
