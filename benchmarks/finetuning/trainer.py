"""Training of stock classes by Transformers' Trainer, on the sequences of bertwright.

The default settings are float32, eager, random batches. The fast settings compile and use fused
AdamW and, where it is native, bfloat16. The fastest settings, which are timed, also group sequences
of equal length, with our allocator settings; the grouping costs points (MRPC), so scores are
without it.
"""

import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from benchmarks.finetuning.plan import FineTuningPlan, FineTuningTask
from bertwright.core.optional_dependencies import require_library
from bertwright.runtime.matmul_throughput import supports_bfloat16
from bertwright.runtime.process import default_device
from bertwright.tasks.example_encoder import TaskSequence
from bertwright.tasks.finetuning.batching.encoded_task import EncodedTask
from bertwright.tasks.outputs import FloatArray

IGNORE_INDEX = -100
"""Label of positions without a target, as in Transformers."""

AUTO_CLASSES = {
    "class": "AutoModelForSequenceClassification",
    "number": "AutoModelForSequenceClassification",
    "tags": "AutoModelForTokenClassification",
    "span": "AutoModelForQuestionAnswering",
    "option": "AutoModelForMultipleChoice",
}
"""Stock classes by output type."""

PROBLEM_TYPES = {"class": "single_label_classification", "number": "regression"}
"""Problem types of the stock classes, by output type."""

StepCallback = Callable[[], None]

DEFAULT_SETTINGS: Mapping[str, Any] = {}
"""Changes to the default settings of the Trainer."""


def fast_settings() -> dict[str, Any]:
    """Return the settings that make a step faster without changing its batch."""
    native = supports_bfloat16(default_device())
    return {"bf16": native, "torch_compile": True, "optim": "adamw_torch_fused"}


def fastest_settings() -> dict[str, Any]:
    """Return the settings of the fastest epoch."""
    return {**fast_settings(), "train_sampling_strategy": "group_by_length"}


class StockDataset(Dataset[dict[str, Any]]):
    """Items of a task in the format of stock collators."""

    def __init__(self, part: EncodedTask) -> None:
        self._examples = [_make_example(part, number) for number in range(len(part.items))]

    def __len__(self) -> int:
        return len(self._examples)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self._examples[index]


def build_stock_model(folder: Path, part: EncodedTask, dropout: float) -> Any:
    """Return the stock class for a task, with a random head."""
    require_library("transformers", "huggingface")
    import transformers

    name = part.task.output_type.kind_name()
    settings: dict[str, Any] = {
        "hidden_dropout_prob": dropout,
        "attention_probs_dropout_prob": dropout,
    }
    if name in ("class", "tags", "number"):
        settings["num_labels"] = part.output_decoder.num_outputs
    # Stated beforehand: a model that infers it is compiled twice.
    if name in PROBLEM_TYPES:
        settings["problem_type"] = PROBLEM_TYPES[name]
    transformers.logging.set_verbosity_error()
    return getattr(transformers, AUTO_CLASSES[name]).from_pretrained(folder, **settings)


def train_stock_model(
    plan: FineTuningPlan,
    task: FineTuningTask,
    part: EncodedTask,
    folder: Path,
    seed: int,
    overrides: Mapping[str, Any],
    *,
    after_epoch: Callable[[Any], None] = lambda model: None,
    before_step: StepCallback = lambda: None,
    num_epochs: int | None = None,
) -> float:
    """Train with the Trainer and return the median seconds of an epoch, without evaluation."""
    require_library("accelerate", "dev")
    from transformers import Trainer, TrainerCallback, TrainingArguments, set_seed

    set_seed(seed)
    # The graphs of earlier models count against the limit of recompilations.
    torch.compiler.reset()
    model = build_stock_model(folder, part, plan.dropout)
    seconds: list[float] = []

    class EpochTimer(TrainerCallback):
        """A callback that times every epoch and evaluates the model after it."""

        def on_epoch_begin(self, *_: Any, **__: Any) -> None:
            seconds.append(time.perf_counter())

        def on_step_begin(self, *_: Any, **__: Any) -> None:
            before_step()

        def on_epoch_end(self, *_: Any, **__: Any) -> None:
            seconds[-1] = time.perf_counter() - seconds[-1]
            after_epoch(model)

    with TemporaryDirectory() as work:
        arguments = TrainingArguments(
            output_dir=work,
            use_cpu=not torch.cuda.is_available(),
            num_train_epochs=num_epochs or task.epochs,
            per_device_train_batch_size=task.batch_size,
            learning_rate=task.learning_rate,
            warmup_steps=plan.warmup,
            weight_decay=plan.weight_decay,
            max_grad_norm=1.0,
            seed=seed,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            logging_strategy="no",
            **overrides,
        )
        collator = _make_collator(part)
        trainer = Trainer(
            model=model,
            args=arguments,
            train_dataset=StockDataset(part),
            data_collator=collator,
            callbacks=[EpochTimer()],
        )
        trainer.train()
    return float(np.median(seconds))


@torch.inference_mode()
def predict_outputs(
    model: Any, sequences: Sequence[TaskSequence], part: EncodedTask
) -> list[FloatArray]:
    """Return the outputs of a stock model in the format of our heads: (k, K) per sequence."""
    outputs: list[FloatArray] = [np.empty((0, 0), np.float32)] * len(sequences)
    order = sorted(range(len(sequences)), key=lambda n: -len(sequences[n].token_ids))
    stock = getattr(model, "_orig_mod", model)
    with _evaluation_mode(stock):
        for start in range(0, len(order), 32):
            indices = order[start : start + 32]
            batch = _predict_batch(stock, [sequences[n] for n in indices], part)
            for index, output in zip(indices, batch, strict=True):
                outputs[index] = output
    return outputs


def _predict_batch(
    stock_model: Any, sequences: Sequence[TaskSequence], part: EncodedTask
) -> Iterator[FloatArray]:
    batch = _pad_columns([_make_inputs(sequence) for sequence in sequences])
    name = part.task.output_type.kind_name()
    if name == "option":
        batch = {key: value[:, None] for key, value in batch.items()}
    output = stock_model(**{key: value.to(stock_model.device) for key, value in batch.items()})
    if name == "span":
        logits = torch.stack((output.start_logits, output.end_logits), -1)
    else:
        logits = output.logits
    for sequence, values in zip(sequences, logits.float().cpu().numpy(), strict=True):
        positions = list(sequence.positions)
        yield values[positions] if positions else values.reshape(1, -1)


@contextmanager
def _evaluation_mode(model: Any) -> Generator[None]:
    training = model.training
    model.eval()
    yield
    model.train(training)


def _make_example(part: EncodedTask, index: int) -> dict[str, Any]:
    sequences = [part.sequences[n] for n in part.items[index]]
    targets = list(part.targets[index])
    match part.task.output_type.kind_name():
        case "option":
            columns = [_make_inputs(sequence) for sequence in sequences]
            inputs = {key: [column[key] for column in columns] for key in columns[0]}
            return {**inputs, "labels": targets[0]}
        case "tags":
            labels = [IGNORE_INDEX] * len(sequences[0].token_ids)
            for position, target in zip(sequences[0].positions, targets, strict=True):
                labels[position] = int(target)
            return {**_make_inputs(sequences[0]), "labels": labels}
        case "span":
            start, end = (sequences[0].positions[int(target)] for target in targets)
            return {**_make_inputs(sequences[0]), "start_positions": start, "end_positions": end}
        case _:
            return {**_make_inputs(sequences[0]), "labels": targets[0]}


def _make_inputs(sequence: TaskSequence) -> dict[str, list[int]]:
    segments = sequence.segment_ids or [0] * len(sequence.token_ids)
    return {"input_ids": sequence.token_ids, "token_type_ids": segments}


def _pad_columns(columns: Sequence[dict[str, list[int]]]) -> dict[str, Tensor]:
    """Return sequences padded to the longest, with their attention mask."""
    longest = max(len(column["input_ids"]) for column in columns)
    padded = {
        key: torch.tensor([[*c[key], *([0] * (longest - len(c[key])))] for c in columns])
        for key in ("input_ids", "token_type_ids")
    }
    mask = [[1] * len(c["input_ids"]) + [0] * (longest - len(c["input_ids"])) for c in columns]
    return {**padded, "attention_mask": torch.tensor(mask)}


def _make_collator(part: EncodedTask) -> Callable[[list[dict[str, Any]]], dict[str, Tensor]]:
    """Return a collator that pads to the longest sequence, like the stock ones."""
    name = part.task.output_type.kind_name()

    def collate(items: list[dict[str, Any]]) -> dict[str, Tensor]:
        if name == "option":
            flat = [
                {key: item[key][n] for key in ("input_ids", "token_type_ids")}
                for item in items
                for n in range(len(item["input_ids"]))
            ]
            shaped = {k: v.view(len(items), -1, v.shape[-1]) for k, v in _pad_columns(flat).items()}
            return {**shaped, "labels": torch.tensor([item["labels"] for item in items])}
        batch = _pad_columns(items)
        if name == "span":
            for key in ("start_positions", "end_positions"):
                batch[key] = torch.tensor([item[key] for item in items])
            return batch
        if name == "tags":
            longest = batch["input_ids"].shape[1]
            labels = [
                [*i["labels"], *([IGNORE_INDEX] * (longest - len(i["labels"])))] for i in items
            ]
            return {**batch, "labels": torch.tensor(labels)}
        return {**batch, "labels": torch.tensor([item["labels"] for item in items])}

    return collate
