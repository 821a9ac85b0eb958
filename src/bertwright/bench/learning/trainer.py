"""The peer's training: ``BertForMaskedLM`` under Transformers' own ``Trainer``, in a given time.

bfloat16 where that is native, compiled, fused AdamW, our allocator settings, warmup over a tenth of
the time and then linear decay to zero as the time ends. The time is counted from the call of
``train``, so it holds the compilation; the schedule begins when that is over. Nothing is evaluated
or saved within it.
"""

import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import Dataset

from bertwright.bench.learning.arms import Setting
from bertwright.bench.peers import stock_model
from bertwright.examples.assembly import Packed
from bertwright.machine.process import tune_process, usual_device
from bertwright.machine.speed import multiplies_bfloat16
from bertwright.recipes import Recipe
from bertwright.schedules import Warmup
from bertwright.text.shards import Data
from bertwright.text.tokenizers import Tokenizer

LENGTH, BATCH_ROWS = 128, 16
FOREVER = 10**9
"""Steps; the time ends before."""


class Timer:
    """Progress by time: from the end of the first step, which compiles, to that of the budget."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._end = float("inf")
        self._began: float | None = None

    def start(self) -> None:
        """The time begins."""
        self._end = time.monotonic() + self._seconds

    def after_step(self) -> None:
        """A step was made."""
        if self._began is None:
            self._began = time.monotonic()

    @property
    def progress(self) -> float:
        """0 until the first step is over, 1 at the end."""
        now = time.monotonic()
        if now >= self._end:
            return 1.0
        return 0.0 if self._began is None else (now - self._began) / (self._end - self._began)


class TrainingRows(Dataset[dict[str, list[int]]]):
    """The rows that ours are trained on, those of one epoch, as the collator wants them."""

    def __init__(self, data: Data) -> None:
        self._source = Packed(length=LENGTH).plan(data.split("train"), data.tokenizer.specials, 0)

    def __len__(self) -> int:
        return self._source.num_rows

    def __getitems__(self, indices: list[int]) -> list[dict[str, list[int]]]:
        rows = self._source.rows(np.array(indices), 0)
        pieces, special = rows.pieces.tolist(), rows.special.astype(int).tolist()
        return [
            {"input_ids": row, "special_tokens_mask": marks}
            for row, marks in zip(pieces, special, strict=True)
        ]


@dataclass(frozen=True)
class Order:
    """What the child process is told to train."""

    data: str
    output: str
    size: str
    setting: Setting
    minutes: float
    seed: int


def train(order: Order) -> None:
    """Train, and write a Hugging Face folder with a ``training.json`` beside the weights."""
    from transformers import DataCollatorForLanguageModeling, Trainer, TrainingArguments, set_seed

    data = Data.open(Path(order.data))
    timer = Timer(60 * order.minutes)
    setting = order.setting
    set_seed(order.seed)
    model: Any = stock_model(
        Recipe.load(f"bert-{order.size}"),
        data.tokenizer.size,
        initializer_range=setting.deviation,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    arguments = TrainingArguments(
        output_dir=order.output,
        use_cpu=not torch.cuda.is_available(),
        bf16=multiplies_bfloat16(usual_device()),
        torch_compile=True,
        optim="adamw_torch_fused",
        per_device_train_batch_size=BATCH_ROWS,
        dataloader_drop_last=True,
        max_steps=FOREVER,
        learning_rate=setting.rate,
        adam_beta2=setting.beta_2,
        weight_decay=0.01,
        seed=order.seed,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
    trainer: Any = _timed(Trainer, timer)(
        model=model,
        args=arguments,
        train_dataset=TrainingRows(data),
        data_collator=DataCollatorForLanguageModeling(_stock_tokenizer(data.tokenizer)),
        callbacks=[_stopping(timer)],
    )
    timer.start()
    result = trainer.train()
    folder = Path(order.output)
    model.save_pretrained(folder)
    data.tokenizer.save(folder)
    record = {"steps": result.global_step, "tokens": result.global_step * BATCH_ROWS * LENGTH}
    (folder / "training.json").write_text(json.dumps(record))


def _timed(trainer: type[Any], timer: Timer) -> type[Any]:
    """A Trainer whose learning rate follows the time."""

    class Timed(trainer):
        def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> LambdaLR:
            schedule = Warmup(warmup=0.1, decay="linear")
            self.lr_scheduler = LambdaLR(
                optimizer or self.optimizer, lambda _: schedule.at(timer.progress)
            )
            return self.lr_scheduler

    return Timed


def _stopping(timer: Timer) -> Any:
    from transformers import TrainerCallback

    class Stopping(TrainerCallback):
        """Ends the training with the time."""

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            timer.after_step()
            control.should_training_stop = timer.progress >= 1.0

    return Stopping()


def _stock_tokenizer(tokenizer: Tokenizer) -> Any:
    from transformers import PreTrainedTokenizerFast

    specials = tokenizer.specials
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer.backend,
        pad_token=tokenizer.piece(specials.pad),
        unk_token=tokenizer.piece(specials.unknown),
        cls_token=tokenizer.piece(specials.start),
        sep_token=tokenizer.piece(specials.end),
        mask_token=tokenizer.piece(specials.mask),
    )


def main() -> None:
    """Train as told: ``python -m bertwright.bench.learning.trainer JSON``."""
    tune_process()
    told: dict[str, Any] = json.loads(sys.argv[1])
    setting = Setting(**told.pop("setting"))
    train(Order(setting=setting, **told))


if __name__ == "__main__":
    main()
