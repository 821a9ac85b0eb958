"""The contract of a task."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import numpy as np

from bertwright.models.text_model import TextModel
from bertwright.tasks.catalogue import find_split_file, find_task
from bertwright.tasks.evaluation.evaluate import evaluate
from bertwright.tasks.fine_tuned_model import FineTunedModel, load_fine_tuned_model
from bertwright.tasks.finetuning.finetune import finetune
from bertwright.tasks.formats.examples import Examples, TaskExample
from bertwright.tasks.outputs import Prediction
from bertwright.tasks.prediction import example_as_dict, predict_file
from bertwright.tasks.task import Task
from bertwright.testing.laws import failing_with, require, require_same
from bertwright.testing.toy import toy_text_model

TOLERANCE = 1e-4
"""Maximum difference between two float32 probabilities for the same input."""

NUM_ALONE = 4
"""Number of examples that are also predicted one at a time."""


def check_task(
    task: Task | str,
    data: str | Path | tuple[str | Path, str | Path],
    *overrides: str,
    num_examples: int | None = None,
    recipe: str | Path = "bert",
    **settings: Any,
) -> None:
    """Check the requirements of a task with an untrained model of toy size.

    The reader returns the same examples with and without labels. Every example becomes sequences
    within the maximum length, and gets one prediction, in order, which does not depend on other
    examples or on padding. After one epoch of fine-tuning, ``evaluate`` returns the scores of the
    predictions, all scores are finite, and the saved model predicts the same.

    ``data`` is a folder with a training and a development file, or these two files.
    ``num_examples`` is the number of development examples, if known; only with it can the check
    notice a line that the reader always drops. ``recipe`` and ``overrides`` define the model;
    ``settings`` are passed to ``finetune``. Errors: AssertionError with one sentence.
    """
    task = find_task(task) if isinstance(task, str) else task
    with failing_with(f"task {task.name}"):
        train_file, dev_file = _split_files(task, data)
        train, dev = task.read_examples(train_file), task.read_examples(dev_file)
        _check_reader(task, dev, dev_file, num_examples)
        texts = [text for example in (*train, *dev) for text in _texts_of(example)]
        pretrained = toy_text_model(texts, *overrides, recipe=recipe)
        model = _fine_tune(task, pretrained, train, dev, settings)
        _check_encoding(model, dev)
        predictions = model.predict(dev)
        require(
            len(predictions) == len(dev), f"{len(dev)} examples have {len(predictions)} predictions"
        )
        _check_values(model, predictions)
        _check_independence(model, dev, predictions)
        _check_files(model, dev_file, dev, predictions)
        _check_scores(model, dev, dev_file, predictions)
        _check_saving(model, dev, predictions)


def _split_files(task: Task, data: str | Path | tuple[str | Path, str | Path]) -> tuple[Path, Path]:
    if isinstance(data, tuple):
        train, dev = data
        return Path(train), Path(dev)
    keyword = task.reader.file_keyword
    train, dev = (find_split_file(Path(data), split, keyword) for split in ("train", "dev"))
    return train, dev


def _check_reader(task: Task, dev: Examples, file: Path, num_examples: int | None) -> None:
    expected = len(dev) if num_examples is None else num_examples
    require(
        len(dev) == expected and len(dev) > 0,
        f"its reader reads {len(dev)} examples of {file.name}, which has {expected or 'some'}",
    )
    unlabelled = task.read_examples(file, with_labels=False)
    require(
        len(unlabelled) == len(dev),
        f"its reader reads {len(dev)} examples of {file.name} with labels, and "
        f"{len(unlabelled)} without",
    )
    for example, other in zip(dev, unlabelled, strict=True):
        inputs, others = example_as_dict(example), example_as_dict(other)
        require(inputs == others, f"without labels, {inputs} is read as {others}")
        require(
            task.output_type.reference(example) is not None,
            f"{inputs} of {file.name} is read without its label",
        )


def _fine_tune(
    task: Task, pretrained: TextModel, train: Examples, dev: Examples, settings: Mapping[str, Any]
) -> FineTunedModel:
    """Return the model after one epoch, in float32."""
    defaults = {"epochs": 1, "batch_size": 8, "compile": False, "precision": "float32"}
    merged: dict[str, Any] = {**defaults, **settings}
    model = finetune(pretrained, task, train=train, dev=dev, **merged).model
    return FineTunedModel(
        model.task_model,
        model.tokenizer,
        model.task,
        model.example_encoder.max_length,
        "float32",
        model.temperature,
    )


def _check_encoding(model: FineTunedModel, dev: Examples) -> None:
    longest = model.example_encoder.max_length
    sequences = model.output_decoder.encode(model.example_encoder, dev)
    missing = set(range(len(dev))) - {sequence.example_index for sequence in sequences}
    if missing:
        inputs = example_as_dict(dev[min(missing)])
        raise AssertionError(f"no sequence is made of the example {inputs}")
    length = max(len(sequence.token_ids) for sequence in sequences)
    require(length <= longest, f"a sequence has {length} tokens, the maximum is {longest}")


def _check_values(model: FineTunedModel, predictions: Sequence[Prediction]) -> None:
    for prediction in predictions:
        data = prediction.as_dict()
        require(
            all(math.isfinite(number) for number in _numbers(data)),
            f"a prediction is not finite: {data}",
        )
        json.dumps(data)


def _check_independence(
    model: FineTunedModel, dev: Examples, predictions: Sequence[Prediction]
) -> None:
    """Check predictions in another order, and of a few examples one at a time, without padding."""
    reordered = model.predict([*dev][::-1])[::-1]
    _require_same(reordered, predictions, "a prediction depends on the order of the examples")
    for example, prediction in [*zip(dev, predictions, strict=True)][:NUM_ALONE]:
        _require_same(
            model.predict([example]),
            [prediction],
            "a prediction depends on padding or on other examples",
        )


def _check_files(
    model: FineTunedModel, file: Path, dev: Examples, predictions: Sequence[Prediction]
) -> None:
    """Check that predicting a file writes one line for each of its examples."""
    lines = [*predict_file(model, file)]
    require(
        len(lines) == len(dev),
        f"{file.name} has {len(dev)} examples, and {len(lines)} lines of predictions",
    )
    for line, example, prediction in zip(lines, dev, predictions, strict=True):
        expected = {**example_as_dict(example), **prediction.as_dict()}
        require_same(
            {key: value for key, value in line.items() if key in expected},
            expected,
            f"predict reads {file.name} differently from the reader of the task (see "
            f"ExampleReader.matches)",
            TOLERANCE,
        )


def _check_scores(
    model: FineTunedModel, dev: Examples, file: Path, predictions: Sequence[Prediction]
) -> None:
    task = model.task
    evaluation, scores = evaluate(model, file), task.score(dev, predictions)
    sentence = "evaluate disagrees with the predictions"
    require_same(dict(evaluation["metrics"]), dict(scores), sentence, TOLERANCE)
    for metric, score in scores.items():
        require(math.isfinite(score), f"the metric {metric} is {score}")


def _check_saving(model: FineTunedModel, dev: Examples, predictions: Sequence[Prediction]) -> None:
    with TemporaryDirectory() as folder:
        model.save(folder)
        loaded = load_fine_tuned_model(Path(folder), "float32")
    require(loaded.task == model.task, f"task {model.task.name} changes when it is saved")
    _require_same(loaded.predict(dev), predictions, "the loaded model predicts differently")


def _require_same(
    predictions: Sequence[Prediction], others: Sequence[Prediction], sentence: str
) -> None:
    ours, theirs = ([p.as_dict() for p in some] for some in (predictions, others))
    require_same(ours, theirs, sentence, TOLERANCE)


def _texts_of(example: TaskExample) -> Iterator[str]:
    for value in example_as_dict(example).values():
        if isinstance(value, str):
            yield value
        else:
            yield from map(str, value)


def _numbers(value: Any) -> Iterator[float]:
    """Return the numbers in plain data."""
    if isinstance(value, Mapping):
        value = list(cast(Mapping[str, Any], value).values())
    if isinstance(value, list | tuple):
        for item in cast(list[Any], value):
            yield from _numbers(item)
    elif isinstance(value, int | float | np.number):
        yield float(value)
