"""Import a stock class with a task head."""

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from bertwright.core.config import InferencePrecision
from bertwright.core.errors import UserError
from bertwright.interop.huggingface import CONFIG_FILE
from bertwright.interop.huggingface.head_types import (
    CLASSIFIER_POOLINGS,
    MULTIPLE_CHOICE,
    PROBLEM_TYPES,
    QUESTION_ANSWERING,
    TOKEN_CLASSIFICATION,
)
from bertwright.interop.huggingface.sentence_transformers_config import (
    CROSS_ENCODER,
    MODEL_CONFIG_FILE,
)
from bertwright.interop.huggingface.tokenizer.settings import (
    read_json_file,
    read_model_max_length,
)
from bertwright.models.saving import load_tensors
from bertwright.tasks.catalogue import find_task, table_task, tagging_task
from bertwright.tasks.fine_tuned_model import FineTunedModel
from bertwright.tasks.formats.squad import SquadReader
from bertwright.tasks.formats.tables import Columns
from bertwright.tasks.heads.task_visibility import with_global_question_attention
from bertwright.tasks.outputs import MultipleChoiceOutput, SpanOutput
from bertwright.tasks.task import Task
from bertwright.tasks.task_metadata import num_outputs
from bertwright.tasks.task_model import HeadSpec, TaskModel

if TYPE_CHECKING:  # which imports this module for task heads
    from bertwright.interop.huggingface.importer import HuggingFaceFolder

TEXTS_OR_PAIRS = Columns(pair="pair", pair_is_optional=True)
"""Columns of the examples of a stock classifier, which does not say whether they are pairs."""


def build_fine_tuned_model(
    source: "HuggingFaceFolder", precision: InferencePrecision | None
) -> FineTunedModel:
    """Return the fine-tuned model in a folder of a stock class with a task head."""
    stock_head = source.family.task_heads[source.head_type]
    pooling = CLASSIFIER_POOLINGS[source.config.get("classifier_pooling", "cls")]
    read = pooling if pooling in stock_head.read_choices else stock_head.read_choices[0]
    task = _build_task(source)
    head_spec = HeadSpec(
        stock_head.head_config(read), num_outputs(task), task.output_type.kind_name()
    )
    with torch.device("meta"):
        task_model = TaskModel(
            with_global_question_attention(source.recipe, [task.output_type]),
            source.num_embeddings,
            head_spec,
        )
    load_tensors(task_model, source.tensors, str(source.folder))
    limits = (read_model_max_length(source.folder), task_model.encoder.max_length)
    length = min((limit for limit in limits if limit is not None), default=None)
    return FineTunedModel(task_model.eval(), source.tokenizer, task, length, precision)


def _build_task(source: "HuggingFaceFolder") -> Task:
    """Return the task that a stock configuration describes."""
    if source.head_type == QUESTION_ANSWERING:
        return Task("imported", SpanOutput(), SquadReader())
    if source.head_type == MULTIPLE_CHOICE:
        return Task("imported", MultipleChoiceOutput())
    names: dict[str, str] = source.config.get("id2label") or {
        str(index): f"LABEL_{index}" for index in range(source.config.get("num_labels", 2))
    }
    labels = tuple(names[index] for index in sorted(names, key=int))
    problem_type = source.config.get("problem_type")
    model_config = read_json_file(source.folder, MODEL_CONFIG_FILE)
    if model_config.get("model_type") == CROSS_ENCODER and len(labels) == 1:
        return replace(find_task("rank"), name="imported")
    if source.head_type == TOKEN_CLASSIFICATION:
        return replace(tagging_task("imported"), labels=labels, metrics=())
    if problem_type == PROBLEM_TYPES["number"] or (problem_type is None and len(labels) == 1):
        if len(labels) != 1:
            raise UserError(
                f"{source.folder / CONFIG_FILE}: problem_type is {problem_type} with {len(labels)} "
                f"labels: only one number for each text is supported"
            )
        return table_task("imported", TEXTS_OR_PAIRS, "number")
    is_multi_label = problem_type == PROBLEM_TYPES["labels"]
    output_type = "labels" if is_multi_label else "class"
    return table_task("imported", TEXTS_OR_PAIRS, output_type, labels=labels)
