"""Training with a reduced vocabulary: unused tokens are unchanged."""

import pytest
import torch

from bertwright.tasks.catalogue import table_task
from bertwright.tasks.finetuning.batching.used_vocabulary import UsedVocabulary
from bertwright.tasks.finetuning.finetune import finetune
from bertwright.tasks.formats.tables import Columns
from small_tasks import classes

TASK = table_task("colours", Columns())


def tuned(model):
    some = classes()[:10]
    settings = {"epochs": 2, "batch_size": 4, "learning_rate": 1e-3, "compile": False}
    return finetune(
        model, TASK, train=some, dev=some, dropout=0.0, weight_decay=0.0, **settings
    ).model


@pytest.mark.parametrize("system", ["bert", "albert", "mobilebert", "modern", "xlnet", "elmo"])
def test_reduced_vocabulary_trains_the_same(pretrained, monkeypatch, system: str) -> None:
    reduced = tuned(pretrained(system))
    monkeypatch.setattr(UsedVocabulary, "from_tasks", lambda *_: None)
    whole = tuned(pretrained(system))
    for (name, parameter), other in zip(
        reduced.task_model.named_parameters(), whole.task_model.parameters(), strict=True
    ):
        # The gradient of a key bias is rounding error, which Adam turns into steps.
        assert torch.allclose(parameter, other, atol=4e-3), name
        assert (parameter - other).abs().mean() < 2e-4, name


def test_unused_tokens_are_unchanged(pretrained) -> None:
    model = pretrained()
    some = classes()[:4]
    result = finetune(
        model, TASK, train=some, dev=some, epochs=2, learning_rate=1e-3, weight_decay=0.1
    )
    table = result.model.task_model.encoder.embeddings.table
    before = model.model.encoder.embeddings.table
    same = (table == before).all(1)
    occurring = {
        token for sequence in result.run.encoded_tasks[0].sequences for token in sequence.token_ids
    }
    assert not same[sorted(occurring)].any()
    assert same.sum() == len(table) - len(occurring) - 1  # padding decays
    assert result.run.trained_fraction() == 1.0
