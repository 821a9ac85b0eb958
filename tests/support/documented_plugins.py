"""The plugins of docs/examples under other kinds: one process may also import the files."""

import sys
from types import ModuleType

from bertwright.tasks.catalogue import TASKS
from bertwright.tasks.task import Task
from checkout import EXAMPLES

OTHER_KINDS = {"shuffled-tokens": "tested-tokens", "labelled-lines": "tested-lines"}


def read_example(name: str) -> str:
    """Return the text of an example, with the other kinds."""
    text = (EXAMPLES / name).read_text(encoding="utf-8")
    for kind, other in OTHER_KINDS.items():
        text = text.replace(f'"{kind}"', f'"{other}"').replace(f"{kind}:", f"{other}:")
    return text


def load_example(name: str) -> ModuleType:
    """Import an example."""
    module = sys.modules[f"documented_{name}"] = ModuleType(f"documented_{name}")
    exec(compile(read_example(f"{name}.py"), str(EXAMPLES / name), "exec"), vars(module))
    return module


ShuffledTokens = load_example("shuffled_tokens").ShuffledTokens
LabelledLines = load_example("labelled_lines").LabelledLines

LABELLED_LINES: Task = TASKS.pop("tested-lines")
