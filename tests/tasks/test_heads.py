"""Heads: where they read, what they inherit, and which one a family gets."""

import numpy as np
import pytest
import torch

from bertwright.errors import UserError
from bertwright.model.reading import read_batches
from bertwright.tasks.answers import Answer
from bertwright.tasks.apart import keeping_apart
from bertwright.tasks.catalogue import table_task
from bertwright.tasks.fine_tuned import FineTuned
from bertwright.tasks.finetuning import finetune
from bertwright.tasks.fitting_heads import default_head
from bertwright.tasks.formats.examples import Example
from bertwright.tasks.formats.tables import Columns
from bertwright.tasks.heads import (
    Beginning,
    Dense,
    HeadChoice,
    Plain,
    Pooler,
    Transformed,
    begin,
)
from bertwright.tasks.reading_out import read_last_max_mean, read_mean, read_places
from bertwright.tasks.task_model import HeadPlan, TaskModel
from recipes_at_toy_size import SYSTEMS, toy
from small_tasks import classes

OWN = table_task("own", Columns())

STATES = torch.tensor([[[1.0], [3.0], [100.0]], [[2.0], [4.0], [6.0]]])
DOCUMENT = torch.tensor([[0, 0, -1], [0, 0, 0]])


def test_read_outs_are_what_their_names_say() -> None:
    pieces, asked = STATES[..., 0].long(), torch.tensor([1, 5])
    read = {
        name: read_places(name, pieces, DOCUMENT, asked)
        for name in ("first", "last", "places", "mean")
    }
    assert read.pop("mean") is None
    flat = STATES.flatten()
    expected = {"first": [1.0, 2.0], "last": [3.0, 6.0], "places": [3.0, 6.0]}
    assert {name: flat[places].tolist() for name, places in read.items()} == expected
    assert read_mean(STATES, DOCUMENT).tolist() == [[2.0], [4.0]]
    assert read_mean(STATES[1:], None).tolist() == [[4.0]]
    assert read_last_max_mean(STATES, DOCUMENT).tolist() == [[3.0, 3.0, 2.0], [6.0, 6.0, 4.0]]


@pytest.mark.parametrize(
    ("system", "answer", "expected"),
    [
        ("bert", "class", Pooler()),
        ("bert", "tags", Plain(read="places")),
        ("roberta", "number", Dense()),
        ("modern", "class", Transformed(read="mean")),
        ("modern", "tags", Transformed(read="places")),
    ],
)
def test_a_family_gets_its_usual_head(system: str, answer: str, expected: HeadChoice) -> None:
    assert default_head(toy(system), Answer.choose(answer)) == expected


def test_a_head_goes_on_from_what_was_trained(pretrained) -> None:
    bert, modern = pretrained("bert").model, pretrained("modern").model
    pooler = Pooler().build(Beginning(bert.recipe, 2))
    begin(pooler, bert, seed=1)
    assert torch.equal(pooler.enter.dense.weight, bert.heads["next-sentence"].pooler.weight.cpu())
    choice = Transformed(read="mean")
    head = choice.build(Beginning(modern.recipe, 2))
    begin(head, modern, seed=1)
    assert torch.equal(head.enter.dense.weight, modern.output.transform.dense.weight.cpu())


def test_a_pooler_without_pairs_goes_on_from_the_pooler_of_a_stock_folder(pretrained) -> None:
    model = pretrained("bert", "objectives.next-sentence=null", "pooler=true").model
    head = Pooler().build(Beginning(model.recipe, 2))
    begin(head, model, seed=1)
    assert torch.equal(head.enter.dense.weight, model.pooler.weight.cpu())


@pytest.mark.parametrize("choice", [Dense(), Plain(read="mean")])
def test_what_is_not_inherited_is_drawn_from_the_seed(pretrained, choice: HeadChoice) -> None:
    model = pretrained("roberta").model
    first, same, other = (choice.build(Beginning(model.recipe, 3)) for _ in range(3))
    for head, seed in ((first, 1), (same, 1), (other, 2)):
        begin(head, model, seed)
    assert torch.equal(first.out.weight, same.out.weight)
    assert not torch.equal(first.out.weight, other.out.weight)


def test_a_head_that_cannot_answer_is_refused_with_the_reason(pretrained) -> None:
    with pytest.raises(UserError, match=r"head\.read: an answer of class is read from first, last"):
        finetune(pretrained(), OWN, train=classes(), head={"kind": "plain", "read": "places"})
    with pytest.raises(UserError, match="transform needs a recipe whose output has a transform"):
        model = pretrained("bert", "output.transform=false")
        finetune(model, OWN, train=classes(), head="transform")
    with pytest.raises(UserError, match="has no kind 'pooller': did you mean 'pooler'"):
        finetune(pretrained(), OWN, train=classes(), head="pooller")


def some_pairs() -> list[Example]:
    texts = ["the ship comes home", "a lamp is lit", "nobody sees it", "they all went out"]
    return [Example(a, b, label="same" if a == b else "other") for a in texts for b in texts]


NOT_APART = {"performer", "reformer"}
"""Whose attention has no place for a rule of documents."""


@pytest.mark.parametrize("system", SYSTEMS)
def test_texts_that_are_read_apart_are_read_as_if_alone(pretrained, system: str) -> None:
    model = pretrained(system)
    plan = HeadPlan(Plain(read="apart"), 2)
    if system in NOT_APART:
        with pytest.raises(UserError, match="apart is not for this encoder"):
            keeping_apart(model.model.recipe)
        return
    recipe = keeping_apart(model.model.recipe)
    net = TaskModel(recipe, model.model.vocabulary_size, plan)
    net.encoder.load_state_dict(model.model.encoder.state_dict())
    apart = FineTuned(net, model.tokenizer, OWN, precision="float32")
    pair = Example("the ship comes home", "a lamp", label="yes")
    (row,) = apart.maker.rows([pair])
    (batch,) = read_batches(
        [row.pieces], 0, model.device, row.segments and [row.segments], documents=[row.documents]
    )
    found = apart.states(net.head.layers, batch).float()
    first, second = model.embed([pair.first, pair.second])
    expected = np.concatenate((first, second, np.abs(first - second), first * second))
    read = net.head.read(found, batch.coordinates.document)[0].detach().cpu().numpy()
    np.testing.assert_allclose(read, expected, atol=2e-5)


def test_pairs_are_learned_apart(pretrained) -> None:
    """Whether two texts are the same can be told from what their states differ by."""
    same = some_pairs()
    head = {"kind": "dense", "read": "apart"}
    chosen = {"rate": 3e-3, "dropout": 0.0, "epochs": 30, "compile": False, "head": head}
    found = finetune(pretrained("bert"), OWN, train=same, dev=same, **chosen)
    assert found.best.score == 1


@pytest.mark.parametrize("read", ["first", "last", "mean", "last-max-mean", "apart"])
def test_what_was_scored_by_kept_states_is_what_the_model_says(pretrained, read: str) -> None:
    model = pretrained("bert")
    model.precision = "float32"
    found = finetune(
        model, OWN, train=some_pairs(), dev=some_pairs(), adaptation="frozen", epochs=2, rate=1e-2,
        calibrate=False, precision="float32", head={"kind": "dense", "read": read},
    )  # fmt: skip
    scored = [p.probabilities for p in found.best.predictions[0]]
    found.model.precision = "float32"
    for one, other in zip(scored, found.model.predict(some_pairs()), strict=True):
        assert one == pytest.approx(other.probabilities, abs=1e-5)


@pytest.mark.parametrize(
    ("head", "examples", "message"),
    [
        ({"kind": "plain", "read": "apart"}, classes(), "compares two texts, and this is one"),
        ({"kind": "plain", "read": "apart", "mix": "sum"}, some_pairs(), "choose concat"),
    ],
)
def test_what_cannot_be_read_apart_is_refused(pretrained, head, examples, message: str) -> None:
    with pytest.raises(UserError, match=message):
        finetune(pretrained("bert"), OWN, train=examples, dev=examples, head=head)
