"""Whether states know the main verb's auxiliary by the tree or by its place (Lin et al. 2019)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn

from bertwright.analysis.analysis import Analysis, Case
from bertwright.analysis.conclusions import Conclusion, concluded
from bertwright.analysis.findings import Finding, Found, Stored
from bertwright.analysis.texts import read_texts
from bertwright.analysis.word_states import SITES, WordStates, word_states
from bertwright.randomness import key
from bertwright.significance import of_difference, of_ratio
from bertwright.tasks.formats.examples import TaggedWords

DETERMINERS = ("the", "some", "my", "your", "our", "her")
NOUNS = ("dog", "cat", "bird", "horse", "lion", "bear", "mouse", "duck", "frog", "cow")
PLURALS = ("dogs", "cats", "birds", "horses", "lions", "bears", "mice", "ducks", "frogs", "cows")
ADJECTIVES = ("big", "small", "old", "young", "happy", "quiet", "brown", "white")
PREPOSITIONS = ("near", "behind", "with", "by", "beside", "around")
RELATIVES = ("who", "that")
AUXILIARIES = ("can", "could", "will", "would")
ALONE = ("sleep", "sing", "walk", "swim", "smile", "wait")
WITH_OBJECT = ("see", "help", "follow", "hear", "like", "find")

Floats = NDArray[np.float64]

BEHIND = "main auxiliary behind a clause"

RISE = "upper half of layers less embeddings, behind a clause"

ORDINAL = 3
"""The place of the word that is asked for by its place alone, from 0."""


class MainAuxiliary(Analysis):
    """A score of each word's state is learned such that the main auxiliary has the highest, from
    sentences in which it is the first one: "the dog near my cats can sleep". It is judged where
    another stands before it, in a clause about the subject: "the dog that will follow my cats can
    sleep". Blocks as they are drawn tell something of it, too: what layers gain is held against
    theirs. Beside it a score for the fourth word is learned. The sentences are drawn from a grammar
    of our own: ``learned`` of them, and ``judged`` of either kind."""

    kind: Literal["main-auxiliary"] = "main-auxiliary"
    learned: int = Field(default=600, ge=10)
    judged: int = Field(default=300, ge=10)
    number = "B25"
    group = "probing"
    question = "Is the main auxiliary known by the tree, or by its place?"
    source = "Lin et al. 2019"
    sites = SITES

    def run(self, case: Case) -> Found:
        generator = np.random.default_rng(key(case.seed, "main auxiliary"))
        kinds = (False,) * (self.learned + self.judged) + (True,) * self.judged
        sentences = [drawn(generator, behind_clause) for behind_clause in kinds]
        hits = self._hits(case, sentences)
        findings = [
            Finding.over_texts(name, of_ratio(of[layer], seed=case.seed), layer, of_states=True)
            for layer in range(len(hits[BEHIND]))
            for name, of in hits.items()
        ]
        untrained = replace(case, subject=case.subject.untrained(case.seed))
        own, other = (_rise(of[BEHIND]) for of in (hits, self._hits(untrained, sentences)))
        place, ones = hits["fourth word"], np.ones(self.judged)
        more = of_difference((own, ones), (other, ones), seed=case.seed)
        lost = of_difference((place[0], ones), (place[-1], ones), seed=case.seed)
        findings += [
            Finding.over_texts(RISE, of_ratio(own, seed=case.seed)),
            Finding.over_texts(f"{RISE}, less untrained", more),
            Finding.over_texts("fourth word, embeddings less last layer", lost),
        ]
        return Found(findings, {name: of.mean(1) for name, of in hits.items()})

    def conclusions(self, stored: Stored) -> list[Conclusion]:
        return [
            concluded(
                "training lets upper layers know the main auxiliary by the tree, beyond embeddings",
                "the rule of places in low layers of BERT, that of the tree in high ones",
                stored.of_all(f"{RISE}, less untrained"),
                0.0,
                "alike",
            ),
            concluded(
                "the place of a word is known less in the last layer",
                "falls with depth in BERT",
                stored.of_all("fourth word, embeddings less last layer"),
                0.0,
                "alike",
            ),
        ]

    def draw(self, stored: Stored, figure: Figure) -> None:
        axes = figure.subplots()
        for name, by_layer in stored.arrays.items():
            axes.plot(by_layer, marker="o", label=name)
        axes.set_xlabel("layer, 0 before the blocks")
        axes.set_ylabel("share of sentences")
        axes.legend()

    def _hits(self, case: Case, sentences: Sequence["Sentence"]) -> dict[str, Floats]:
        """Of each layer and sentence that judges whether it is right, (layers + 1, N), by what is
        asked."""
        texts = read_texts(case.subject, [TaggedWords(s.words, s.words) for s in sentences])
        own = word_states(replace(case, texts=texts))
        learned, plain, clause = np.split(
            np.arange(len(sentences)), np.cumsum([self.learned, self.judged])
        )
        main = np.array([sentence.main for sentence in sentences])
        other = np.array([sentence.other for sentence in sentences])
        hits: dict[str, list[NDArray[np.bool_]]] = {}
        for layer in range(own.num_layers):
            states, real = padded(own, layer, len(sentences))
            states = states / states[learned][real[learned]].std(0).clamp(min=1e-6)
            for_main, for_place = (
                scorer(states[learned], real[learned], target)
                for target in (main[learned], np.full(len(learned), ORDINAL))
            )
            said = [chosen(states, real, weights) for weights in (for_main, for_place)]
            found = {
                "learned rule, sentences as those learned": said[0][plain] == main[plain],
                BEHIND: said[0][clause] == main[clause],
                "first auxiliary instead": said[0][clause] == other[clause],
                "fourth word": said[1][plain] == ORDINAL,
            }
            for name, right in found.items():
                hits.setdefault(name, []).append(right)
        return {name: np.array(of, np.float64) for name, of in hits.items()}


def _rise(hits: Floats) -> Floats:
    """Of each sentence what the upper half of layers (layers + 1, N) has more than embeddings."""
    return hits[(len(hits) + 1) // 2 :].mean(0) - hits[0]


@dataclass(frozen=True)
class Sentence:
    """``main`` is where its main auxiliary stands, ``other`` where the first one does that is not
    it, -1 without one."""

    words: tuple[str, ...]
    main: int
    other: int


def drawn(generator: np.random.Generator, behind_clause: bool) -> Sentence:
    """A sentence whose main auxiliary stands behind a clause about the subject, which has another,
    or one in which no auxiliary stands before it."""

    def one(words: Sequence[str]) -> str:
        return str(generator.choice(words))

    def thing() -> list[str]:
        adjectives = generator.choice(ADJECTIVES, generator.integers(0, 3), replace=False)
        return [one(DETERMINERS), *map(str, adjectives), one(NOUNS + PLURALS)]

    def beside() -> list[str]:
        return [one(PREPOSITIONS), *thing()] if generator.random() < 0.5 else []

    def clause() -> list[str]:
        return [one(RELATIVES), one(AUXILIARIES), *done()]

    def done() -> list[str]:
        return [one(WITH_OBJECT), *thing()] if generator.random() < 0.5 else [one(ALONE)]

    subject = [*thing(), *(clause() if behind_clause else beside())]
    # A clause about the object brings a second auxiliary to sentences of either kind.
    told = done()
    after = [] if len(told) == 1 else clause() if generator.random() < 0.5 else beside()
    words = (*subject, one(AUXILIARIES), *told, *after, ".")
    main = len(subject)
    others = [n for n, word in enumerate(words) if word in AUXILIARIES and n != main]
    return Sentence(words, main, others[0] if others else -1)


def padded(own: WordStates, layer: int, number: int) -> tuple[Tensor, Tensor]:
    """The states of a layer by sentence (N, T, D), and which are there (N, T)."""
    sizes = np.bincount(own.text, minlength=number)
    real = torch.from_numpy(np.arange(sizes.max()) < sizes[:, None])
    states = torch.zeros(*real.shape, own.states.shape[-1])
    states[real] = torch.from_numpy(np.array(own.states[layer]))
    return states, real


def scorer(states: Tensor, real: Tensor, target: NDArray[np.int64]) -> Tensor:
    """Weights (D,) by which, of the places of a sentence, the one that is asked for scores best."""
    weights = nn.Parameter(torch.zeros(states.shape[-1]))
    update = torch.optim.LBFGS([weights], max_iter=100, line_search_fn="strong_wolfe")
    wanted = torch.from_numpy(target)

    def loss() -> Tensor:
        scores = (states @ weights).masked_fill(~real, -torch.inf)
        return nn.functional.cross_entropy(scores, wanted) + 1e-3 * weights.square().sum()

    def closure() -> float:
        update.zero_grad()
        own = loss()
        own.backward()
        return float(own.detach())

    update.step(closure)
    return weights.detach()


def chosen(states: Tensor, real: Tensor, weights: Tensor) -> NDArray[np.int64]:
    """The place of every sentence (N,) that scores best."""
    return (states @ weights).masked_fill(~real, -torch.inf).argmax(1).numpy()
