"""A question sees everything and is seen by everything, in encoders that have such places."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from bertwright.encoder.visibility import Global
from bertwright.model.reading import read_batches
from bertwright.tasks.answers import OptionAnswer, SpanAnswer
from bertwright.tasks.catalogue import table_task
from bertwright.tasks.data import TaskData
from bertwright.tasks.fine_tuned import FineTuned
from bertwright.tasks.finetuning import finetune, finetune_together
from bertwright.tasks.formats.examples import Question
from bertwright.tasks.formats.tables import Columns
from bertwright.tasks.task import Task
from small_tasks import classes, options, questions

WINDOW = 3
SPANS, CHOICES = Task("asked", SpanAnswer()), Task("chosen", OptionAnswer())


def tuned(model: Any, task: Task, examples: Sequence[Any]) -> FineTuned:
    return finetune(model, task, train=examples, dev=examples[:4], epochs=0).model


def segment(model: FineTuned) -> int | None:
    (found,) = (r for r in model.net.recipe.encoder.visibility.rules if isinstance(r, Global))
    return found.segment


def test_whoever_is_asked_something_hears_it_wherever_he_stands(pretrained) -> None:
    model = tuned(pretrained("longformer"), SPANS, questions())
    asked = Question("The bird is", "The red bird is in the old house by the river")
    (row,) = model.answering.rows(model.maker, [asked])
    begin = row.places[1]
    (batch,) = read_batches([row.pieces], 0, torch.device("cpu"), [row.segments])
    seen = model.net.encoder.seen(0, batch.coordinates)[0, 0]
    question = torch.arange(len(row.pieces)) < begin - model.maker.separators
    place = torch.arange(len(row.pieces))
    near = (place[:, None] - place).abs() <= WINDOW
    assert torch.equal(seen, near | question | question[:, None])
    assert not seen.all()


def test_the_question_is_that_of_the_task(pretrained) -> None:
    own = pretrained("longformer")
    of_options = tuned(own, CHOICES, options())
    assert segment(of_options) == 1
    # Of what was asked before nothing is left.
    assert segment(tuned(of_options, SPANS, questions())) == 0
    assert segment(tuned(of_options, table_task("kinds", Columns()), classes())) is None


def test_tasks_that_ask_in_different_texts_have_no_question_in_common(pretrained) -> None:
    several = [
        TaskData(task, train=examples, dev=examples[:4])
        for task, examples in ((SPANS, questions()), (CHOICES, options()))
    ]
    found = finetune_together(pretrained("longformer"), several, epochs=0)
    assert [segment(model) for model in found.best.models] == [None, None]


@pytest.mark.parametrize("system", ["bigbird", "roberta"])
def test_an_encoder_without_such_places_stays_as_it_is(system: str, pretrained) -> None:
    own = pretrained(system)
    model = tuned(own, SPANS, questions())
    assert model.net.recipe.encoder.visibility == own.model.recipe.encoder.visibility
