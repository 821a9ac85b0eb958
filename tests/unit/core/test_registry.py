"""Plugins of installed distributions, and registrations that are undone."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from bertwright.core.errors import UserError
from bertwright.core.registry import Registry, import_installed_plugins, transaction
from bertwright.interop.huggingface.families.bert import Bert
from bertwright.interop.huggingface.families.registry import FAMILIES, add_family
from bertwright.recipes import Recipe
from bertwright.tasks.catalogue import TASKS, find_task
from commands import invoke

CHOICE = """\
from typing import ClassVar, Literal

from bertwright.modules.feed_forward import FeedForwardConfig
from bertwright.tasks.catalogue import add_task, table_task
from bertwright.tasks.formats.tables import Columns

add_task(table_task("installed-task", Columns("text", None, "label")))


class Silu(FeedForwardConfig):
    kind: Literal["installed-silu"] = "installed-silu"
    activation: ClassVar = "silu"
"""


@pytest.fixture
def installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, temporary_plugins: None
) -> Iterator[Path]:
    """A distribution that is installed as long as the test runs; its module is to be written."""
    information = tmp_path / "silu_plugin-1.2.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: silu-plugin\nVersion: 1.2\n"
    )
    (information / "entry_points.txt").write_text("[bertwright.plugins]\nsilu = silu_plugin\n")
    monkeypatch.syspath_prepend(tmp_path)
    import_installed_plugins.cache_clear()
    yield tmp_path / "silu_plugin.py"
    import_installed_plugins.cache_clear()
    sys.modules.pop("silu_plugin", None)


def test_an_installed_plugin_is_imported_for_an_unknown_kind(installed: Path) -> None:
    installed.write_text(CHOICE)
    Recipe.load("bert-tiny")
    assert "silu_plugin" not in sys.modules
    recipe = Recipe.load("bert-tiny", "encoder.feed_forward.kind=installed-silu")
    assert recipe.encoder.feed_forward.activation == "silu"


def test_an_installed_plugin_is_imported_for_an_unknlabelled_lines(installed: Path) -> None:
    installed.write_text(CHOICE)
    assert find_task("installed_task") is TASKS["installed-task"]


def test_the_command_line_knows_installed_plugins(installed: Path) -> None:
    installed.write_text(CHOICE)
    shown = invoke("recipes", "show", "bert-tiny", "encoder.feed_forward.kind=installed-silu")
    assert "installed-silu" in shown.stdout


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, "(ModuleNotFoundError("),
        (f"{CHOICE}\nraise RuntimeError('too old')\n", "(RuntimeError('too old')): correct or"),
        (CHOICE.replace("installed-silu", "gelu"), "(Silu has the same kind as GELUConfig: choose"),
    ],
)
def test_a_broken_plugin_is_named_and_registers_nothing(
    text: str | None, reason: str, installed: Path
) -> None:
    if text is not None:
        installed.write_text(text)
    for _ in range(2):
        with pytest.raises(UserError, match=r"^[^\n]*$") as error:
            Recipe.load("bert-tiny", "encoder.feed_forward.kind=installed-silu")
        message = str(error.value)
        assert message.startswith("the installed plugin silu_plugin of silu-plugin cannot be")
        assert reason in message
    assert "installed-task" not in TASKS
    assert "silu_plugin" not in sys.modules


def test_what_a_failing_block_registers_is_undone() -> None:
    registry = Registry(a=1)
    registry.register("b", 2)

    def register() -> None:
        registry.register("b", 3)
        registry.register("c", 4)
        registry.register("d", 5, "bertwright.module")
        raise KeyError

    with pytest.raises(KeyError), transaction():
        register()
    assert registry == {"a": 1, "b": 2, "d": 5}


def test_a_family_is_registered_once(temporary_plugins: None) -> None:
    class CustomFamily(Bert):
        model_type: ClassVar = "own-bert"

    family = add_family(CustomFamily())
    assert FAMILIES["own-bert"] is add_family(family)
    with pytest.raises(UserError, match="a family of model_type 'own-bert' exists already"):
        add_family(CustomFamily())
