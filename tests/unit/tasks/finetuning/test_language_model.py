"""The auxiliary language-model loss equals the model's, and is trained."""

import pytest
import torch

from bertwright.core.errors import UserError
from bertwright.models.scoring.likelihood import log_likelihoods
from bertwright.tasks.catalogue import table_task
from bertwright.tasks.finetuning.finetune import finetune
from bertwright.tasks.finetuning.losses import next_token_loss
from bertwright.tasks.formats.tables import Columns
from small_tasks import classes

TASK = table_task("colours", Columns())

SETTINGS = {
    "dropout": 0.0,
    "weight_decay": 0.0,
    "compile": False,
    "batch_size": 8,
    "precision": "float32",
}


@pytest.mark.processor
def test_the_loss_is_the_likelihood_of_the_text(pretrained) -> None:
    model = pretrained("gpt-2")
    text = "the red bird is old"
    start = model.model.recipe.assembly.start_token(model.tokenizer.special_tokens)
    token_ids = torch.tensor(
        [[start, *model.tokenizer.encode(text), model.tokenizer.special_tokens.pad]]
    )
    document_ids = torch.zeros_like(token_ids)
    document_ids[:, -1] = -1
    states = model.model(token_ids)
    loss = next_token_loss(
        model.model.output, model.model.embedding_table, states, token_ids, document_ids
    )
    (expected,) = log_likelihoods(model.model, model.tokenizer, [text])
    assert -loss.sum.item() == pytest.approx(expected, rel=1e-4)
    assert loss.count == token_ids.shape[1] - 2


def test_task_and_language_model_are_learned(pretrained) -> None:
    model, examples = pretrained("gpt-2"), classes()
    losses = {}
    for weight in (0.0, 0.5):
        result = finetune(
            model,
            TASK,
            train=examples,
            dev=examples,
            epochs=30,
            learning_rate=1e-2,
            language_model=weight,
            **SETTINGS,
        )
        assert result.scores[0] > 0.9
        losses[weight] = [epoch.loss for epoch in result.run.epoch_reports]
    # The next-token loss starts near ln V and decreases.
    assert losses[0.5][0] > losses[0.0][0] + 0.5
    assert losses[0.5][-1] < losses[0.5][0] - 0.5


@pytest.mark.parametrize(
    ("system", "settings", "message"),
    [
        ("bert", {}, "is not a causal language model"),
        ("elmo", {}, "is not a causal language model"),
        ("gpt-2", {"adaptation": "frozen"}, "choose adaptation full, last or gradual"),
        ("gpt-2", {"perturbation": "freelb"}, "cannot be combined"),
        ("gpt-2", {"head": {"kind": "plain", "pooling": "last", "layers": "1"}}, "leaves out"),
    ],
)
def test_incompatible_language_model_is_reported(pretrained, system, settings, message) -> None:
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
