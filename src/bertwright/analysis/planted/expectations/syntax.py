"""Heads that are wired to trees, and to verbs."""

from collections.abc import Iterator

import numpy as np
from torch import Tensor

from bertwright.analysis.analysis import Case
from bertwright.analysis.planted.attention import EVEN, pointing
from bertwright.analysis.planted.expectations.probing import noise, with_states
from bertwright.analysis.planted.expecting import Expected, above, below, equal, same
from bertwright.analysis.planted.models import small_subject
from bertwright.analysis.planted.trees import path_vectors, random_trees, wired
from bertwright.analysis.syntax.attention_or_states import AttentionOrStates
from bertwright.analysis.syntax.attention_parser import AttentionParser
from bertwright.analysis.syntax.coreference import Coreference
from bertwright.analysis.syntax.features import AttentionFeatures
from bertwright.analysis.syntax.mentions import Tale
from bertwright.analysis.syntax.relation_heads import RelationHeads
from bertwright.analysis.syntax.ways_to_trees import TREES
from bertwright.analysis.texts import read_texts
from bertwright.tasks.formats.treebank import Tree

SUBJECT, VERB = 1, 3


def relation_heads() -> Iterator[Expected]:
    """The head that is wired to the tree tells every relation; without it none does."""
    subject, own = small_subject(), random_trees(40)
    case, analysis = Case(subject, read_texts(subject, own)), RelationHeads()
    with wired(subject, own):
        found = analysis.run(case).findings
    told = {(f.layer, f.head, f.note) for f in found}
    yield same("heads", told, {(1, 2, "looks at its head")})
    yield equal("accuracy", [f.value for f in found], 1, 0)
    yield above("how far ahead of distances", [f.lead[0] for f in found if f.lead], 0)
    yield below("adjusted chance", [f.adjusted or 0.0 for f in found], 0.05)
    yield below(
        "accuracy where nothing is wired", [f.value for f in analysis.run(case).findings], 0.6
    )


def attention_parser() -> Iterator[Expected]:
    """The wired head carries the parser."""
    subject, own = small_subject(), random_trees(60, 7)
    case = Case(subject, read_texts(subject, own))
    with wired(subject, own):
        found = AttentionParser(rate=0.3).run(case)
    told = {f.metric: f.value for f in found.findings}
    yield above("UAS of attention", told["attention"], 0.95)
    others = [told[name] for name in ("untrained", "distances", "next word")]
    yield below("UAS of all else", others, 0.5)
    # Of 2 layers of 4 heads, what a word looks at.
    yield same("the heaviest head", int(found.arrays["weights"].argmax()), 4 + 2)


def attention_or_states() -> Iterator[Expected]:
    """Trees that a head is wired to are told by attention alone, those that are written in states
    by states alone."""
    own, few, analysis = random_trees(120), random_trees(40), AttentionOrStates(rank=8)
    with with_states(few, noise(3, 8 * len(few), 8)) as case, wired(case.subject, few):
        told = {f.metric: f for f in analysis.run(case).findings}
    for name in ("links of one head", "one head"):
        finding = told[f"UUAS, {name}"]
        yield same(f"the head of {name}", (finding.layer, finding.head), (1, 2))
        yield equal(f"UUAS of {name}", finding.value, 1, 0)
    yield above("UUAS of all heads, weighed", told["UUAS, all heads weighed"].value, 0.95)
    yield below("UUAS of states of nothing", told["UUAS, states"].value, 0.5)

    states = noise(3, 8 * len(own), 8)
    states[2] = np.concatenate([path_vectors(tree) for tree in own])
    with with_states(own, states) as case:
        told = {f.metric: f for f in analysis.run(case).findings}
    yield above("UUAS of states", told["UUAS, states"].value, 0.85)
    yield same("their layer", told["UUAS, states"].note, "layer 2, 0 before the blocks")
    others = ["chain", *(f"{name}, untrained" for name in TREES), *(set(TREES) - {"states"})]
    yield below("UUAS of all else", [told[f"UUAS, {name}"].value for name in others], 0.5)


def attention_features() -> Iterator[Expected]:
    """A head that looks at verbs alone gives them everything; one that looks there from subjects
    alone gives everything along that link."""
    subject, own = small_subject(), [_with_a_verb(tree) for tree in random_trees(24, 7)]

    def at_the_verb(weights: Tensor, _: Tree) -> None:
        weights[1:3] = 0
        weights[1, :, 0] = 1
        weights[1, 1 + SUBJECT] = 0
        weights[2, :, 1 + VERB] = weights[1, 1 + SUBJECT, 1 + VERB] = 1

    case = Case(subject, read_texts(subject, own))
    with wired(subject, own, at_the_verb):
        found = AttentionFeatures(least=5).run(case)
    told = {f.metric: f for f in found.findings}
    for name, head in (("verbs", 2), ("subject to verb", 1)):
        finding = told[name]
        yield same(f"the head of {name}", (finding.layer, finding.head), (1, head))
        yield equal(f"what it gives to {name}", finding.value, 1)
        yield below(f"adjusted chance of {name}", finding.adjusted or 0.0, 0.05)


def coreference() -> Iterator[Expected]:
    """The head that is wired to earlier mentions finds all of them, ahead of every guess; where all
    words get as much, heads are right as often as mentions are."""
    case, analysis = Case(small_subject(), []), Coreference(drawn=20)
    own, _ = analysis.asked_of(case)
    with wired(case.subject, [_linked(tale) for tale in sorted(own, key=lambda t: -len(t.words))]):
        found = analysis.run(case).findings
    best = [f for f in found if f.metric.startswith("best head, ")]
    yield same("heads", {(f.layer, f.head) for f in best}, {(1, 2)})
    yield equal("share of mentions found", [f.value for f in best], 1, 0)
    leads = [f for f in found if f.metric == "best head less nearest mention, all"]
    yield below("adjusted chance", [f.adjusted or 0.0 for f in leads], 0.05)
    others = [f.value for f in found if f.metric in ("nearest mention, all", "untrained, all")]
    yield below("share of what is not wired", others, 0.7)
    with pointing(case.subject, EVEN):
        shares = analysis.run(case).arrays["trained"]
    yield equal("share of chance", shares, np.mean([tale.same.mean() for tale in own]))


def _linked(tale: Tale) -> Tree:
    """A tale in which who is asked for depends on the first earlier mention."""
    size, first = len(tale.words), tale.before[int(tale.same.argmax())]
    heads = [-1] * size
    heads[tale.asked.place] = first.place
    return Tree(tale.words, tuple(heads), ("dep",) * size, ("X",) * size)


def _with_a_verb(tree: Tree) -> Tree:
    size = len(tree.words)
    heads = tuple(-1 if n == VERB else VERB for n in range(size))
    named = {SUBJECT: "nsubj", VERB: "root"}
    tags = tuple("VERB" if n == VERB else "X" for n in range(size))
    return Tree(tree.words, heads, tuple(named.get(n, "dep") for n in range(size)), tags)
