"""Models of all output types can be pruned, to the predicted size."""

from typing import Any

import numpy as np
import pytest

from bertwright.compression.budget.shapes import (
    ModelShape,
    prune_to_shape,
    sampled_loss,
    untrained_model,
)
from bertwright.data.tokenization.tokenizer import WordPieceConfig
from bertwright.data.vocabulary_training import train_tokenizer
from bertwright.models import Model
from bertwright.models.text_model import TextModel
from bertwright.tasks.finetuning.finetune import finetune
from bertwright.tasks.outputs import OutputType
from bertwright.tasks.task import Task
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
from toy_recipes import toy

OUTPUT_TYPES: list[tuple[Any, list[Any]]] = [
    ("class", classes()),
    ("number", numbers()),
    ("labels", several_labels()),
    ("tags", tagged()),
    ("option", options()),
    ({"kind": "span", "unanswerable": True}, questions()),
    ({"kind": "similarity", "max_label": 5.0}, similar()),
    ({"kind": "similarity", "loss": "in-batch"}, partners()),
]


@pytest.fixture(scope="module")
def encoder() -> TextModel:
    tokenizer = train_tokenizer([ENGLISH], WordPieceConfig(vocab_size=100))
    return TextModel(Model.build(toy("bert"), tokenizer.vocab_size), tokenizer)


@pytest.mark.parametrize(
    ("output_type", "examples"), OUTPUT_TYPES, ids=lambda value: str(value)[:40]
)
def test_pruned_model_has_the_predicted_size(
    encoder: TextModel, output_type: Any, examples: list[Any]
) -> None:
    task = Task("toy", OutputType.parse(output_type))
    model = finetune(encoder, task, train=examples, dev=examples, epochs=0, compile=False).model
    for shape in (ModelShape(2, 0.75), ModelShape(2, 0.5), ModelShape(1), ModelShape(1, 0.5)):
        small = prune_to_shape(model, shape, examples)
        predicted, actual, full = (
            sum(p.numel() for p in m.task_model.parameters())
            for m in (untrained_model(model, shape), small, model)
        )
        assert predicted == actual < full
        assert len(small.task_model.encoder.blocks) == shape.num_layers
        assert np.isfinite(sampled_loss(small, examples))
        assert sampled_loss(small, examples) != sampled_loss(model, examples)
