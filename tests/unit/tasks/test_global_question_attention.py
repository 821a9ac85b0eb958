"""Questions get global attention, in encoders that support it."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from bertwright.models.text_batches import text_batches
from bertwright.modules.attention.mask import GlobalVisibility
from bertwright.tasks.catalogue import table_task
from bertwright.tasks.data.task_data import TaskData
from bertwright.tasks.fine_tuned_model import FineTunedModel
from bertwright.tasks.finetuning.finetune import finetune, finetune_tasks
from bertwright.tasks.formats.examples import ExtractiveQuestion
from bertwright.tasks.formats.tables import Columns
from bertwright.tasks.outputs import MultipleChoiceOutput, SpanOutput
from bertwright.tasks.task import Task
from small_tasks import classes, options, questions

WINDOW = 3
SPANS, CHOICES = Task("asked", SpanOutput()), Task("chosen", MultipleChoiceOutput())


def tuned(model: Any, task: Task, examples: Sequence[Any]) -> FineTunedModel:
    return finetune(model, task, train=examples, dev=examples[:4], epochs=0).model


def segment(model: FineTunedModel) -> int | None:
    (rule,) = (
        r
        for r in model.task_model.recipe.encoder.visibility.rules
        if isinstance(r, GlobalVisibility)
    )
    return rule.segment


def test_question_has_global_attention(pretrained) -> None:
    model = tuned(pretrained("longformer"), SPANS, questions())
    example = ExtractiveQuestion("The bird is", "The red bird is in the old house by the river")
    (sequence,) = model.output_decoder.encode(model.example_encoder, [example])
    start = sequence.positions[1]
    (batch,) = text_batches([sequence.token_ids], 0, torch.device("cpu"), [sequence.segment_ids])
    allowed = model.task_model.encoder.allowed_pairs(0, batch.token_info)[0, 0]
    question = torch.arange(len(sequence.token_ids)) < start - model.example_encoder.num_separators
    position = torch.arange(len(sequence.token_ids))
    near = (position[:, None] - position).abs() <= WINDOW
    assert torch.equal(allowed, near | question | question[:, None])
    assert not allowed.all()


def test_global_segment_depends_on_the_task(pretrained) -> None:
    source = pretrained("longformer")
    fine_tuned = tuned(source, CHOICES, options())
    assert segment(fine_tuned) == 1
    # Nothing remains of the earlier task.
    assert segment(tuned(fine_tuned, SPANS, questions())) == 0
    assert segment(tuned(fine_tuned, table_task("kinds", Columns()), classes())) is None


def test_tasks_with_different_question_segments_share_no_global_segment(pretrained) -> None:
    several = [
        TaskData(task, train=examples, dev=examples[:4])
        for task, examples in ((SPANS, questions()), (CHOICES, options()))
    ]
    result = finetune_tasks(pretrained("longformer"), several, epochs=0)
    assert [segment(model) for model in result.best.models] == [None, None]


@pytest.mark.parametrize("system", ["bigbird", "roberta"])
def test_encoder_without_global_segments_is_unchanged(system: str, pretrained) -> None:
    source = pretrained(system)
    model = tuned(source, SPANS, questions())
    assert model.task_model.recipe.encoder.visibility == source.model.recipe.encoder.visibility
