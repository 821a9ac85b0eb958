"""A model can be made smaller whatever it answers, and is as large then as was foreseen."""

from typing import Any

import numpy as np
import pytest

from bertwright.model import Model
from bertwright.model.text_model import TextModel
from bertwright.shipping.shapes import Shape, blank, left_of, loss_of
from bertwright.tasks.answers import Answer
from bertwright.tasks.finetuning import finetune
from bertwright.tasks.task import Task
from bertwright.text.tokenizers import WordPieceChoice
from bertwright.text.vocabularies import train_tokenizer
from recipes_at_toy_size import toy
from small_tasks import (
    ENGLISH,
    classes,
    numbers,
    options,
    partners,
    questions,
    several_labels,
    similar,
    tagged,
)

KINDS: list[tuple[Any, list[Any]]] = [
    ("class", classes()),
    ("number", numbers()),
    ("labels", several_labels()),
    ("tags", tagged()),
    ("option", options()),
    ({"kind": "span", "unanswerable": True}, questions()),
    ({"kind": "closeness", "highest": 5.0}, similar()),
    ({"kind": "closeness", "loss": "in-batch"}, partners()),
]


@pytest.fixture(scope="module")
def encoder() -> TextModel:
    tokenizer = train_tokenizer([ENGLISH], WordPieceChoice(size=100))
    return TextModel(Model.build(toy("bert"), tokenizer.size), tokenizer)


@pytest.mark.parametrize(("answer", "examples"), KINDS, ids=lambda value: str(value)[:40])
def test_a_part_of_a_model_answers_what_it_answered(
    encoder: TextModel, answer: Any, examples: list[Any]
) -> None:
    task = Task("own", Answer.choose(answer))
    model = finetune(encoder, task, train=examples, dev=examples, epochs=0, compile=False).model
    for shape in (Shape(2, 0.75), Shape(2, 0.5), Shape(1), Shape(1, 0.5)):
        foreseen, small = blank(model, shape), left_of(model, shape, examples)
        sizes = [sum(p.numel() for p in each.net.parameters()) for each in (foreseen, small)]
        assert sizes[0] == sizes[1] < sum(p.numel() for p in model.net.parameters())
        assert len(small.net.encoder.blocks) == shape.layers
        assert np.isfinite(loss_of(small, examples))
        assert loss_of(small, examples) != loss_of(model, examples)
