"""Whether the state of a word tells its sense (Peters et al. 2018, table 4)."""

from dataclasses import replace
from typing import Any, Literal

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from bertwright.analysis.analysis import Analysis, Case
from bertwright.analysis.conclusions import Conclusion, concluded
from bertwright.analysis.findings import Baseline, Finding, Found, Stored
from bertwright.analysis.geometry.contextuality import unit
from bertwright.analysis.geometry.two_senses import SENTENCES
from bertwright.analysis.texts import read_texts
from bertwright.analysis.word_states import SITES, word_states
from bertwright.significance import of_difference, of_ratio
from bertwright.tasks.formats.examples import TaggedWords


class WordSenses(Analysis):
    """Of 8 words in 12 sentences each, 6 for either of two senses: how often the nearest of the
    other occurrences, by cosine, has the same sense, in every layer; and how far the senses of a
    word lie apart (the mean silhouette). The sentences are written for this."""

    kind: Literal["word-senses"] = "word-senses"
    number = "B36"
    group = "geometry"
    question = "Does the state of a word tell in which of its senses it is used?"
    source = "Peters et al. 2018"
    sites = SITES

    def run(self, case: Case) -> Found:
        from sklearn import metrics

        silhouette: Any = metrics.silhouette_score
        senses, states = self._occurrences(case)
        right = np.array([[nearest_alike(unit(own), senses) for own in word] for word in states])
        spread = np.array(
            [[silhouette(own, senses, metric="cosine") for own in word] for word in states]
        )
        coin = Baseline("a coin among the others", float((len(senses) / 2 - 1) / (len(senses) - 1)))
        findings: list[Finding] = []
        for layer in range(right.shape[1]):
            found, apart = (of_ratio(own[:, layer], seed=case.seed) for own in (right, spread))
            findings.append(
                Finding.over_texts(f"nearest has the sense, layer {layer}", found, baseline=coin)
            )
            findings.append(Finding.over_texts(f"silhouette, layer {layer}", apart))
        ones = np.ones(len(right))
        lead = of_difference((right[:, -1], ones), (right[:, 0], ones), seed=case.seed)
        findings.append(Finding.over_texts("nearest has the sense, last layer less first", lead))
        return Found(findings, {"right": right, "silhouette": spread})

    def conclusions(self, stored: Stored) -> list[Conclusion]:
        last = stored.arrays["right"].shape[1] - 1
        return [
            concluded(
                "the nearest occurrence of a word behind the blocks has the same sense",
                "neighbours of play are of sport or of theatre",
                stored.of_all(f"nearest has the sense, layer {last}"),
            ),
            concluded(
                "states behind the blocks tell senses better than what the blocks read",
                "word vectors mix the senses",
                stored.of_all("nearest has the sense, last layer less first"),
                0.0,
                "alike",
            ),
        ]

    def draw(self, stored: Stored, figure: Figure) -> None:
        axes = figure.subplots()
        for word, own in zip(SENTENCES, stored.arrays["right"], strict=True):
            axes.plot(own, color="0.8")
            axes.annotate(word, (len(own) - 1, own[-1]))
        axes.plot(stored.arrays["right"].mean(0), marker="o", label="mean of the words")
        axes.set_xlabel("layer")
        axes.set_ylabel("share whose nearest has the same sense")
        axes.legend()

    def _occurrences(self, case: Case) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """The sense of each sentence of a word (12,), and the states of the word in them,
        (words, layers, 12, D)."""
        sentences = [
            tuple(said.split()) for own in SENTENCES.values() for sense in own for said in sense
        ]
        texts = read_texts(case.subject, [TaggedWords(own, own) for own in sentences])
        read = word_states(replace(case, texts=texts, cache=None))
        number = [len(sense) for sense in next(iter(SENTENCES.values()))]
        begins = np.cumsum([0, *(len(text.words) for text in texts)])
        wanted = [word for word in SENTENCES for _ in range(sum(number))]
        at = [
            int(begin) + own.index(word)
            for begin, own, word in zip(begins, sentences, wanted, strict=False)
        ]
        states = read.states[:, at].reshape(read.num_layers, len(SENTENCES), sum(number), -1)
        return np.repeat(np.arange(len(number)), number), states.transpose(1, 0, 2, 3)


def nearest_alike(states: NDArray[np.float64], senses: NDArray[np.int64]) -> float:
    """The share of states (N, D) of length 1 whose nearest of the others has the same sense (N,);
    of several that are as near, the share that has it."""
    cosines = states @ states.T
    np.fill_diagonal(cosines, -np.inf)
    nearest = cosines >= cosines.max(1, keepdims=True) - 1e-9
    alike = senses[:, None] == senses
    return float(((nearest & alike).sum(1) / nearest.sum(1)).mean())
