"""Encoders that write nothing, and one that reads the place before alone."""

from collections.abc import Generator, Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

from bertwright.analysis.analysis import Case
from bertwright.analysis.attribution.answers import Answer
from bertwright.analysis.attribution.flow import attended, changes_without, greatest_flows
from bertwright.analysis.attribution.learned_masks import LearnedMasks
from bertwright.analysis.attribution.mixing import contributions
from bertwright.analysis.planted.classifiers import bag_of_pieces
from bertwright.analysis.planted.expecting import Expected, above, below, equal, same
from bertwright.analysis.planted.models import SENTENCES, WORDS, small_case, small_subject
from bertwright.analysis.subject import Subject
from bertwright.analysis.texts import read_texts
from bertwright.tasks.formats.examples import Example


def answers() -> Iterator[Expected]:
    """Integrated gradients are complete, and every method names the piece that decides."""
    own = small_case()
    errors = [
        Answer.of(own.subject, text, 0, number).attributed(128)[1]
        for number, text in enumerate(own.texts)
    ]
    yield below("error of the sum", errors, 1e-3)
    with reading_the_place_before() as answer:
        found, _ = answer.attributed(64)
    for method, values in found.items():
        others = np.delete(np.abs(values), [answer.place - 1, answer.place])
        yield above(f"{method} of what decides", abs(values[answer.place - 1]), 1e-9)
        yield below(f"{method} of the rest", others, 1e-12)


def mixing() -> Iterator[Expected]:
    """Blocks that write nothing keep every state its own."""
    subject = identity()
    (text,) = read_texts(subject, [Example(SENTENCES[0])])
    for layer, found in enumerate(contributions(subject, text, 2, 0)):
        yield equal(f"shares of layer {layer}", found, np.eye(len(text)))


def flow() -> Iterator[Expected]:
    """As wide as the narrowest place, and along the way that there is."""
    yield equal(
        "of places that look at themselves", greatest_flows([np.eye(4)] * 3, 2), [0, 0, 1, 0]
    )
    drawn = np.random.default_rng(0)
    first, second = (own / own.sum(1, keepdims=True) for own in drawn.random((2, 5, 5)))
    edges = [(own + np.eye(5)) / 2 for own in (first, second)]
    ways = np.minimum(edges[1][3][:, None], edges[0]).sum(0)
    yield equal("through two layers", greatest_flows([first, second], 3), ways, 1e-5)
    with reading_the_place_before() as own:
        changes, (weights,) = changes_without(own), attended(own)
    flows = greatest_flows([weights], own.place)
    flows[own.place], changes[own.place] = 0, 0
    yield same("the widest way", int(flows.argmax()), own.place - 1)
    yield same("the place without which the score moves most", int(changes.argmax()), own.place - 1)


def learned_masks() -> Iterator[Expected]:
    """Of a text whose class one word decides, that word stays open and the rest is masked."""
    drawn = np.random.default_rng(0)
    others = [word for word in WORDS if word != "lamp"]
    texts = [
        " ".join(drawn.permutation([*drawn.choice(others, 5), *(["lamp"] if n % 2 else [])]))
        for n in range(40)
    ]
    subject = bag_of_pieces({"lamp": 60.0}, bias=-4.0)
    read = read_texts(subject, [Example(text) for text in texts])
    found = LearnedMasks(steps=300, rate=1e-2).run(Case(subject, read))
    told = {f.metric: f.value for f in found.findings}
    yield below("share of pieces open", told["share of pieces open"], 0.4)
    yield below("how far answers move", told["answer moves, nats"], 0.2)
    yield above("how far they move at random", told["random less learned"], 0.2)


def identity() -> Subject:
    """An encoder whose blocks write nothing, and do not norm."""
    subject = small_subject("modern", "encoder.norm.kind=none")
    with torch.no_grad():
        for name, parameter in subject.encoder.blocks.named_parameters():
            if name.endswith(("output.weight", "down.weight")):
                parameter.zero_()
    return subject


@contextmanager
def reading_the_place_before() -> Generator[Answer]:
    """An answer of a model that attends to the place before the hidden one alone."""
    subject = small_subject("bert", "encoder.depth.layers=1")
    (text,) = read_texts(subject, [Example("the keeper sees a ship")])
    own = Answer.of(subject, text, 0, 0)

    def only_before(weights: Tensor) -> Tensor:
        told = torch.zeros_like(weights)
        told[..., own.place - 1] = 1
        return told

    with subject.encoder.replace("blocks.0.attention.weights", only_before):
        yield own
