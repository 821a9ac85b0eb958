"""bertwright: BERT and its family as recipes over a few independent axes.

The public API is what this module names; each name is imported when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from bertwright.errors import UserError
    from bertwright.interop.loading import load
    from bertwright.model.text_model import TextModel
    from bertwright.recipes.schema import Recipe
    from bertwright.tasks.evaluation import evaluate
    from bertwright.tasks.fine_tuned import FineTuned
    from bertwright.tasks.finetuning import finetune
    from bertwright.tasks.formats.examples import Example, Options, Question, TaggedWords
    from bertwright.tasks.task import Task
    from bertwright.text.preparation import prepare
    from bertwright.text.shards import Data
    from bertwright.text.tokenizers import Tokenizer
    from bertwright.text.vocabularies import train_tokenizer
    from bertwright.training.pretraining import pretrain

__all__ = [
    "Data",
    "Example",
    "FineTuned",
    "Options",
    "Question",
    "Recipe",
    "TaggedWords",
    "Task",
    "TextModel",
    "Tokenizer",
    "UserError",
    "evaluate",
    "finetune",
    "load",
    "prepare",
    "pretrain",
    "train_tokenizer",
]

_MODULES = {
    "Data": "text.shards",
    "Example": "tasks.formats.examples",
    "FineTuned": "tasks.fine_tuned",
    "Options": "tasks.formats.examples",
    "Question": "tasks.formats.examples",
    "Recipe": "recipes.schema",
    "TaggedWords": "tasks.formats.examples",
    "Task": "tasks.task",
    "TextModel": "model.text_model",
    "Tokenizer": "text.tokenizers",
    "UserError": "errors",
    "evaluate": "tasks.evaluation",
    "finetune": "tasks.finetuning",
    "load": "interop.loading",
    "prepare": "text.preparation",
    "pretrain": "training.pretraining",
    "train_tokenizer": "text.vocabularies",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
