"""Copies, a copy of which one layer was changed, and tags that can be learned by heart."""

import copy
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch

from bertwright.analysis.analysis import Case
from bertwright.analysis.dynamics.beginnings import WAYS, Beginnings
from bertwright.analysis.dynamics.change import Change
from bertwright.analysis.dynamics.effective_context import EffectiveContext
from bertwright.analysis.dynamics.frozen_or_tuned import FrozenOrTuned
from bertwright.analysis.dynamics.masks import Mask, importances, pruned
from bertwright.analysis.dynamics.seeds import (
    HEADS,
    expected_best,
    shares_by_chance,
    variance_shares,
)
from bertwright.analysis.dynamics.tagging import Tagging
from bertwright.analysis.dynamics.tickets import trained_with
from bertwright.analysis.findings import Found
from bertwright.analysis.planted.expecting import Expected, above, below, equal, same
from bertwright.analysis.planted.models import WORDS, small_case, small_subject
from bertwright.analysis.planted.trees import TAGS, random_trees
from bertwright.analysis.subject import Subject
from bertwright.analysis.texts import read_texts
from bertwright.tasks.fine_tuned import FineTuned


def change() -> Iterator[Expected]:
    """A copy has changed in nothing, and otherwise in the layer that was changed."""
    case = _with_twin()
    found = Change().run(case)
    yield equal("parameters of a copy", _layers_of(found, "change of parameters"), 0)
    for metric in ("cosine of attention", "cosine of states", "likeness"):
        yield equal(f"{metric} of a copy", _layers_of(found, metric), 1)
    assert case.other is not None
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in case.other.encoder.blocks[2].parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
            parameter += 0.5 * parameter.std(correction=0) * noise.to(parameter.device)
    found = Change().run(case)
    gone, alike = (_layers_of(found, metric) for metric in ("change of parameters", "likeness"))
    yield equal("layers before the one that was changed", gone[:2], 0)
    yield above("the layer that was changed", gone[2], 0.2)
    yield equal("states before it", alike[:3], 1)
    yield below("states behind it", alike[3], 0.99)


def effective_context() -> Iterator[Expected]:
    """A model that sees no other place loses nothing by a shorter context."""
    texts = [" ".join(WORDS[n : n + 12]) for n in range(6)]
    case = small_case("bert", "encoder.positions={kind: none}", texts=texts)
    with torch.no_grad():
        for name, parameter in case.subject.encoder.blocks.named_parameters():
            if "attention.output" in name:
                parameter.zero_()
    found = EffectiveContext(longest=8).run(case)
    losses = found.arrays["losses"]
    yield same("contexts", found.arrays["contexts"].tolist(), [1, 2, 4, 8])
    yield equal("losses by context", losses, losses[:1].repeat(4, 0), 1e-9)


def beginnings() -> Iterator[Expected]:
    """Nothing judges that was learned from, and an encoder that is read as it is stays so."""
    case = _sentences()
    tagging = Tagging.of(case)
    parts = (tagging.learned, tagging.choosing, tagging.judged)
    yield same("sentences of the parts", sum(map(len, parts)), len(case.texts))
    found = Beginnings(seeds=1, epochs=1).run(case)
    yield same("ways", len(found.arrays["right"]), len(WAYS))
    yield same("units, which are runs", {own.num_units for own in found.findings}, {1})
    own = tagging.adapted(case.subject.text_model, 0, epochs=0)
    yield equal("what is read as it is", _moved(case, own), 0, 1e-7)
    once, again = (
        tagging.right(tagging.adapted(case.subject.text_model, 3, epochs=1)) for _ in range(2)
    )
    yield equal("the same seed twice", once, again, 0)


def frozen_or_tuned() -> Iterator[Expected]:
    """What is frozen does not move, what is fine-tuned does; a tag that a word tells is learned."""
    case = _sentences(told=True)
    tagging = Tagging.of(case)
    moved = [
        _moved(case, tagging.adapted(case.subject.text_model, 0, adaptation=kind))
        for kind in ("frozen", "full")
    ]
    yield equal("of the frozen encoder", moved[0], 0, 1e-7)
    yield above("of the tuned one", moved[1], 1e-4)
    found = FrozenOrTuned(seeds=1, epochs=3).run(case)
    yield same("units, which are runs", {own.num_units for own in found.findings}, {1})
    total = found.arrays["total"].sum()
    for way in ("fine-tuned", "frozen"):
        yield above(f"right, {way}", found.arrays[way].mean(0).sum() / total, 0.9)


def seeds() -> Iterator[Expected]:
    """Variance goes where it was put; the best of one run is their mean, of more it is better."""
    drawn = np.arange(4.0)[:, None] + np.zeros(3)
    for scores, wanted in ((drawn, (1, 0, 0)), (drawn.T, (0, 1, 0)), (0 * drawn, (0, 0, 0))):
        yield equal("shares of the variance", list(variance_shares(scores).values()), wanted)
    chances = shares_by_chance(drawn + np.random.default_rng(2).normal(0, 0.1, drawn.shape), 0)
    yield below("chance of what was put there", chances[HEADS][1], 0.01)
    nothing = [
        shares_by_chance(np.random.default_rng(n).normal(size=(3, 3)), n)[HEADS][1] < 0.05
        for n in range(60)
    ]
    yield below("tables of nothing in which something is found", np.mean(nothing), 0.15)
    scores = np.random.default_rng(0).normal(size=7)
    best = expected_best(scores)
    yield equal("of one run", best[0], scores.mean())
    yield above("of one run more", np.diff(best), 0)
    runs = np.random.default_rng(1).choice(scores, (20_000, 3)).max(1).mean()
    yield equal("of three, against drawing them", best[2], runs, 0.02)


def tickets() -> Iterator[Expected]:
    """What is left out says nothing, before and behind training; heads that write nothing do not
    matter; nothing goes of a model that says the same of all."""
    case = _sentences(told=True)
    tagging, own = Tagging.of(case), case.subject.text_model
    tuned = tagging.adapted(own, 0, precision="float32")
    generator = np.random.default_rng(0)
    half = Mask(np.array([[True, False] * 2] * 2), np.array([True, False]))
    for outside in (False, True):
        drawn = half.drawn(generator, outside)
        yield same("as many heads", int(drawn.heads.sum()), 4)
    again = half.drawn(generator, outside=True).heads & half.heads
    yield same("heads of those that went", int(again.sum()), 0)
    without = trained_with(case, tagging, half, 0)
    with half.gating(without.net.encoder):
        right = tagging.right(without)
    with Mask.whole(case.subject).gating(without.net.encoder):
        yield equal("answers behind training, gated or not", right, tagging.right(without), 0)
    yield equal("weights of heads that are left out", _written(without, 0)[:, 1], 0, 0)
    with torch.no_grad():
        for layer in range(2):
            _written(tuned, layer)[:, 2] = 0
    heads, _ = importances(tuned, tagging.learned[:4], Mask.whole(case.subject))
    yield equal("importance of heads that write nothing", heads[:, 2], 0, 0)
    yield above("importance of others", heads[:, [0, 1, 3]], 1e-9)
    with torch.no_grad():
        for parameter in tuned.net.head.parameters():
            parameter.zero_()
    yield same("heads left of what says one thing", pruned(case.subject, tuned, tagging).share, 1)


def _sentences(told: bool = False) -> Case:
    """A small model and sentences with parts of speech, which words tell or nothing does."""
    trees = random_trees(48)
    if told:
        trees = [
            replace(tree, tags=tuple(TAGS[WORDS.index(word) % len(TAGS)] for word in tree.words))
            for tree in trees
        ]
    subject = small_subject()
    return Case(subject, read_texts(subject, trees))


def _written(tuned: FineTuned, layer: int) -> torch.Tensor:
    """By what the heads of a layer write, (D, H, d)."""
    weight = tuned.net.encoder.blocks[layer].get_submodule("sublayers.attention.output").weight
    assert isinstance(weight, torch.Tensor)
    return weight.detach().view(len(weight), 4, -1)


def _moved(case: Case, tuned: FineTuned) -> float:
    """By how much any parameter of the encoder has moved."""
    before = dict(case.subject.encoder.named_parameters())
    return max(
        float((own - before[name].float()).detach().abs().max())
        for name, own in tuned.net.encoder.named_parameters()
    )


def _with_twin() -> Case:
    case = small_case("bert", "encoder.depth.layers=3")
    return replace(case, other=Subject("twin", copy.deepcopy(case.subject.text_model)))


def _layers_of(found: Found, metric: str) -> list[float]:
    return [own.value for own in found.findings if own.metric.startswith(metric)]
