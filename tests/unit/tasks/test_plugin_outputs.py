"""An output type of a plugin, with its own kind, is treated like the class that it extends."""

from typing import Literal

from bertwright.tasks.baselines.fit_baselines import fit_baselines
from bertwright.tasks.catalogue import table_task
from bertwright.tasks.evaluation.bootstrap import bootstrap_intervals
from bertwright.tasks.evaluation.error_analysis import confusion_matrix, iter_errors
from bertwright.tasks.formats.tables import Columns, TableReader
from bertwright.tasks.heads.default_head import check_head, default_head
from bertwright.tasks.heads.kinds import DenseHeadConfig
from bertwright.tasks.outputs import (
    ClassificationOutput,
    MultiLabelOutput,
    Prediction,
    SimilarityOutput,
)
from bertwright.tasks.prediction import needs_pairs
from bertwright.tasks.task import Task
from bertwright.tasks.text_encoder import embedding_config
from small_tasks import classes, several_labels, similar
from toy_recipes import toy


class PluginClass(ClassificationOutput):
    kind: Literal["tested-class"] = "tested-class"  # type: ignore[assignment]


class PluginLabels(MultiLabelOutput):
    kind: Literal["tested-labels"] = "tested-labels"  # type: ignore[assignment]


class PluginSimilarity(SimilarityOutput):
    kind: Literal["tested-similarity"] = "tested-similarity"  # type: ignore[assignment]


def test_labels() -> None:
    examples = several_labels()
    task = table_task("task", Columns(), PluginLabels()).with_labels_from(examples)
    assert isinstance(task.reader, TableReader)
    assert task.reader.label_kind == "labels"
    assert [b.kind for b in fit_baselines(task, examples)] == ["constant", "words-linear"]
    reversed_order = [Prediction(task.output_type.reference(e)[::-1], 0.5) for e in examples]
    assert not list(iter_errors(task, examples, reversed_order))


def test_classes() -> None:
    examples = classes()
    task = table_task("task", Columns(), PluginClass()).with_labels_from(examples)
    predictions = [Prediction(task.labels[0]) for _ in examples]
    assert {*confusion_matrix(task, examples, predictions)} == {*task.labels}
    scores = task.score(examples, predictions)
    assert all(bootstrap_intervals(task, examples, predictions, scores).values())


def test_similarity() -> None:
    output_type, recipe = PluginSimilarity(), toy("bert")
    head = default_head(recipe, output_type)
    assert head == default_head(recipe, SimilarityOutput())
    assert embedding_config(output_type, head, 8) == embedding_config(SimilarityOutput(), head, 8)
    assert check_head(DenseHeadConfig(), output_type, recipe.output) is not None
    task, examples = Task("task", output_type), similar()
    assert needs_pairs(task)
    (baseline,) = fit_baselines(task, examples)
    assert all(prediction.vectors is not None for prediction in baseline.predict(examples))
