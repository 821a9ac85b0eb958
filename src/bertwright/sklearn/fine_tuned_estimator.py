"""The base of estimators that fine-tune: their settings, and their one call of ``finetune``."""

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bertwright.core.config import InferencePrecision
from bertwright.core.messages import count_noun
from bertwright.sklearn.encoder_source import DEFAULT_MODEL, load_encoder, resolve_seed
from bertwright.sklearn.saved_model import ModelEstimator
from bertwright.tasks.data.splits import HELD_OUT_FRACTION, hold_out
from bertwright.tasks.fine_tuned_model import FineTunedModel
from bertwright.tasks.finetuning.finetune import finetune
from bertwright.tasks.formats.examples import Examples
from bertwright.tasks.task import Task

SETTINGS = (
    *("adaptation", "head", "epochs", "learning_rate", "batch_size", "dropout", "weight_decay"),
    *("warmup", "max_length", "patience"),
)
"""Parameters that are settings of ``finetune`` by the same name."""


class FineTunedEstimator(ModelEstimator[FineTunedModel]):
    """An estimator that fine-tunes an encoder.

    Attributes:
        model: a model folder, or the name of a recipe, such as ``bert-tiny``, which is built
            untrained with a vocabulary of the texts in ``fit``.
        adaptation: what is trained, by default a linear head on a ``frozen`` encoder, which takes
            seconds; ``full`` trains all of it, ``lora`` and others as in ``finetune``.
        head, epochs, learning_rate, batch_size, dropout, weight_decay, warmup, max_length,
            patience: settings of ``finetune``; None for its defaults.
        stride: tokens between the starts of two windows of a long text; None truncates it, or for
            a tagger lets windows not overlap.
        settings: further settings of ``finetune`` by name.
        validation_fraction: fraction of the examples that selects the epoch and calibrates the
            probabilities. With 0 all are trained on, and nothing is calibrated.
        precision: ``float32``, ``bf16`` or ``int8`` in prediction; None for what the device
            multiplies fast.
        random_state: seed of an untrained encoder, the head, the order of examples and dropout.
    """

    precision: InferencePrecision | None

    def __init__(
        self,
        model: str | Path = DEFAULT_MODEL,
        *,
        adaptation: Any = "frozen",
        head: Any = None,
        epochs: int | None = None,
        learning_rate: float | None = None,
        batch_size: int | None = None,
        dropout: Any = None,
        weight_decay: float | None = None,
        warmup: float | None = None,
        max_length: int | None = None,
        patience: int | None = None,
        stride: int | None = None,
        settings: Mapping[str, Any] | None = None,
        validation_fraction: float = HELD_OUT_FRACTION,
        precision: InferencePrecision | None = None,
        random_state: Any = None,
    ) -> None:
        self.model = model
        self.adaptation = adaptation
        self.head = head
        self.epochs = epochs
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.dropout = dropout
        self.weight_decay = weight_decay
        self.warmup = warmup
        self.max_length = max_length
        self.patience = patience
        self.stride = stride
        self.settings = settings
        self.validation_fraction = validation_fraction
        self.precision = precision
        self.random_state = random_state

    def _fine_tune(self, task: Task, examples: Examples, texts: Sequence[str]) -> None:
        """Fine-tune ``model_``; ``texts`` are for the vocabulary of an untrained encoder."""
        if not 0 <= self.validation_fraction < 1:
            raise ValueError(
                f"validation_fraction is {self.validation_fraction!r}: give a number from 0 to "
                f"less than 1"
            )
        seed = resolve_seed(self.random_state)
        encoder = load_encoder(self.model, texts, seed, None)
        train, dev = examples, examples
        if self.validation_fraction:
            train, dev = hold_out(task, examples, self.validation_fraction)
        stated = {name: getattr(self, name) for name in SETTINGS}
        settings: dict[str, Any] = {
            "seed": seed,
            "calibrate": bool(self.validation_fraction),
            **{name: value for name, value in stated.items() if value is not None},
            **(self.settings or {}),
        }
        result = finetune(encoder, task, train=train, dev=dev, **settings)
        model = result.model
        if num_truncated := sum(result.num_truncated.values()):
            warnings.warn(
                f"truncated {count_noun(num_truncated, 'training text')} to "
                f"{model.example_encoder.max_length} tokens: raise max_length, or set stride to "
                f"read long texts in windows",
                stacklevel=3,
            )
        self.model_ = FineTunedModel(
            model.task_model,
            model.tokenizer,
            model.task,
            model.example_encoder.max_length,
            self.precision,
            model.temperature,
        )
