"""A predecessor is replaced block by block: by chance, and never the one that is kept."""

import numpy as np
import pytest
import torch

from bertwright.compression.replacement import Either, Replacement
from bertwright.encoder.kernels.noise import Noise
from bertwright.errors import UserError
from bertwright.schedules import Constant, Schedule
from bertwright.tasks.catalogue import table_task
from bertwright.tasks.fine_tuned import FineTuned
from bertwright.tasks.finetuning import finetune
from bertwright.tasks.formats.tables import Columns
from small_tasks import classes, numbers

CLASSES = table_task("colours", Columns())
NUMBERS = table_task("colours", Columns(), "number", ("negative-mean-squared-error", "spearman"))
QUICK = {"rate": 3e-3, "dropout": 0.0, "compile": False, "batch": 8, "epochs": 1}


@pytest.fixture
def predecessor(pretrained) -> FineTuned:
    model = pretrained("bert", "encoder.depth.layers=4")
    return finetune(model, CLASSES, train=classes(), dev=classes(), **QUICK).model


@pytest.mark.parametrize("wanted", [None, torch.tensor([0, 9])])
@pytest.mark.processor
def test_either_is_the_one_or_the_other(predecessor: FineTuned, wanted) -> None:
    successor = Replacement(predecessor, Constant(value=1.0)).successor(2)
    encoder, old = successor.model.encoder, predecessor.net.encoder
    pieces = torch.randint(5, 40, (3, 8), generator=torch.Generator().manual_seed(0))
    expected = {1.0: encoder(pieces, wanted=wanted), 0.0: old(pieces, wanted=wanted)}
    noise = Noise.of(0, 0, 0, torch.device("cpu"))
    for rate, states in expected.items():
        encoder.passage = Either(list(old.blocks), 2, rate)
        assert torch.equal(encoder(pieces, noise=noise, wanted=wanted), states)
        assert torch.equal(encoder(pieces, wanted=wanted), expected[1.0])


@pytest.mark.processor
def test_blocks_are_replaced_as_often_as_is_said(predecessor: FineTuned) -> None:
    successor = Replacement(predecessor, Constant(value=1.0)).successor(2)
    encoder, runs = successor.model.encoder, []
    for block in encoder.blocks:
        block.register_forward_hook(lambda *_: runs.append(1))
    encoder.passage = Either(list(predecessor.net.encoder.blocks), 2, 0.3)
    for step in range(500):
        encoder(torch.tensor([[5, 6]]), noise=Noise.of(0, step, 0, torch.device("cpu")))
    deviation = np.sqrt(0.3 * 0.7 / 1000)
    assert abs(len(runs) / 1000 - 0.3) < 4 * deviation


@pytest.mark.parametrize(("task", "examples"), [(CLASSES, classes()), (NUMBERS, numbers())])
def test_only_blocks_of_the_successor_learn(pretrained, task, examples) -> None:
    model = pretrained("bert", "encoder.depth.layers=4")
    given = {"train": examples, "dev": examples}
    predecessor = finetune(model, task, **given, **QUICK).model
    before = {name: tensor.clone() for name, tensor in predecessor.net.state_dict().items()}
    replacement = Replacement(
        predecessor, Schedule.choose({"kind": "linear", "from": 0.3, "to": 1})
    )
    successor = replacement.successor(2)
    result = finetune(successor, task, **given, teacher=replacement, precision="float32", **QUICK)
    assert all(torch.equal(t, before[n]) for n, t in predecessor.net.state_dict().items())
    known = successor.model.state_dict()
    for name, tensor in result.model.net.state_dict().items():
        if name.startswith("encoder.blocks."):
            assert not torch.equal(tensor, known[name]) or not tensor.any(), name
        else:
            torch.testing.assert_close(tensor, before[name])
    assert 0 < result.training.trained_share() < 1


def test_what_cannot_be_replaced_is_said(pretrained, predecessor: FineTuned) -> None:
    replacement = Replacement(predecessor, Constant(value=0.5))
    with pytest.raises(UserError, match="4 blocks do not fall into 3 equal parts"):
        replacement.successor(3)
    with pytest.raises(UserError, match="this is none"):
        finetune(
            pretrained("universal-transformer"),
            CLASSES,
            train=classes(),
            dev=classes(),
            teacher=replacement,
            **QUICK,
        )
