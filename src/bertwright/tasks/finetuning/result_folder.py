"""The folder of a fine-tuned model: the best model, its predictions and errors, every epoch."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bertwright.core.files import atomic_folder, write_text
from bertwright.runtime.device import package_versions
from bertwright.tasks.baselines.baseline import TaskBaseline
from bertwright.tasks.baselines.storage import save_baselines
from bertwright.tasks.evaluation.error_analysis import confusion_matrix, iter_errors
from bertwright.tasks.finetuning.evaluator import BestEpoch, flatten_scores
from bertwright.tasks.finetuning.run import FineTuningRun
from bertwright.tasks.prediction import prediction_records
from bertwright.tasks.provenance import provenance


def write_results(
    output: Path,
    results: Mapping[str, Any],
    run: FineTuningRun,
    best: BestEpoch,
    baselines: Sequence[Sequence[TaskBaseline]],
    extra_files: Mapping[str, str],
) -> None:
    """Write the folder, with a subfolder per task if there are several."""
    settings = run.config.model_dump(mode="json") | {"learning_rate": run.learning_rate}
    with atomic_folder(output) as folder:
        for index, encoded in enumerate(run.encoded_tasks):
            task, dev = encoded.task, encoded.dev
            task_folder = folder if len(run.encoded_tasks) == 1 else folder / task.name
            task_folder.mkdir(exist_ok=True)
            record = {
                **results,
                "from": run.model.recipe.name,
                "training_examples": len(encoded.train),
                "held_out_examples": len(dev),
                "labels": task.label_fractions(encoded.train),
                "provenance": provenance(run.source, encoded.train, dev),
                "settings": settings,
                "versions": package_versions("torch", "bertwright"),
            }
            predictions = best.predictions[index]
            write_json_lines(
                task_folder / "predictions.jsonl", prediction_records(dev, predictions, task)
            )
            write_json_lines(task_folder / "errors.jsonl", iter_errors(task, dev, predictions))
            if matrix := confusion_matrix(task, dev, predictions):
                write_text(task_folder / "confusion.json", json.dumps(matrix, indent=1) + "\n")
            save_baselines(task_folder, baselines[index])
            best.models[index].save(task_folder, record)
        for name, text in extra_files.items():
            write_text(folder / name, text)
        write_json_lines(
            folder / "metrics.jsonl",
            (
                {"seed": e.seed, "epoch": e.epoch, "loss": e.loss, **flatten_scores(e.scores)}
                for e in run.epoch_reports
            ),
        )


def write_json_lines(file: Path, lines: Iterable[Mapping[str, Any]]) -> None:
    """Write one JSON object per line."""
    with open(file, "w", encoding="utf-8") as opened:
        opened.writelines(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
