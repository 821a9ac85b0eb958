"""Removing heads: gates do what zeros in the output matrix do, and importance is the gradient that
it says."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from bertwright.analysis.analysis import Analysis, Case
from bertwright.analysis.asking import Asking
from bertwright.analysis.findings import Stored
from bertwright.analysis.planted.models import SENTENCES, small_case, small_subject
from bertwright.analysis.questions import in_halves, questions
from bertwright.analysis.removal.fixed_heads import PATTERNS, patterns
from bertwright.analysis.removal.gates import gated, open_gates
from bertwright.analysis.removal.importance import by_layer, importances, losses_alone
from bertwright.analysis.removal.layers import likeness, without
from bertwright.analysis.removal.learned_gates import LearnedGates
from bertwright.analysis.removal.single_heads import SingleHeads
from bertwright.analysis.subject import Subject
from bertwright.analysis.texts import read_texts
from bertwright.significance import halves
from bertwright.tasks.answers import ClassAnswer
from bertwright.tasks.fine_tuned import FineTuned
from bertwright.tasks.formats.examples import Example
from bertwright.tasks.heads import Plain
from bertwright.tasks.task import Task
from bertwright.tasks.task_model import HeadPlan, TaskModel

LIVE = (1, 2)
"""The layer and the head that write anything."""


def case(system: str = "bert", live: bool = False) -> Case:
    subject = small_subject(system)
    if live:
        with torch.no_grad():
            for layer, block in enumerate(subject.encoder.blocks):
                weight = block.get_submodule("sublayers.attention.output").weight
                by_head = weight.view(len(weight), subject.num_heads, -1)
                for head in range(subject.num_heads):
                    if (layer, head) != LIVE:
                        by_head[:, head] = 0
    return Case(subject, read_texts(subject, [Example(text) for text in SENTENCES]))


@pytest.mark.parametrize("system", ["bert", "gpt-2", "albert", "xlnet"])
def test_open_gates_are_not_there(system: str) -> None:
    own = case(system)
    asking = Asking(own.subject, own.texts)
    whole = asking.asked()
    with gated(own.subject, open_gates(own.subject)):
        np.testing.assert_array_equal(asking.asked().loss, whole.loss)
    assert (whole.total >= 1).all()
    assert whole.mean > 0


@pytest.mark.parametrize("system", ["bert", "gpt-2", "xlnet"])
def test_what_a_text_costs_has_nothing_to_do_with_those_beside_it(system: str) -> None:
    own = case(system)
    long = read_texts(own.subject, [Example(" ".join(SENTENCES))])
    beside = Asking(own.subject, [own.texts[0], *long]).asked()
    alone = Asking(own.subject, own.texts[:1]).asked()
    assert beside.total[1] > beside.total[0]
    np.testing.assert_allclose(beside.loss[0], alone.loss[0], rtol=1e-9)


def test_of_a_model_that_names_classes_these_are_asked_for() -> None:
    own = case(live=True)
    task = Task("planted", ClassAnswer(), labels=("no", "yes"))
    recipe, tokenizer = own.subject.text_model.model.recipe, own.subject.tokenizer
    net = TaskModel(recipe, tokenizer.size, HeadPlan(Plain(read="mean"), 2))
    net.encoder.load_state_dict(own.subject.encoder.state_dict())
    subject = Subject("planted", FineTuned(net, tokenizer, task, precision="float32"))
    whole = questions(Case(subject, own.texts)).asked()
    assert whole.right.tolist() == whole.total.tolist() == [1] * len(own.texts)
    labelled = [replace(t, source=Example("", label=x)) for t in own.texts for x in task.labels]
    chances = np.exp(-questions(Case(subject, labelled)).asked().loss)
    np.testing.assert_allclose(chances[::2] + chances[1::2], 1, rtol=1e-6)
    losses = SingleHeads().run(Case(subject, own.texts)).arrays["losses"]
    moved = np.abs(losses - whole.loss).max(-1) > 0
    assert np.argwhere(moved).tolist() == [list(LIVE)]


def test_a_closed_gate_is_a_head_without_its_part_of_the_output() -> None:
    own = case()
    asking, gates = Asking(own.subject, own.texts), open_gates(own.subject)
    gates[LIVE] = 0
    with gated(own.subject, gates):
        closed = asking.asked().loss
    weight = own.subject.encoder.blocks[1].get_submodule("sublayers.attention.output").weight
    with torch.no_grad():
        weight.view(len(weight), own.subject.num_heads, -1)[:, LIVE[1]] = 0
    np.testing.assert_allclose(asking.asked().loss, closed, rtol=1e-12)


@pytest.mark.parametrize("system", ["bert", "gpt-2"])
def test_importance_is_the_slope_of_the_loss_of_each_text(system: str) -> None:
    own = case(system)
    asking, step = Asking(own.subject, own.texts), 1e-5
    found = importances(asking)
    for at in ((0, 0), (1, 3)):
        moved = []
        for sign in (1, -1):
            gates = open_gates(own.subject)
            gates[at] += sign * step
            with gated(own.subject, gates):
                moved.append(asking.asked().loss)
        slope = np.abs(moved[0] - moved[1]) / (2 * step)
        assert found[at] == pytest.approx(slope.mean(), rel=1e-5)
    assert np.linalg.norm(by_layer(found), axis=1) == pytest.approx(1)


def test_the_curve_ends_where_all_heads_are_gone() -> None:
    own = case()
    found = Analysis.choose({"kind": "head-importance", "step": 0.25, "orders": 2}).run(own)
    shares, oracle = found.arrays["shares"], found.arrays["oracle"]
    assert shares.tolist() == [0, 0.25, 0.5, 0.75, 1]
    choosing, asking = in_halves(own)
    assert oracle[0] == asking.asked().mean
    with gated(own.subject, 0 * open_gates(own.subject)):
        gone = asking.asked().mean
    for name in ("importance", "oracle"):
        assert found.arrays[name][-1] == gone
    assert (found.arrays["random"][:, -1] == gone).all()
    order = np.argsort(losses_alone(choosing), axis=None)
    gates = open_gates(own.subject)
    gates.view(-1)[order[:2].copy()] = 0
    with gated(own.subject, gates):
        assert oracle[1] == pytest.approx(asking.asked().mean, rel=1e-12)


def test_with_the_live_head_alone_nothing_is_lost_and_the_best_is_chosen_by_other_texts() -> None:
    own = case(live=True)
    found = Analysis.choose("one-head").run(own)
    losses, whole = found.arrays["losses"], found.arrays["whole"]
    others = [head for head in range(4) if head != LIVE[1]]
    assert (losses[LIVE] == whole).all()
    assert (losses[0] == whole).all()
    assert (losses[LIVE[0], others] != whole).any(-1).all()
    choosing, judging = halves(len(own.texts), own.seed)
    best, total = found.findings[1], found.arrays["total"][judging]
    assert best.head == losses[1][:, choosing].sum(1).argmin()
    lost = (losses[1, best.head, judging] - whole[judging]).sum() / total.sum()
    assert best.value == pytest.approx(lost)


@pytest.mark.parametrize("system", ["bert", "gpt-2", "albert", "xlnet"])
@pytest.mark.processor
def test_a_layer_that_is_passed_by_gives_on_what_it_is_given(system: str) -> None:
    subject = small_subject(system)
    pieces = torch.tensor([[2, 6, 7, 3]])
    with (
        torch.inference_mode(),
        without(subject, 0, "layer"),
        subject.encoder.record("blocks.0.input", "blocks.1.input") as values,
    ):
        subject.encoder(pieces)
    assert torch.equal(values["blocks.0.input"], values["blocks.1.input"])


def test_likeness_is_blind_to_turning_and_scaling() -> None:
    generator = np.random.default_rng(0)
    own = generator.normal(size=(200, 6))
    turned = np.linalg.qr(generator.normal(size=(6, 6)))[0]
    assert likeness(own, 3 * own @ turned + 1) == pytest.approx(1)
    assert np.isnan(likeness(own[:3], own[:3]))
    assert np.isnan(likeness(np.ones((9, 2)), own[:9]))


def test_likeness_of_what_has_nothing_in_common_is_none_however_few_words_there_are() -> None:
    generator = np.random.default_rng(0)
    for words in (8, 40):
        drawn = [likeness(*generator.normal(size=(2, words, 30))) for _ in range(400)]
        assert np.mean(drawn) == pytest.approx(0, abs=4 * np.std(drawn) / 20)


def test_likeness_counts_pairs_of_different_words() -> None:
    generator = np.random.default_rng(0)
    first, second = generator.normal(size=(9, 3)), generator.normal(size=(9, 5))
    kernels = [x @ x.T * (1 - np.eye(9)) for x in (first, second)]

    def dependence(k: np.ndarray, m: np.ndarray) -> float:
        rest = k.sum() * m.sum() / (8 * 7) - 2 / 7 * (k @ m).sum()
        return np.trace(k @ m) + rest

    both = dependence(*kernels)
    alone = np.prod([dependence(k, k) for k in kernels])
    assert likeness(first, second) == pytest.approx(both / np.sqrt(alone))


def test_without_a_penalty_gates_of_heads_that_write_nothing_stay() -> None:
    own = case(live=True)
    logits = LearnedGates(steps=10).learned(Asking(own.subject, own.texts), 0.0)
    dead = torch.ones_like(logits, dtype=torch.bool)
    dead[LIVE] = False
    assert (logits[dead] == 2.0).all()


def test_patterns_know_nothing_of_padding_and_are_those_of_the_source() -> None:
    for size in (5, 9):
        real = torch.arange(9)[None] < size
        seen = (real[:, None] & real[..., None])[:, None]
        padded, alone = patterns(seen, real), patterns(seen[..., :size, :size], real[:, :size])
        for one, other in zip(padded, alone, strict=True):
            assert torch.equal(one[..., :size, :size], other.expand(1, 1, size, size))
    left, right = (alone[PATTERNS.index(name)][0, 0] for name in ("left", "right"))
    cubes = torch.arange(1, 9, dtype=torch.float64) ** 3
    torch.testing.assert_close(left[4, :4], cubes[:4] / cubes[:4].sum())
    torch.testing.assert_close(right[4, 5:], cubes[:4].flip(0) / cubes[:4].sum())


def test_gates_that_close_nothing_are_no_sign_that_heads_can_go() -> None:
    own = small_case()
    analysis = LearnedGates(penalties=(1e-9, 1e-8), steps=2)
    found = analysis.run(own)
    stored = Stored({}, [each.as_dict() for each in found.findings], found.arrays)
    (told,) = analysis.conclusions(stored)
    assert (told.value, told.verdict == "seen") == (0.0, False)
