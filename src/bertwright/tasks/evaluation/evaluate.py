"""Evaluation of a pretrained model on text, or of a fine-tuned model on its task."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bertwright.core.errors import UserError
from bertwright.data.hub.reference import HubDataset
from bertwright.data.shards.dataset import Dataset
from bertwright.models.text_model import TextModel
from bertwright.tasks.baselines.comparison import compare_with_baselines
from bertwright.tasks.baselines.storage import load_baselines
from bertwright.tasks.data.task_data import split_file
from bertwright.tasks.ensemble import Ensemble
from bertwright.tasks.evaluation.error_analysis import iter_errors
from bertwright.tasks.fine_tuned_model import FineTunedModel
from bertwright.tasks.formats.examples import Examples
from bertwright.tasks.task import Task
from bertwright.training.evaluation import held_out as evaluation


def evaluate(
    model: TextModel | Ensemble, data: Path | str | Examples, with_baselines: bool = False
) -> dict[str, Any]:
    """Evaluate a model.

    A fine-tuned model or an ensemble is evaluated on a file of its task, the development file of a
    folder, or examples: the result has ``task``, ``metric``, ``score``, and every metric in
    ``metrics``. A pretrained model is evaluated on the held-out text of a prepared dataset:
    ``masked_loss``, ``perplexity``, ``masked_accuracy``, ``bits_per_byte``, ``unigram_entropy`` and
    the metrics of its other objectives.

    For a fine-tuned model, ``with_baselines`` adds the number of ``examples``, the bootstrap
    ``intervals`` of the metrics, and the scores of the ``baselines`` fitted to its training
    examples; ``warnings`` if the model is not better, or if baselines are missing.

    Errors: UserError for a dataset of another tokenizer and for examples without labels.
    """
    if not isinstance(model, FineTunedModel | Ensemble):
        if not isinstance(data, str | Path):
            raise UserError("a pretrained model is evaluated on a folder written by prepare")
        return _evaluate_text(model, Dataset.open(data))
    task, examples = model.task, task_examples(model.task, data)
    predictions = model.predict(examples)
    unknown = _unknown_labels(task, examples)
    scores, metric = task.score(examples, predictions), task.metrics[0]
    result = {"task": task.name, "metric": metric, "score": scores[metric], "metrics": scores}
    result |= {"unknown_labels": unknown} if unknown else {}
    if not with_baselines:
        return result
    first = model.first if isinstance(model, Ensemble) else model
    baselines = None if first.folder is None else load_baselines(first.folder)
    comparison = compare_with_baselines(first, examples, predictions, baselines or [])
    warning = comparison.verdict
    if baselines is None:
        warning = (
            "this model has no baselines: finetune fits them to the training examples and saves "
            "them in the folder of the model"
        )
    return {**result, **comparison.as_dict(), **({"warnings": [warning]} if warning else {})}


def _evaluate_text(model: TextModel, data: Dataset) -> dict[str, Any]:
    if not model.model.recipe.objectives:
        raise UserError("evaluation on text needs a model with a pretraining objective")
    if data.tokenizer.hash != model.tokenizer.hash:
        raise UserError(
            f"{data.path} was prepared with another tokenizer than the model's: prepare it with "
            f"--tokenizer and the folder of the model"
        )
    return evaluation.evaluate(model.model, data)


def prediction_errors(
    model: TextModel | Ensemble, data: Path | str | Examples
) -> Iterator[dict[str, Any]]:
    """Iterate over a fine-tuned model's errors, most confident or largest first."""
    if not isinstance(model, FineTunedModel | Ensemble):
        raise UserError("errors need a fine-tuned model: fine-tune it first")
    examples = task_examples(model.task, data)
    return iter_errors(model.task, examples, model.predict(examples))


def task_examples(task: Task, data: Path | str | Examples) -> Examples:
    """Return labelled examples: read from a file or a folder's development file, or as passed.

    Of a data set on the Hub, it is the development split.
    """
    if isinstance(data, str | Path):
        path = Path(data)
        if HubDataset.is_named(data) or path.is_dir():
            path = split_file(task, data, "dev")
        if path is None:
            raise UserError(f"{data} has no development split: name a file of the task")
        data = task.read_examples(path)
    task.output_type.validate_examples(data)
    if not data or any(task.output_type.reference(example) is None for example in data):
        raise UserError(f"task {task.name}: there are examples without labels: add the labels")
    task.require_metrics_defined(data)
    return data


def _unknown_labels(task: Task, examples: Examples) -> list[str]:
    """Return the labels that the model lacks; UserError if it has none of them."""
    unknown = sorted(task.unknown_labels(examples))
    labels = task.labels_of(examples)
    if labels and len(unknown) == len(labels):
        raise UserError(
            f"task {task.name}: the data have the labels {', '.join(unknown[:9])}, the model "
            f"{', '.join(task.labels)}: nothing to compare"
        )
    return unknown
