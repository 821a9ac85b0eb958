"""A language model beside the task: it is the same one, and goes on learning."""

import pytest
import torch

from bertwright.errors import UserError
from bertwright.model.likelihood import log_likelihoods
from bertwright.tasks.catalogue import table_task
from bertwright.tasks.finetuning import finetune
from bertwright.tasks.formats.tables import Columns
from bertwright.tasks.language_model import next_pieces_loss
from small_tasks import classes

TASK = table_task("colours", Columns())

SETTINGS = {"dropout": 0.0, "decay": 0.0, "compile": False, "batch": 8, "precision": "float32"}


@pytest.mark.processor
def test_the_loss_is_the_likelihood_of_the_text(pretrained) -> None:
    model = pretrained("gpt-2")
    text = "the red bird is old"
    opening = model.model.recipe.assembly.opening(model.tokenizer.specials)
    pieces = torch.tensor([[opening, *model.tokenizer.encode(text), model.tokenizer.specials.pad]])
    document = torch.zeros_like(pieces)
    document[:, -1] = -1
    states = model.model(pieces)
    found = next_pieces_loss(model.model.output, model.model.embedding, states, pieces, document)
    (expected,) = log_likelihoods(model.model, model.tokenizer, [text])
    assert -found.sum.item() == pytest.approx(expected, rel=1e-4)
    assert found.count == pieces.shape[1] - 2


def test_both_are_learned(pretrained) -> None:
    model, examples = pretrained("gpt-2"), classes()
    losses = {}
    for weight in (0.0, 0.5):
        found = finetune(
            model,
            TASK,
            train=examples,
            dev=examples,
            epochs=30,
            rate=1e-2,
            language_model=weight,
            **SETTINGS,
        )
        assert found.scores[0] > 0.9
        losses[weight] = [epoch.loss for epoch in found.training.epochs_seen]
    # The loss of naming pieces begins near ln V and is learned; without it nothing of it is there.
    assert losses[0.5][0] > losses[0.0][0] + 0.5
    assert losses[0.5][-1] < losses[0.5][0] - 0.5


@pytest.mark.parametrize(
    ("system", "settings", "message"),
    [
        ("bert", {}, "was not trained to read on"),
        ("elmo", {}, "was not trained to read on"),
        ("gpt-2", {"adaptation": "frozen"}, "choose adaptation full, last or gradual"),
        ("gpt-2", {"perturbation": "freelb"}, "do not go together"),
        ("gpt-2", {"head": {"kind": "plain", "read": "last", "layers": "1"}}, "leaves out"),
    ],
)
def test_what_makes_no_sense_is_said(pretrained, system, settings, message) -> None:
    with pytest.raises(UserError, match=message):
        finetune(
            pretrained(system),
            TASK,
            train=classes(),
            dev=classes(),
            language_model=0.5,
            **SETTINGS,
            **settings,
        )
