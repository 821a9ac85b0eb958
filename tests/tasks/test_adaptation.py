"""Ways to adapt: each learns, trains what it says and nothing else, and is whole when saved."""

from pathlib import Path
from typing import Any

import pytest
import torch

from bertwright.errors import UserError
from bertwright.recipes import Recipe
from bertwright.tasks.adaptation import Adaptation, LowRank
from bertwright.tasks.adaptation.low_rank import LowRankChanges, matrices_of
from bertwright.tasks.answers import ClosenessAnswer
from bertwright.tasks.catalogue import table_task, tagging_task
from bertwright.tasks.fine_tuned import load_fine_tuned
from bertwright.tasks.finetuning import FineTuneResult, finetune
from bertwright.tasks.formats.tables import Columns
from bertwright.tasks.heads import Beginning, begin
from bertwright.tasks.task import Task
from recipes_at_toy_size import SYSTEMS
from small_tasks import classes, partners, similar, tagged, until

CLASSES, TAGS = table_task("colours", Columns()), tagging_task("colours")

WAYS: list[Any] = [
    "full",
    {"kind": "full", "layer_decay": 0.8, "reinitialised": 1},
    "gradual",
    {"kind": "last", "blocks": 1},
    "frozen",
    {"kind": "adapters", "width": 4},
    {"kind": "lora", "rank": 2},
    {"kind": "lora", "rank": 2, "sublayers": ["attention", "feed_forward"]},
]
every_way = pytest.mark.parametrize("way", WAYS, ids=str)

SETTINGS = {"dropout": 0.0, "decay": 0.0, "compile": False, "batch": 8, "precision": "float32"}


def adapted(model, way: Any, task=CLASSES, examples=None, **settings: Any) -> FineTuneResult:
    chosen = {**SETTINGS, "epochs": 2, "adaptation": way, **settings}
    examples = classes() if examples is None else examples
    return finetune(model, task, train=examples, dev=examples, **chosen)


def changed_parts(model, found: FineTuneResult) -> set[str]:
    """The parts of the encoder that are not as they were: blocks by number, others by name."""
    before = dict(model.model.encoder.named_parameters())
    own = dict(found.model.net.encoder.named_parameters())
    moved = [n for n in before if not torch.equal(own[n].cpu(), before[n].cpu())]
    return {n.split(".")[1] if n.startswith("blocks") else n.split(".")[0] for n in moved}


@every_way
@pytest.mark.parametrize("system", ["bert", "modern"])
def test_every_way_learns(pretrained, way: Any, system: str) -> None:
    rate = 2e-2 if way != "full" and "reinit" not in str(way) else 3e-3
    found = adapted(pretrained(system), way, epochs=40, rate=rate, watch=until(0.95))
    assert found.scores[0] > 0.9


@every_way
def test_the_folder_answers_as_the_model_did(pretrained, way: Any, tmp_path: Path) -> None:
    found = adapted(pretrained("bert"), way, rate=1e-2, out=tmp_path / "own")
    again = load_fine_tuned(tmp_path / "own")
    assert again.predict(classes()) == found.model.predict(classes())


@pytest.mark.parametrize(
    ("way", "parts"),
    [
        ("frozen", ""),
        ({"kind": "last", "blocks": 1}, "1 norm"),
        ({"kind": "lora", "rank": 2}, "0 1"),
        ({"kind": "adapters", "width": 4}, "0 1 embeddings"),
    ],
    ids=str,
)
def test_what_is_not_trained_stays_as_it_is(pretrained, way: Any, parts: str) -> None:
    model = pretrained("bert")
    found = adapted(model, way, rate=1e-2)
    changed = changed_parts(model, found)
    assert changed <= set(parts.split())
    assert bool(changed) == bool(parts)
    assert found.as_dict()["trained_share"] < 0.9


@pytest.mark.parametrize("system", ["bert", "modern"])
def test_behind_blocks_that_begin_anew_a_head_begins_anew(pretrained, system: str) -> None:
    source = pretrained(system)
    for model in (source, adapted(source, "full", epochs=0).model):
        kept, drawn = (
            adapted(model, {"kind": "full", "reinitialised": number}, epochs=0).model.net.head
            for number in (0, 1)
        )
        own = kept.choice.build(Beginning(source.model.recipe, 2))
        begin(own, None, seed=0)
        assert torch.equal(drawn.enter.dense.weight, own.enter.dense.weight)
        assert not torch.equal(drawn.enter.dense.weight, kept.enter.dense.weight)


@pytest.mark.parametrize("system", ["bert", "modern"])
def test_adapters_and_norms_are_all_that_adapters_train(pretrained, system: str) -> None:
    model = pretrained(system)
    found = adapted(model, {"kind": "adapters", "width": 4}, rate=1e-2)
    before = dict(model.model.encoder.named_parameters())
    own = dict(found.model.net.encoder.named_parameters())
    moved = {n for n in own if n not in before or not torch.equal(own[n], before[n])}
    assert moved == {n for n in own if ".adapters." in n or "norm" in n}


@every_way
def test_what_another_fine_tuning_would_lose_is_not_fine_tuned_again(pretrained, way: Any) -> None:
    found = adapted(pretrained("bert"), {"kind": "adapters", "width": 4}, epochs=0)
    with pytest.raises(UserError, match=r"adapters.* would leave behind"):
        adapted(found.model, way)


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("way", [{"kind": "adapters", "width": 4}, {"kind": "lora", "rank": 2}])
def test_what_is_added_begins_as_nothing_and_learns_in_every_encoder(
    pretrained, system: str, way: Any
) -> None:
    model = pretrained(system)
    if not matrices_of(model.model.encoder, LowRank().sublayers):
        with pytest.raises(UserError, match="has no matrices"):
            adapted(model, {"kind": "lora"}, epochs=0)
        return
    head = {"head": {"kind": "plain", "read": "mean"}}
    begun = adapted(model, way, epochs=0, **head)
    texts = [example.first for example in classes()]
    near = abs(model.embed(texts) - begun.model.embed(texts)).max()
    assert near < 0.2
    taught = adapted(model, way, epochs=2, rate=1e-2, **head)
    losses = [epoch.loss for epoch in taught.training.epochs_seen]
    assert losses[-1] < losses[0] or taught.scores[0] == 1.0
    assert abs(taught.model.embed(texts) - begun.model.embed(texts)).max() > near / 10


def test_low_rank_changes_are_of_low_rank_in_each_part(pretrained) -> None:
    encoder = pretrained("bert").model.encoder
    changes = LowRankChanges(encoder, 2, 4.0, ("attention",)).to(next(encoder.parameters()).device)
    changes.begin(seed=1)
    for up in changes.up:
        torch.nn.init.normal_(up)
    known = dict(encoder.named_parameters())
    for name, weight in changes(known).items():
        difference = (weight - known[name]).detach()
        for part in difference.chunk(3 if len(weight) == 3 * weight.shape[1] else 1):
            assert torch.linalg.matrix_rank(part, rtol=1e-4) == 2


def test_states_that_are_kept_are_those_of_the_model(pretrained) -> None:
    for task, examples in ((CLASSES, classes()), (TAGS, tagged())):
        found = adapted(pretrained("bert"), "frozen", task, examples, calibrate=False)
        said = found.model.predict(examples)
        for own, kept in zip(said, found.best.predictions[0], strict=True):
            # Batches differ, and with them how bfloat16 rounds.
            assert own.probabilities == pytest.approx(kept.probabilities, abs=2e-2)


@pytest.mark.parametrize("mix", ["concat", "sum", "mean", "learned"])
@pytest.mark.parametrize("way", ["frozen", "full"])
def test_a_head_reads_several_layers(pretrained, mix: str, way: str, tmp_path: Path) -> None:
    head = {"kind": "plain", "read": "places", "layers": "last-2", "mix": mix}
    out = tmp_path / "own"
    found = adapted(
        pretrained("bert"), way, TAGS, tagged(), head=head, rate=1e-2, epochs=8, out=out
    )
    losses = [epoch.loss for epoch in found.training.epochs_seen]
    assert losses[-1] < losses[0]
    assert load_fine_tuned(out).predict(tagged()) == found.model.predict(tagged())


def test_frozen_states_go_into_a_small_model_of_its_own(pretrained) -> None:
    head = {"kind": "bilstm", "width": 32, "depth": 1, "layers": "last-2"}
    found = adapted(
        pretrained("bert"),
        "frozen",
        TAGS,
        tagged(),
        head=head,
        epochs=30,
        rate=2e-2,
        watch=until(0.95),
    )
    assert found.scores[0] > 0.9


def test_three_readings_are_side_by_side(pretrained) -> None:
    head = {"kind": "dense", "read": "last-max-mean"}
    found = adapted(pretrained("bert"), "full", head=head, epochs=1)
    assert found.model.net.head.enter.dense.weight.shape[0] == 3 * 32


@pytest.mark.parametrize(
    "head", [{"read": "first"}, {"layers": 1}, {"layers": "all", "mix": "sum", "read": "last"}]
)
def test_what_is_stated_of_the_usual_head_changes_nothing_else(pretrained, head: Any) -> None:
    usual = adapted(pretrained("bert"), "frozen", epochs=1).model.net.choice
    found = adapted(pretrained("bert"), "frozen", head=head, epochs=1).model.net.choice
    assert found == usual.changed("head", **head)
    assert type(found) is type(usual)
    assert found != usual


@pytest.mark.parametrize(
    ("system", "way", "message"),
    [
        ("albert", "gradual", "blocks that share their parameters are one level"),
        ("albert", {"kind": "last", "blocks": 1}, "blocks that share their parameters"),
        ("albert", {"kind": "full", "reinitialised": 1}, "none can begin anew"),
        ("bert", {"kind": "full", "reinitialised": 9}, "there are no 9 of 2 blocks"),
        ("bert", {"kind": "last", "blocks": 3}, "there are no 3 last of 2 blocks"),
        ("bert", {"kind": "lora", "rank": 33}, "33 is more than the 32 of the matrices"),
        ("bert", "lroa", "has no kind 'lroa': did you mean 'lora'"),
    ],
)
def test_what_makes_no_sense_is_said_in_one_sentence(
    pretrained, system: str, way: Any, message: str
) -> None:
    with pytest.raises(UserError, match=message) as caught:
        adapted(pretrained(system), way)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("loss", "examples"),
    [("cosine", similar()), ("in-batch", partners()), ("triplet", partners())],
)
def test_what_has_nothing_to_learn_is_refused_and_can_be_judged(
    pretrained, loss: str, examples: Any
) -> None:
    task = Task("near", ClosenessAnswer.model_validate({"loss": loss, "highest": 5.0}))
    with pytest.raises(UserError, match=r"nothing is trained: .* lora or full, or epochs=0"):
        adapted(pretrained("bert"), "frozen", task, examples)
    assert adapted(pretrained("bert"), "frozen", task, examples, epochs=0).scores
    assert adapted(pretrained("bert"), "lora", task, examples, epochs=1).scores


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_what_muon_has_trained_is_moved_further_and_what_is_added_to_it_is_not(way: Any) -> None:
    adaptation = Adaptation.choose(way)
    by_muon, by_adam = Recipe.load("modern-mini"), Recipe.load("bert-mini")
    assert by_muon.encoder.width == by_adam.encoder.width
    rates = [adaptation.usual_rate(recipe) for recipe in (by_muon, by_adam)]
    assert (rates[0] > rates[1]) == (not adaptation.adds)
    assert rates[0] >= rates[1] > 0


def test_every_kind_is_tried_here() -> None:
    tried = {way if isinstance(way, str) else way["kind"] for way in WAYS}
    # Those that make a model smaller are tried in a room of their own.
    of_this_room = "bertwright.tasks."
    kinds = Adaptation.kinds().items()
    assert tried == {kind for kind, own in kinds if own.__module__.startswith(of_this_room)}
