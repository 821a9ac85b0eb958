"""Whether the hidden state of a word indicates its sense (Peters et al. 2018, table 4)."""

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bertwright.analysis.core.analysis import Analysis, AnalysisInput
from bertwright.analysis.core.claims import Claim
from bertwright.analysis.core.plots import LayerCurves
from bertwright.analysis.core.result import AnalysisResult, BaselineValue, Findings
from bertwright.analysis.core.texts import (
    SentenceWords,
)
from bertwright.analysis.core.word_states import (
    WORD_STATE_TAPS,
    sentence_states,
)
from bertwright.analysis.geometry.contextuality import unit_vectors
from bertwright.analysis.geometry.sense_sentences import SENSE_SENTENCES
from bertwright.core.significance import FloatArray

SAME_SENSE = "nearest occurrence has the same sense"
SAME_SENSE_GAIN = f"{SAME_SENSE}, last layer minus first"


class WordSenses(Analysis):
    """How often the nearest occurrence of an ambiguous word, by cosine, has the same sense.

    There are 8 words in 12 sentences each, 6 per sense; every layer is measured. Also reported is
    how far apart the senses are (mean silhouette).
    """

    kind: Literal["word-senses"] = "word-senses"
    survey_id = "B36"
    title = "Does the hidden state of a word tell which sense is meant?"
    source = "Peters et al. 2018"
    taps = WORD_STATE_TAPS
    claims = (
        Claim(
            "in the last layer the nearest occurrence of a word has the same sense",
            "neighbours of play are about sport or about theatre",
            SAME_SENSE,
            None,
            layer="last",
        ),
        Claim(
            "hidden states tell senses better than the embeddings",
            "static word vectors mix the senses",
            SAME_SENSE_GAIN,
        ),
    )
    plots = (
        LayerCurves(
            "fraction whose nearest occurrence has the same sense",
            lambda r: {"dots: words": r.arrays["is_correct"].T},
        ),
    )

    def built_in_sentences(self, seed: int) -> list[SentenceWords]:
        return [
            tuple(sentence.split())
            for senses in SENSE_SENTENCES.values()
            for sense in senses
            for sentence in sense
        ]

    def run(self, inputs: AnalysisInput) -> AnalysisResult:
        from sklearn import metrics

        silhouette: Any = metrics.silhouette_score
        senses, states = self._sense_occurrences(inputs)
        is_same = np.array(
            [[same_sense_fraction(unit_vectors(s), senses) for s in word] for word in states]
        )
        silhouettes = np.array(
            [[silhouette(s, senses, metric="cosine") for s in word] for word in states]
        )
        chance = BaselineValue(
            "random other occurrence", float((len(senses) / 2 - 1) / (len(senses) - 1))
        )
        findings = Findings(inputs.seed, includes_embeddings=True)
        for layer in range(is_same.shape[1]):
            for name, values, baseline in (
                (SAME_SENSE, is_same, chance),
                ("silhouette", silhouettes, None),
            ):
                findings.add_ratio(name, values[:, layer], layer=layer, baseline=baseline)
        findings.add_difference(SAME_SENSE_GAIN, is_same[:, -1], is_same[:, 0])
        return AnalysisResult(findings, {"is_correct": is_same, "silhouette": silhouettes})

    def _sense_occurrences(
        self, inputs: AnalysisInput
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Return the sense of each sentence (12,) and the states (words, layers, 12, D)."""
        sentences = self.built_in_sentences(inputs.seed)
        word_states = sentence_states(inputs, sentences)
        sizes = [len(sense) for sense in next(iter(SENSE_SENTENCES.values()))]
        targets = [word for word in SENSE_SENTENCES for _ in range(sum(sizes))]
        indices = [
            int(start) + sentence.index(word)
            for start, sentence, word in zip(word_states.starts, sentences, targets, strict=True)
        ]
        states = word_states.states[:, indices].reshape(
            word_states.num_layers, len(SENSE_SENTENCES), sum(sizes), -1
        )
        return np.repeat(np.arange(len(sizes)), sizes), states.transpose(1, 0, 2, 3)


def same_sense_fraction(states: FloatArray, senses: NDArray[np.int64]) -> float:
    """Return the fraction of unit states (N, D) whose nearest neighbour has the same sense (N,).

    Ties count in part.
    """
    cosines = states @ states.T
    np.fill_diagonal(cosines, -np.inf)
    nearest = cosines >= cosines.max(1, keepdims=True) - 1e-9
    is_same = senses[:, None] == senses
    return float(((nearest & is_same).sum(1) / nearest.sum(1)).mean())
