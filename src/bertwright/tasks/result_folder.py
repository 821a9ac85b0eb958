"""The folder of a fine-tuned model: the best one, its answers, its errors, and every epoch."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bertwright.files import atomic_folder, write_text
from bertwright.machine.description import versions
from bertwright.tasks.baselines.baseline import Baseline
from bertwright.tasks.baselines.storage import save_baselines
from bertwright.tasks.errors import confusion, wrong
from bertwright.tasks.finetuning_settings import FineTuning
from bertwright.tasks.judging import Best, figures_of
from bertwright.tasks.origins import origins
from bertwright.tasks.prediction_lines import as_lines
from bertwright.tasks.task_training import Training


def write_results(
    out: Path,
    found: Mapping[str, Any],
    training: Training,
    best: Best,
    baselines: Sequence[Sequence[Baseline]],
    chosen: FineTuning,
    more: Mapping[str, str],
) -> None:
    """Write the folder, of several tasks one within for each, with ``more`` files by name."""
    settings = chosen.model_dump(mode="json") | {"rate": training.optimiser.rate}
    with atomic_folder(out) as folder:
        for number, part in enumerate(training.parts):
            own = folder if len(training.parts) == 1 else folder / part.task.name
            own.mkdir(exist_ok=True)
            about = {
                **found,
                "from": training.net.recipe.name,
                "training_examples": len(part.train),
                "held_out_examples": len(part.dev),
                "labels": part.task.shares(part.train),
                "origins": origins(training.source, part.train, part.dev),
                "settings": settings,
                "versions": versions("torch", "bertwright"),
            }
            model, said = best.models[number], best.predictions[number]
            write_lines(own / "predictions.jsonl", as_lines(part.dev, said, part.task))
            write_lines(own / "errors.jsonl", wrong(part.task, part.dev, said))
            if counts := confusion(part.task, part.dev, said):
                write_text(own / "confusion.json", json.dumps(counts, indent=1) + "\n")
            save_baselines(own, baselines[number])
            model.save(own, about)
        for name, text in more.items():
            write_text(folder / name, text)
        write_lines(
            folder / "metrics.jsonl",
            (
                {"seed": e.seed, "epoch": e.epoch, "loss": e.loss, **figures_of(e.scores)}
                for e in training.epochs_seen
            ),
        )


def write_lines(file: Path, lines: Iterable[Mapping[str, Any]]) -> None:
    """One JSON object a line."""
    with open(file, "w", encoding="utf-8") as opened:
        opened.writelines(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
