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
from bertwright.testing.laws import failing_with, first_difference, require
from bertwright.testing.toy import toy_text_model

TOLERANCE = 1e-4
"""Maximum difference of two float32 probabilities of the same input."""

NUM_ALONE = 4
"""Examples that are also predicted alone."""


def check_task(
    task: Task | str,
    data: str | Path | tuple[str | Path, str | Path],
    *overrides: str,
    num_examples: int | None = None,
    recipe: str | Path = "bert",
    **settings: Any,
) -> None:
    """Check the laws of a task with an untrained model of toy size.

    Its reader reads the same examples with and without labels. Every example becomes sequences
    within the maximum length, and gets one prediction, in order, which depends neither on the
    other examples nor on padding. After one epoch of fine-tuning ``evaluate`` returns the scores
    of the predictions, all of them finite, and the saved model predicts the same.

    ``data`` is a folder with a training and a development file, or these two files.
    ``num_examples`` is the number of development examples, where it is known: the only way to
    notice a line that the reader always drops. ``recipe`` and ``overrides`` define the
    model, ``settings`` are passed to ``finetune``. Errors: AssertionError with one sentence.
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
            len(predictions) == len(dev),
            f"task {task.name}: {len(dev)} examples have {len(predictions)} predictions",
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
        f"task {task.name}: its reader reads {len(dev)} examples of {file.name}, which has "
        f"{expected or 'some'}",
    )
    unlabelled = task.read_examples(file, with_labels=False)
    require(
        len(unlabelled) == len(dev),
        f"task {task.name}: its reader reads {len(dev)} examples of {file.name} with labels, and "
        f"{len(unlabelled)} without",
    )
    for example, other in zip(dev, unlabelled, strict=True):
        inputs, others = example_as_dict(example), example_as_dict(other)
        require(
            inputs == others,
            f"task {task.name}: without labels, {inputs} is read as {others}",
        )
        require(
            task.output_type.reference(example) is not None,
            f"task {task.name}: {inputs} of {file.name} is read without its label",
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
    name, longest = model.task.name, model.example_encoder.max_length
    sequences = model.output_decoder.encode(model.example_encoder, dev)
    missing = set(range(len(dev))) - {sequence.example_index for sequence in sequences}
    if missing:
        inputs = example_as_dict(dev[min(missing)])
        raise AssertionError(f"task {name}: no sequence is made of the example {inputs}")
    length = max(len(sequence.token_ids) for sequence in sequences)
    require(
        length <= longest, f"task {name}: a sequence has {length} tokens, the maximum is {longest}"
    )


def _check_values(model: FineTunedModel, predictions: Sequence[Prediction]) -> None:
    for prediction in predictions:
        data = prediction.as_dict()
        require(
            all(math.isfinite(number) for number in _numbers(data)),
            f"task {model.task.name}: a prediction is not finite: {data}",
        )
        json.dumps(data)


def _check_independence(
    model: FineTunedModel, dev: Examples, predictions: Sequence[Prediction]
) -> None:
    """Check predictions in another order, and of a few examples alone, without padding."""
    name = model.task.name
    reordered = model.predict([*dev][::-1])[::-1]
    difference = _first_difference(reordered, predictions)
    require(
        difference is None,
        f"task {name}: a prediction depends on the order of the examples: {difference}",
    )
    for example, prediction in [*zip(dev, predictions, strict=True)][:NUM_ALONE]:
        difference = _first_difference(model.predict([example]), [prediction])
        require(
            difference is None,
            f"task {name}: a prediction depends on padding or on other examples: {difference}",
        )


def _check_files(
    model: FineTunedModel, file: Path, dev: Examples, predictions: Sequence[Prediction]
) -> None:
    """Check that a file has a line of predictions for each of its examples."""
    name, lines = model.task.name, [*predict_file(model, file)]
    require(
        len(lines) == len(dev),
        f"task {name}: {file.name} has {len(dev)} examples, and {len(lines)} lines of predictions",
    )
    for line, example, prediction in zip(lines, dev, predictions, strict=True):
        expected = {**example_as_dict(example), **prediction.as_dict()}
        difference = first_difference(
            {key: value for key, value in line.items() if key in expected}, expected, TOLERANCE
        )
        require(
            difference is None,
            f"task {name}: predict reads {file.name} differently from the reader of the task (see "
            f"ExampleReader.matches): {difference}",
        )


def _check_scores(
    model: FineTunedModel, dev: Examples, file: Path, predictions: Sequence[Prediction]
) -> None:
    task = model.task
    evaluation, scores = evaluate(model, file), task.score(dev, predictions)
    difference = first_difference(dict(evaluation["metrics"]), dict(scores), TOLERANCE)
    require(
        difference is None,
        f"task {task.name}: evaluate disagrees with the predictions: {difference}",
    )
    for metric, score in scores.items():
        require(math.isfinite(score), f"task {task.name}: the metric {metric} is {score}")


def _check_saving(model: FineTunedModel, dev: Examples, predictions: Sequence[Prediction]) -> None:
    with TemporaryDirectory() as folder:
        model.save(folder)
        loaded = load_fine_tuned_model(Path(folder), "float32")
    require(loaded.task == model.task, f"task {model.task.name} changes when it is saved")
    difference = _first_difference(loaded.predict(dev), predictions)
    require(
        difference is None,
        f"task {model.task.name}: the loaded model predicts differently: {difference}",
    )


def _first_difference(
    predictions: Sequence[Prediction], others: Sequence[Prediction]
) -> str | None:
    ours, theirs = ([p.as_dict() for p in some] for some in (predictions, others))
    return first_difference(ours, theirs, TOLERANCE)


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
