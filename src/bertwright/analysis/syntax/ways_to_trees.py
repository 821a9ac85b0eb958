"""Ways from what a model shows of sentences to their trees: each is chosen or learned on half of
the sentences, and says how many edges it finds in the other half."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bertwright.analysis.analysis import Case
from bertwright.analysis.listening import listen
from bertwright.analysis.probing.structural import (
    Sentence,
    StructuralProbe,
    distances,
    fitted,
    sentence_of,
    sentences_of,
)
from bertwright.analysis.syntax.attention_parser import AttentionParser, ParserHeard, Seen, learned
from bertwright.analysis.syntax.relation_heads import WAYS, guesses
from bertwright.analysis.texts import ReadText
from bertwright.analysis.word_states import word_states
from bertwright.significance import halves
from bertwright.tasks.formats.treebank import Tree

Counts = NDArray[np.int64]


class Shown:
    """What a model shows of sentences that are all ``parsed``.

    Attributes:
        seen: of each the attention between its words.
        states: of all their words.
        sentences: their trees.
        choosing, judging: the numbers of those by which something is chosen, and judged.
        parser, probe: how weights of heads are learned, and maps of states.
    """

    def __init__(self, case: Case, parser: AttentionParser, probe: StructuralProbe) -> None:
        self.case, self.parser, self.probe = case, parser, probe
        heard = ParserHeard(case, parser)
        listen(case.subject, case.texts, [heard])
        self.seen = [heard.seen[number] for number in range(len(case.texts))]
        self.states = word_states(case)
        self.sentences = sentences_of(case.texts)
        self.choosing, self.judging = (half.tolist() for half in halves(len(self.seen), case.seed))

    def edges_found(self, number: int, nearness: Tensor) -> int:
        """How many edges of a sentence the tree of most nearness (W, W), either way, has right."""
        either = nearness.maximum(nearness.mT)
        return self.sentences[number].edges_found(-either.double().numpy())

    def judged(self, nearness: Callable[[int], Tensor]) -> Counts:
        """The same of every sentence that judges, by its number."""
        return np.array([self.edges_found(number, nearness(number)) for number in self.judging])


@dataclass(frozen=True)
class Told:
    """How many edges are right in each sentence that judges, and what was chosen."""

    right: Counts
    layer: int | None = None
    head: int | None = None
    note: str | None = None


def parsed(texts: Sequence[ReadText], most: int) -> list[ReadText]:
    """The first sentences whose words are all read, and whose trees have an edge that counts."""
    found: list[ReadText] = []
    for text in texts:
        tree = text.source
        assert isinstance(tree, Tree)
        if len(text.words) == len(tree.words) and sentence_of(tree).edges:
            found.append(text)
    return found[:most]


def of_heads(seen: Seen) -> Tensor:
    """The attention of all heads from word to word, (heads, W, W)."""
    return seen.pairs[..., : seen.pairs.shape[-1] // 2].permute(2, 0, 1)


def links_found(seen: Seen, sentence: Sentence) -> Counts:
    """Of every way and head (2, heads) how many edges there are among the links from each word that
    counts to another, at which it looks most or which looks at it most."""
    inside = torch.from_numpy(sentence.counted)
    guessed = guesses(of_heads(seen)[:, inside][:, :, inside])
    one, two = np.searchsorted(sentence.counted, np.array(sorted(sentence.edges)).T)
    return ((guessed[..., one] == two) | (guessed[..., two] == one)).sum(-1)


def links_of_one_head(shown: Shown) -> Told:
    """Those of the head, and of the way, by which most edges are found."""
    pairs = zip(shown.seen, shown.sentences, strict=True)
    found = np.array([links_found(*pair) for pair in pairs])
    by_head = found[shown.choosing].sum(0)
    way, head = map(int, np.unravel_index(by_head.argmax(), by_head.shape))
    place = divmod(head, shown.case.subject.num_heads)
    return Told(found[shown.judging, way, head], *place, WAYS[way])


def tree_of_one_head(shown: Shown) -> Told:
    """The tree of the head by which most edges are found."""
    found = [
        [shown.edges_found(number, weights) for weights in of_heads(shown.seen[number])]
        for number in shown.choosing
    ]
    head = int(np.sum(found, axis=0).argmax())
    right = shown.judged(lambda number: of_heads(shown.seen[number])[head])
    return Told(right, *divmod(head, shown.case.subject.num_heads))


def tree_of_all_heads(shown: Shown) -> Told:
    """The tree of the mean over heads: nothing is chosen."""

    def nearness(number: int) -> Tensor:
        weights = of_heads(shown.seen[number])
        return weights.maximum(weights.mT).mean(0)

    return Told(shown.judged(nearness))


def tree_of_weighed_heads(shown: Shown) -> Told:
    """The tree of how likely each word depends on each other by the parser that is made of
    attention."""
    choosing = [shown.seen[number] for number in shown.choosing]
    weights = learned(choosing, shown.parser, shown.case.seed)

    def nearness(number: int) -> Tensor:
        return shown.seen[number].scores(weights).log_softmax(1)[:, :-1]

    return Told(shown.judged(nearness))


def tree_of_states(shown: Shown) -> Told:
    """The tree of the shortest distances behind the map of the layer whose distances were best on
    what its map held out."""
    wanted = [shown.sentences[number].distances for number in shown.choosing]
    probes: list[tuple[Tensor, float]] = []
    for layer in range(shown.states.num_layers):
        states = [shown.sentences[n].read(shown.states, layer) for n in shown.choosing]
        probes.append(fitted(states, wanted, shown.probe, shown.case.seed))
    best = int(np.argmin([error for _, error in probes]))

    def nearness(number: int) -> Tensor:
        return -distances(shown.sentences[number].read(shown.states, best) @ probes[best][0])

    return Told(shown.judged(nearness), note=f"layer {best}, 0 before the blocks")


TREES: dict[str, Callable[[Shown], Told]] = {
    "links of one head": links_of_one_head,
    "one head": tree_of_one_head,
    "all heads alike": tree_of_all_heads,
    "all heads weighed": tree_of_weighed_heads,
    "states": tree_of_states,
}
"""By how they are reported."""
