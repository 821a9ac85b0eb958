"""Write the reference pages from the code: every verb, every recipe key, the public names."""

import inspect
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import typer
from pydantic import BaseModel
from pydantic_core import PydanticUndefined

import bertwright
from bertwright.cli.app import app
from bertwright.core.config import Config
from bertwright.recipes import Recipe
from bertwright.tasks.ensemble import Ensemble
from bertwright.tasks.formats.examples import (
    ExtractiveQuestion,
    MultipleChoice,
    TaggedSentence,
)

Command = Any
"""A command of Typer, which from some version on has a Click of its own."""


def write_reference(folder: Path) -> None:
    """Write every page, where its text has changed."""
    folder.mkdir(exist_ok=True)
    pages = {
        "command-line.md": command_line(),
        "recipe-keys.md": recipe_keys(),
        "python.md": python_names(),
    }
    for name, lines in pages.items():
        text = "\n".join(lines) + "\n"
        file = folder / name
        if not file.is_file() or file.read_text() != text:
            file.write_text(text)


def command_line() -> list[str]:
    """Return the page of all verbs, with their arguments and options."""
    group = typer.main.get_command(app)
    lines = ["# Command line", "", "Every verb also takes `--help`.", ""]
    for path, command in sorted(_commands(group, ())):
        lines += [f"## bertwright {' '.join(path)}", "", *_paragraphs(command.help or ""), ""]
        rows = list(_parameters(command))
        if rows:
            lines += ["| argument or option | default | what |", "| --- | --- | --- |", *rows, ""]
    return lines


def _commands(command: Command, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Command]]:
    children = getattr(command, "commands", {})
    if path and (not children or getattr(command, "invoke_without_command", False)):
        yield path, command
    for name, child in children.items():
        yield from _commands(child, (*path, name))


def _parameters(command: Command) -> Iterator[str]:
    for parameter in command.params:
        if parameter.name in ("help", None):
            continue
        is_option = parameter.param_type_name == "option"
        if is_option:
            names = ", ".join(f"`{name}`" for name in sorted(parameter.opts, key=len))
        else:
            names = f"`{parameter.metavar or (parameter.name or '').upper()}`"
        default = parameter.default
        is_shown = is_option and default not in (None, False, ()) and not callable(default)
        yield _row(names, f"`{default}`" if is_shown else "", getattr(parameter, "help", "") or "")


def recipe_keys() -> list[str]:
    """Return the page of all keys of a recipe, and of every kind on every axis."""
    lines = [
        "# Recipe keys",
        "",
        "Every key of a recipe, with its type and default; below, every kind of every axis with",
        "its keys. `bertwright recipes show NAME` prints the values of a recipe.",
        "",
        "## Recipe",
        "",
        *_fields(Recipe),
    ]
    reachable = _reachable(Recipe, {})
    for name, settings in sorted(reachable.items()):
        if not issubclass(settings, Config):
            lines += [f"## {name}", "", *_docstring(settings), "", *_fields(settings)]
    axes = [axis for _, axis in sorted(reachable.items()) if issubclass(axis, Config)]
    for axis in axes:
        title = axis.__name__.removesuffix("Config")
        lines += [f"## {title}", "", *_docstring(axis), ""]
        narrower = [a for a in axes if a is not axis and issubclass(a, axis) and not _is_kind(a)]
        for kind, config in sorted(axis.kinds().items()):
            if issubclass(config, tuple(narrower)):
                continue  # listed there
            lines += [f"### {title}: `{kind}`", "", *_docstring(config), "", *_fields(config)]
    return lines


def _is_kind(config: type[Config]) -> bool:
    """Return whether a class is a value of an axis, not an axis."""
    return "kind" in config.model_fields


def _reachable(
    model: type[BaseModel], known: dict[str, type[BaseModel]]
) -> dict[str, type[BaseModel]]:
    """Return the classes of settings and the axes that the fields of a model lead to, by name."""
    for field in model.model_fields.values():
        for settings in _classes(field.annotation):
            name = settings.__name__.removesuffix("Config")
            if name in known:
                continue
            if issubclass(settings, Config):
                if not settings.kinds():
                    continue
                known[name] = settings
                for config in settings.kinds().values():
                    _reachable(config, known)
            else:
                known[name] = settings
                _reachable(settings, known)
    return known


def _classes(annotation: Any) -> Iterator[type[BaseModel]]:
    if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _classes(argument)


def _fields(model: type[BaseModel]) -> list[str]:
    rows = []
    for name, field in model.model_fields.items():
        if name == "kind":
            continue
        default = "required" if field.is_required() else _default(field.default)
        rows.append(_row(f"`{field.alias or name}`", f"`{_type_name(field.annotation)}`", default))
    if not rows:
        return []
    return ["| key | type | default |", "| --- | --- | --- |", *rows, ""]


def _default(value: Any) -> str:
    if value is PydanticUndefined or value in ("", (), {}):
        return ""
    if isinstance(value, BaseModel):
        settings = value.model_dump(exclude_defaults=True)
        name = getattr(value, "kind", None)
        kind = {"kind": name} if name else {}
        return f"`{ {**kind, **settings} }`" if kind or settings else ""
    if isinstance(value, tuple):
        return ", ".join(map(_default, value))
    return f"`{'null' if value is None else value}`"


def _type_name(annotation: Any) -> str:
    origin = get_origin(annotation)
    if origin is Annotated:
        return _type_name(get_args(annotation)[0])
    if origin in (Union, UnionType):
        return " or ".join(_type_name(argument) for argument in get_args(annotation))
    if annotation is NoneType:
        return "null"
    if origin is not None:
        arguments = ", ".join(
            _type_name(a) if not isinstance(a, str | int | bool) else repr(a)
            for a in get_args(annotation)
            if a is not Ellipsis
        )
        return f"{getattr(origin, '__name__', 'one of')}[{arguments}]".replace("Literal", "one of")
    return getattr(annotation, "__name__", str(annotation)).removesuffix("Config")


def python_names() -> list[str]:
    """Return the page of the public names."""
    lines = [
        "# Python",
        "",
        "`import bertwright as bw` imports each of these when it is first used.",
        "",
    ]
    lines += _api_entries(getattr(bertwright, name) for name in sorted(bertwright.__all__))
    lines += ["The following are imported from the modules in their names.", ""]
    lines += _api_entries([ExtractiveQuestion, MultipleChoice, TaggedSentence, Ensemble])
    return lines


def _api_entries(values: Iterable[Any]) -> list[str]:
    lines: list[str] = []
    for value in values:
        directive = "autoclass" if inspect.isclass(value) else "autofunction"
        members = [":members:"] if directive == "autoclass" else []
        path = f"{value.__module__}.{value.__qualname__}"
        lines += [f"## {value.__name__}", "", "```{eval-rst}", f".. {directive}:: {path}"]
        lines += [f"   {member}" for member in members]
        lines += ["```", ""]
    return lines


def _docstring(owner: type) -> list[str]:
    return _paragraphs(inspect.cleandoc(owner.__doc__ or ""))


def _paragraphs(text: str) -> list[str]:
    return inspect.cleandoc(text).replace("``", "`").splitlines()


def _row(*cells: str) -> str:
    return f"| {' | '.join(' '.join(cell.split()).replace('|', chr(92) + '|') for cell in cells)} |"
