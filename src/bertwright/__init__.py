"""bertwright: BERT and its family as recipes over a few independent axes.

Names of the public API are imported when they are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from bertwright.core.errors import UserError
    from bertwright.data.preparation import prepare
    from bertwright.data.shards.dataset import Dataset
    from bertwright.data.tokenization.tokenizer import Tokenizer
    from bertwright.data.vocabulary_training import train_tokenizer
    from bertwright.interop.loading import load
    from bertwright.models.text_model import TextModel
    from bertwright.recipes.schema import Recipe
    from bertwright.tasks.evaluation.evaluate import evaluate
    from bertwright.tasks.fine_tuned_model import FineTunedModel
    from bertwright.tasks.finetuning.finetune import finetune
    from bertwright.tasks.formats.examples import Example
    from bertwright.tasks.task import Task
    from bertwright.training.pretraining.pretrain import pretrain

__all__ = [
    "Dataset",
    "Example",
    "FineTunedModel",
    "Recipe",
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

_LAZY_IMPORTS = {
    "Dataset": "data.shards.dataset",
    "Example": "tasks.formats.examples",
    "FineTunedModel": "tasks.fine_tuned_model",
    "Recipe": "recipes.schema",
    "Task": "tasks.task",
    "TextModel": "models.text_model",
    "Tokenizer": "data.tokenization.tokenizer",
    "UserError": "core.errors",
    "evaluate": "tasks.evaluation.evaluate",
    "finetune": "tasks.finetuning.finetune",
    "load": "interop.loading",
    "prepare": "data.preparation",
    "pretrain": "training.pretraining.pretrain",
    "train_tokenizer": "data.vocabulary_training",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY_IMPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_LAZY_IMPORTS[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
