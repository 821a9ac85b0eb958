"""The peer: stock classes under Transformers' own Trainer, on the rows that ours are trained on.

As a user runs it: float32, eager, rows in any order. Fast: compiled, fused AdamW, bfloat16 where
it is native. At its best, which is timed, rows of like length come together besides, with our
allocator settings; the grouping goes from long to short over and over and costs points (MRPC), so
scores are without it.
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

from bertwright.bench.finetuning.plan import Compared, Plan
from bertwright.extras import require
from bertwright.machine.process import usual_device
from bertwright.machine.speed import multiplies_bfloat16
from bertwright.tasks.answers import Floats
from bertwright.tasks.encoding import TaskRow
from bertwright.tasks.parts import Part

IGNORED = -100
"""The label of places that are not asked, as Transformers has it."""

CLASSES = {
    "class": "AutoModelForSequenceClassification",
    "number": "AutoModelForSequenceClassification",
    "tags": "AutoModelForTokenClassification",
    "span": "AutoModelForQuestionAnswering",
    "option": "AutoModelForMultipleChoice",
}
"""The stock classes by the kind of answer."""

PROBLEMS = {"class": "single_label_classification", "number": "regression"}
"""What the stock classes call them."""

Lap = Callable[[], None]

AS_IT_IS: Mapping[str, Any] = {}
"""What a user changes who changes nothing."""


def fast() -> dict[str, Any]:
    """What makes a step faster and leaves the rows of it as they are."""
    native = multiplies_bfloat16(usual_device())
    return {"bf16": native, "torch_compile": True, "optim": "adamw_torch_fused"}


def best() -> dict[str, Any]:
    """What makes an epoch fastest."""
    return {**fast(), "train_sampling_strategy": "group_by_length"}


class Items(Dataset[dict[str, Any]]):
    """The items of a part as stock collators want them."""

    def __init__(self, part: Part) -> None:
        self._items = [_item(part, number) for number in range(len(part.items))]

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, number: int) -> dict[str, Any]:
        return self._items[number]


def model_of(folder: Path, part: Part, dropout: float) -> Any:
    """The stock class for a task, with a head that knows nothing."""
    require("transformers", "huggingface")
    import transformers

    name = part.task.answer.name
    settings: dict[str, Any] = {
        "hidden_dropout_prob": dropout,
        "attention_probs_dropout_prob": dropout,
    }
    if name in ("class", "tags", "number"):
        settings["num_labels"] = part.answering.num_outputs
    # Said beforehand, because a model that finds it out is compiled twice.
    if name in PROBLEMS:
        settings["problem_type"] = PROBLEMS[name]
    transformers.logging.set_verbosity_error()
    return getattr(transformers, CLASSES[name]).from_pretrained(folder, **settings)


def trained(
    plan: Plan,
    compared: Compared,
    part: Part,
    folder: Path,
    seed: int,
    changed: Mapping[str, Any],
    *,
    after_epoch: Callable[[Any], None] = lambda model: None,
    before_step: Lap = lambda: None,
    epochs: int | None = None,
) -> float:
    """Train with the Trainer; the seconds of an epoch, evaluation left out."""
    require("accelerate", "dev")
    from transformers import Trainer, TrainerCallback, TrainingArguments, set_seed

    set_seed(seed)
    # Of the models before, whose graphs count against what may be compiled.
    torch.compiler.reset()
    model = model_of(folder, part, plan.dropout)
    seconds: list[float] = []

    class Watching(TrainerCallback):
        """Times every epoch, and looks at the model after it."""

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
            num_train_epochs=epochs or compared.epochs,
            per_device_train_batch_size=compared.batch,
            learning_rate=compared.rate,
            warmup_steps=plan.warmup,
            weight_decay=plan.decay,
            max_grad_norm=1.0,
            seed=seed,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            logging_strategy="no",
            **changed,
        )
        collator = _collator(part)
        trainer = Trainer(
            model=model,
            args=arguments,
            train_dataset=Items(part),
            data_collator=collator,
            callbacks=[Watching()],
        )
        trainer.train()
    return float(np.median(seconds))


@torch.inference_mode()
def outputs(model: Any, rows: Sequence[TaskRow], part: Part) -> list[Floats]:
    """What a stock model says of rows, as a head of ours says it: (k, K) for each."""
    found: list[Floats] = [np.empty((0, 0), np.float32)] * len(rows)
    order = sorted(range(len(rows)), key=lambda n: -len(rows[n].pieces))
    stock = getattr(model, "_orig_mod", model)
    with _evaluating(stock):
        for start in range(0, len(order), 32):
            numbers = order[start : start + 32]
            said = _said(stock, [rows[n] for n in numbers], part)
            for number, output in zip(numbers, said, strict=True):
                found[number] = output
    return found


def _said(stock: Any, rows: Sequence[TaskRow], part: Part) -> Iterator[Floats]:
    batch = _padded([_inputs(row) for row in rows])
    name = part.task.answer.name
    if name == "option":
        batch = {key: value[:, None] for key, value in batch.items()}
    said = stock(**{key: value.to(stock.device) for key, value in batch.items()})
    if name == "span":
        logits = torch.stack((said.start_logits, said.end_logits), -1)
    else:
        logits = said.logits
    for row, own in zip(rows, logits.float().cpu().numpy(), strict=True):
        yield own[list(row.places)] if row.places else own.reshape(1, -1)


@contextmanager
def _evaluating(model: Any) -> Generator[None]:
    training = model.training
    model.eval()
    yield
    model.train(training)


def _item(part: Part, number: int) -> dict[str, Any]:
    rows = [part.rows[n] for n in part.items[number]]
    targets = list(part.targets[number])
    match part.task.answer.name:
        case "option":
            columns = [_inputs(row) for row in rows]
            together = {key: [column[key] for column in columns] for key in columns[0]}
            return {**together, "labels": targets[0]}
        case "tags":
            labels = [IGNORED] * len(rows[0].pieces)
            for place, target in zip(rows[0].places, targets, strict=True):
                labels[place] = int(target)
            return {**_inputs(rows[0]), "labels": labels}
        case "span":
            start, end = (rows[0].places[int(target)] for target in targets)
            return {**_inputs(rows[0]), "start_positions": start, "end_positions": end}
        case _:
            return {**_inputs(rows[0]), "labels": targets[0]}


def _inputs(row: TaskRow) -> dict[str, list[int]]:
    segments = row.segments or [0] * len(row.pieces)
    return {"input_ids": row.pieces, "token_type_ids": segments}


def _padded(columns: Sequence[dict[str, list[int]]]) -> dict[str, Tensor]:
    """Rows to the length of the longest, with their mask."""
    longest = max(len(column["input_ids"]) for column in columns)
    found = {
        key: torch.tensor([[*c[key], *([0] * (longest - len(c[key])))] for c in columns])
        for key in ("input_ids", "token_type_ids")
    }
    mask = [[1] * len(c["input_ids"]) + [0] * (longest - len(c["input_ids"])) for c in columns]
    return {**found, "attention_mask": torch.tensor(mask)}


def _collator(part: Part) -> Callable[[list[dict[str, Any]]], dict[str, Tensor]]:
    """A batch as long as its longest row, as the stock collators make it."""
    name = part.task.answer.name

    def collate(items: list[dict[str, Any]]) -> dict[str, Tensor]:
        if name == "option":
            flat = [
                {key: item[key][n] for key in ("input_ids", "token_type_ids")}
                for item in items
                for n in range(len(item["input_ids"]))
            ]
            shaped = {k: v.view(len(items), -1, v.shape[-1]) for k, v in _padded(flat).items()}
            return {**shaped, "labels": torch.tensor([item["labels"] for item in items])}
        batch = _padded(items)
        if name == "span":
            for key in ("start_positions", "end_positions"):
                batch[key] = torch.tensor([item[key] for item in items])
            return batch
        if name == "tags":
            longest = batch["input_ids"].shape[1]
            labels = [[*i["labels"], *([IGNORED] * (longest - len(i["labels"])))] for i in items]
            return {**batch, "labels": torch.tensor(labels)}
        return {**batch, "labels": torch.tensor([item["labels"] for item in items])}

    return collate
