"""A parser made of attention: a head that is wired to the tree carries it, and no other."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

from bertwright.analysis.analysis import Analysis, Case
from bertwright.analysis.findings import Found
from bertwright.analysis.listening import listen
from bertwright.analysis.planted.models import WORDS, small_subject
from bertwright.analysis.syntax.attention_parser import AttentionParser, by_distance, learned
from bertwright.analysis.texts import read_texts
from bertwright.tasks.formats.examples import Example
from bertwright.tasks.formats.treebank import Tree


def trees(number: int = 60, size: int = 7) -> list[Tree]:
    generator = np.random.default_rng(0)
    found = []
    for _ in range(number):
        order, heads = generator.permutation(size), [-1] * size
        for place in range(1, size):
            heads[order[place]] = int(order[generator.integers(place)])
        words = tuple(generator.choice(WORDS[:20], size))
        found.append(Tree(words, tuple(heads), ("dep",) * size, ("X",) * size))
    return found


@contextmanager
def wired(case: Case, own: list[Tree]) -> Iterator[None]:
    """Head 2 of the last layer looks from each word, which is one piece, at what it depends on, and
    from the root to the first place. Sentences are of one length and come in their order."""
    at = iter(own)

    def replaced(weights: torch.Tensor) -> torch.Tensor:
        weights = weights.clone()
        for row in weights:
            for word, head in enumerate(next(at).heads):
                row[2, 1 + word] = 0
                row[2, 1 + word, 1 + head] = 1
        return weights

    with case.subject.encoder.replace("blocks.1.attention.weights", replaced):
        yield


def values(found: Found) -> dict[str, float]:
    return {finding.metric: finding.value for finding in found.findings}


def test_a_head_that_is_wired_to_the_tree_parses() -> None:
    subject, own = small_subject(), trees()
    case = Case(subject, read_texts(subject, own))
    with wired(case, own):
        found = Analysis.choose({"kind": "attention-parser", "rate": 0.3}).run(case)
    told = values(found)
    assert told["attention"] > 0.95
    assert max(told[name] for name in ("untrained", "distances", "next word")) < 0.5
    # Of 2 layers of 4 heads, what a word looks at.
    assert found.arrays["weights"].argmax() == 4 + 2
    assert {"UAS, attention less distances", "UAS, attention less untrained"} <= set(told)


def test_trees_that_were_drawn_are_not_parsed() -> None:
    subject = small_subject()
    found = Analysis.choose("attention-parser").run(Case(subject, read_texts(subject, trees())))
    assert max(own.value for own in found.findings) < 0.5


def test_distances_alone_know_a_chain() -> None:
    chain = Tree(WORDS[:9], (-1, *range(8)), ("dep",) * 9, ("X",) * 9)
    subject = small_subject()
    heard = Analysis.choose("attention-parser").listener(
        Case(subject, read_texts(subject, [chain]))
    )
    listen(subject, heard.case.texts, [heard])
    own = by_distance(heard.seen[0])
    weights = learned([own], AttentionParser(epochs=100), 0)
    said = own.scores(weights)
    assert said.shape == (9, 10)
    assert (said[1:].argmax(1) == own.target[1:]).all()


def test_plain_texts_have_no_trees() -> None:
    subject, text = small_subject(), Example("the keeper sees a ship")
    lacks = Analysis.choose("attention-parser").lacks(Case(subject, read_texts(subject, [text])))
    assert lacks is not None
    assert "CoNLL-U" in lacks
