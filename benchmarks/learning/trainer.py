"""Training of a stock model by Transformers' ``Trainer`` with a time limit.

Compiled, with fused AdamW or Muon, our allocator settings and, where it is native, bfloat16. The
learning rate warms up and decays linearly to zero. The time includes compilation, after which the
schedule starts; nothing is evaluated or saved within it.
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
from torch.utils.data import Dataset as TorchDataset

from benchmarks.learning.arms import SETTINGS, TrainerSetting
from benchmarks.learning.stock import build_optimiser, build_stock_model
from bertwright.batches.formats import Packed
from bertwright.core.schedules import WarmupSchedule
from bertwright.data.shards.dataset import Dataset
from bertwright.data.tokenization.tokenizer import Tokenizer
from bertwright.runtime.matmul_throughput import supports_bfloat16
from bertwright.runtime.process import configure_process, default_device

SEQUENCE_LENGTH = 128
MAX_STEPS = 10**9
"""Limit of the Trainer; the time ends earlier."""


class BudgetTimer:
    """Progress by time, from the end of the first step, which compiles, to the time limit."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._end = float("inf")
        self._start: float | None = None

    def start(self) -> None:
        """Start the time."""
        self._end = time.monotonic() + self._seconds

    def after_step(self) -> None:
        """Record the end of a step."""
        if self._start is None:
            self._start = time.monotonic()

    @property
    def progress(self) -> float:
        """Return 0 until the end of the first step, 1 at the end."""
        now = time.monotonic()
        if now >= self._end:
            return 1.0
        return 0.0 if self._start is None else (now - self._start) / (self._end - self._start)


class TrainingSequences(TorchDataset[dict[str, list[int]]]):
    """Training sequences of bertwright for one epoch, in the format of the collator."""

    def __init__(self, data: Dataset) -> None:
        self._source = Packed(length=SEQUENCE_LENGTH).plan(
            data.split("train"), data.tokenizer.special_tokens, 0
        )

    def __len__(self) -> int:
        return self._source.num_sequences

    def __getitems__(self, indices: list[int]) -> list[dict[str, list[int]]]:
        batch = self._source.sequences(np.array(indices), 0)
        token_ids, special = batch.token_ids.tolist(), batch.is_special.astype(int).tolist()
        return [
            {"input_ids": ids, "special_tokens_mask": mask}
            for ids, mask in zip(token_ids, special, strict=True)
        ]


@dataclass(frozen=True)
class TrainerJob:
    """A training for a child process."""

    data: str
    output: str
    size: str
    setting: TrainerSetting
    minutes: float
    seed: int


def train(job: TrainerJob) -> None:
    """Train and write a Hugging Face folder with a ``training.json``."""
    from transformers import DataCollatorForLanguageModeling, Trainer, TrainingArguments, set_seed

    data = Dataset.open(Path(job.data))
    timer = BudgetTimer(60 * job.minutes)
    setting = job.setting
    set_seed(job.seed)
    tokenizer = data.tokenizer
    model = build_stock_model(setting, job.size, tokenizer.vocab_size, tokenizer.special_tokens)
    arguments = TrainingArguments(
        output_dir=job.output,
        use_cpu=not torch.cuda.is_available(),
        bf16=supports_bfloat16(default_device()),
        torch_compile=True,
        optim="adamw_torch_fused",
        per_device_train_batch_size=setting.batch_size,
        dataloader_drop_last=True,
        max_steps=MAX_STEPS,
        learning_rate=setting.learning_rate,
        adam_beta2=setting.adam_beta2,
        weight_decay=0.01,
        seed=job.seed,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
    trainer: Any = _time_scheduled_trainer(Trainer, timer, setting.warmup)(
        model=model,
        args=arguments,
        train_dataset=TrainingSequences(data),
        data_collator=DataCollatorForLanguageModeling(
            _stock_tokenizer(tokenizer), mlm_probability=setting.masking_rate
        ),
        optimizers=(build_optimiser(setting, model), None),
        callbacks=[_stop_callback(timer)],
    )
    timer.start()
    result = trainer.train()
    folder = Path(job.output)
    model.save_pretrained(folder)
    data.tokenizer.save(folder)
    record = {
        "steps": result.global_step,
        "tokens": result.global_step * setting.batch_size * SEQUENCE_LENGTH,
    }
    (folder / "training.json").write_text(json.dumps(record))


def _time_scheduled_trainer(trainer: type[Any], timer: BudgetTimer, warmup: float) -> type[Any]:
    """Return a Trainer class whose learning rate follows the time."""

    class TimeScheduledTrainer(trainer):
        def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> LambdaLR:
            schedule = WarmupSchedule(warmup=warmup, decay="linear")
            self.lr_scheduler = LambdaLR(
                optimizer or self.optimizer, lambda _: schedule.at(timer.progress)
            )
            return self.lr_scheduler

    return TimeScheduledTrainer


def _stop_callback(timer: BudgetTimer) -> Any:
    from transformers import TrainerCallback

    class StopAtEnd(TrainerCallback):
        """A callback that stops training at the end of the time."""

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            timer.after_step()
            control.should_training_stop = timer.progress >= 1.0

    return StopAtEnd()


def _stock_tokenizer(tokenizer: Tokenizer) -> Any:
    from transformers import PreTrainedTokenizerFast

    specials = tokenizer.special_tokens
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer.backend,
        pad_token=tokenizer.id_to_token(specials.pad),
        unk_token=tokenizer.id_to_token(specials.unknown),
        cls_token=tokenizer.id_to_token(specials.start),
        sep_token=tokenizer.id_to_token(specials.end),
        mask_token=tokenizer.id_to_token(specials.mask),
    )


def main() -> None:
    """Run a worker: ``python -m benchmarks.learning.trainer JSON``."""
    configure_process()
    job: dict[str, Any] = json.loads(sys.argv[1])
    setting = SETTINGS[job.pop("peer")](**job.pop("setting"))
    train(TrainerJob(setting=setting, **job))


if __name__ == "__main__":
    main()
