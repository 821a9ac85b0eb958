"""Evaluation of a model on data: a pre-trained one on text, a fine-tuned one on its task."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bertwright.errors import UserError
from bertwright.model.text_model import TextModel
from bertwright.tasks.answers import Prediction
from bertwright.tasks.baselines.comparing import compare_with_baselines
from bertwright.tasks.baselines.storage import load_baselines
from bertwright.tasks.catalogue import find_part
from bertwright.tasks.errors import wrong
from bertwright.tasks.fine_tuned import FineTuned
from bertwright.tasks.formats.examples import Examples
from bertwright.tasks.task import Task
from bertwright.text.shards import Data
from bertwright.training import evaluation


def evaluate(model: TextModel, data: Path | str | Examples) -> dict[str, Any]:
    """What a model scores.

    A fine-tuned model is evaluated on a file of its task, the development file of a folder, or
    examples: ``task``, ``metric``, ``score``, and every metric in ``metrics``. A pre-trained one on
    the held-out text of a prepared data set: ``masked_loss``, ``perplexity``, ``masked_accuracy``,
    ``bits_per_byte``, ``unigram_entropy`` and what else its objectives ask.

    Errors: UserError for a data set of another tokenizer, and for examples without labels.
    """
    if isinstance(model, FineTuned):
        return _on_task(model, data)
    if not isinstance(data, str | Path):
        raise UserError("a pre-trained model is evaluated on a folder that prepare wrote")
    return _on_text(model, Data.open(data))


def _on_text(model: TextModel, data: Data) -> dict[str, Any]:
    if not model.model.recipe.objectives:
        raise UserError("evaluation on text needs a model that answers a question; this has none")
    if data.tokenizer.hash != model.tokenizer.hash:
        raise UserError(
            f"{data.path} was prepared with another tokenizer than the model's: prepare the text "
            f"with --tokenizer and the folder of the model"
        )
    return evaluation.evaluate(model.model, data)


def _on_task(model: FineTuned, data: Path | str | Examples) -> dict[str, Any]:
    examples = task_examples(model.task, data)
    return _scored(model.task, examples, model.predict(examples))


def _scored(task: Task, examples: Examples, predictions: Sequence[Prediction]) -> dict[str, Any]:
    unknown = _unknown_labels(task, examples)
    scores = task.score(examples, predictions)
    metric = task.metrics[0]
    found = {"task": task.name, "metric": metric, "score": scores[metric], "metrics": scores}
    return found | ({"unknown_labels": unknown} if unknown else {})


def evaluate_beside_baselines(model: TextModel, data: Path | str | Examples) -> dict[str, Any]:
    """Return what :func:`evaluate` does, and of a fine-tuned model on how many ``examples``, the
    bootstrap ``intervals`` of its metrics, and what the ``baselines`` of its training examples
    score on the same; ``warnings`` say where it is not better, and why there may be none."""
    if not isinstance(model, FineTuned):
        return evaluate(model, data)
    examples = task_examples(model.task, data)
    predictions = model.predict(examples)
    found = _scored(model.task, examples, predictions)
    baselines = None if model.folder is None else load_baselines(model.folder)
    compared = compare_with_baselines(model, examples, predictions, baselines or [])
    absent = (
        "there are no baselines beside this model: they are those of its training examples, which "
        "finetune fits and keeps in the folder that it writes"
    )
    warnings = [absent] if baselines is None else [compared.verdict] if compared.verdict else []
    return {**found, **compared.as_dict(), **({"warnings": warnings} if warnings else {})}


def errors(model: TextModel, data: Path | str | Examples) -> Iterator[dict[str, Any]]:
    """What a fine-tuned model gets wrong of its task, the surest first; of numbers all, the
    furthest first."""
    if not isinstance(model, FineTuned):
        raise UserError("errors are those of a task: fine-tune the model first")
    examples = task_examples(model.task, data)
    return wrong(model.task, examples, model.predict(examples))


def task_examples(task: Task, data: Path | str | Examples) -> Examples:
    """Examples of a task whose right answers are known: of a file, of the development file of a
    folder, or as they are."""
    if isinstance(data, str | Path):
        path = Path(data)
        data = task.read(find_part(path, "dev", task.reader.file_word) if path.is_dir() else path)
    task.answer.checked(data)
    if not data or any(task.answer.reference(example) is None for example in data):
        raise UserError(f"task {task.name}: there are examples without labels: nothing to compare")
    task.require_scored(data)
    return data


def _unknown_labels(task: Task, examples: Examples) -> list[str]:
    """The labels that the model cannot answer with; UserError where it knows none of them."""
    unknown = sorted(task.unseen(examples))
    stated = task.labels_of(examples)
    if stated and len(unknown) == len(stated):
        known = ", ".join(task.labels)
        raise UserError(
            f"task {task.name}: the data are labelled {', '.join(unknown[:9])}, and the model "
            f"answers {known}: nothing to compare"
        )
    return unknown
