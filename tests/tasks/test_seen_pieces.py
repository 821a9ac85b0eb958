"""Pieces that do not occur cost nothing, and stay as they are."""

import pytest
import torch

from bertwright.tasks.catalogue import table_task
from bertwright.tasks.finetuning import finetune
from bertwright.tasks.formats.tables import Columns
from bertwright.tasks.seen_pieces import SeenPieces
from small_tasks import classes

TASK = table_task("colours", Columns())


def tuned(model):
    some = classes()[:10]
    settings = {"epochs": 2, "batch": 4, "rate": 1e-3, "compile": False}
    return finetune(model, TASK, train=some, dev=some, dropout=0.0, decay=0.0, **settings).model


@pytest.mark.parametrize("system", ["bert", "albert", "mobilebert", "modern", "xlnet", "elmo"])
def test_with_all_pieces_the_same_is_learned(pretrained, monkeypatch, system: str) -> None:
    cut = tuned(pretrained(system))
    monkeypatch.setattr(SeenPieces, "of", lambda *_: None)
    whole = tuned(pretrained(system))
    for (name, own), other in zip(cut.net.named_parameters(), whole.net.parameters(), strict=True):
        # A bias of keys has no gradient but its rounding, of which Adam makes steps.
        assert torch.allclose(own, other, atol=4e-3), name
        assert (own - other).abs().mean() < 2e-4, name


def test_pieces_that_do_not_occur_stay_as_they_were(pretrained) -> None:
    model = pretrained()
    some = classes()[:4]
    found = finetune(model, TASK, train=some, dev=some, epochs=2, rate=1e-3, decay=0.1)
    table = found.model.net.encoder.embeddings.table
    before = model.model.encoder.embeddings.table
    same = (table == before).all(1)
    occurring = {piece for row in found.training.parts[0].rows for piece in row.pieces}
    assert not same[sorted(occurring)].any()
    assert same.sum() == len(table) - len(occurring) - 1  # padding decays
    assert found.training.trained_share() == 1.0
