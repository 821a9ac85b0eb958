"""How the states of a text are best made one vector (Reimers and Gurevych 2019, section 4)."""

from dataclasses import replace
from typing import Literal

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor

from bertwright.analysis.analysis import Analysis, Case
from bertwright.analysis.conclusions import Conclusion, concluded
from bertwright.analysis.findings import Baseline, Finding, Found, Stored
from bertwright.analysis.geometry.contextuality import unit
from bertwright.analysis.listening import Heard, listen
from bertwright.analysis.pictures import bars
from bertwright.analysis.texts import read_texts
from bertwright.analysis.word_states import SITES
from bertwright.significance import of_difference, of_ratio
from bertwright.tasks.formats.examples import TaggedWords

Floats = NDArray[np.float64]

POOLINGS: tuple[str, ...] = (
    "first",
    "last",
    "mean",
    "mean of words",
    "max",
    "mean of two layers",
    "embeddings",
)
"""The state of the first place or of the last one, the mean of all places or of those of words, the
greatest of each number; of the last layer, but for the means of the last two and of what the blocks
read."""

CENTRED = "mean of words, less that of all"

LEAST_WORDS = 4
"""Of a half."""


class SentenceVectors(Analysis):
    """Every text is cut in the middle, and each half becomes a vector. Of all second halves the
    nearest one to a first half, by cosine, should be its own: how often it is, by the way in which
    states are made a vector. Nobody has to say which texts are alike."""

    kind: Literal["sentence-vectors"] = "sentence-vectors"
    number = "B38"
    group = "geometry"
    question = "Which vector of a text knows best what the text is about?"
    source = "Reimers and Gurevych 2019"
    sites = SITES

    def lacks(self, case: Case) -> str | None:
        if sum(len(text.words) >= 2 * LEAST_WORDS for text in case.texts) < 2:
            return f"it needs two texts of {2 * LEAST_WORDS} words"
        return super().lacks(case)

    def run(self, case: Case) -> Found:
        words = [text.words for text in case.texts if len(text.words) >= 2 * LEAST_WORDS]
        first = pooled(case, [own[: len(own) // 2] for own in words])
        second = pooled(case, [own[len(own) // 2 :] for own in words])
        pairs = dict(zip(POOLINGS, zip(first, second, strict=True), strict=True))
        one, other = pairs["mean of words"]
        mean = np.concatenate((one, other)).mean(0)
        pairs[CENTRED] = one - mean, other - mean
        right = {name: found_again(*own) for name, own in pairs.items()}
        chance, ones = Baseline("any of them", 1 / len(words)), np.ones(len(words))
        findings = [
            Finding.over_texts(name, of_ratio(own, seed=case.seed), baseline=chance)
            for name, own in right.items()
        ]
        for name, other in (("mean", "first"), (CENTRED, "mean of words")):
            lead = of_difference((right[name], ones), (right[other], ones), seed=case.seed)
            findings.append(Finding.over_texts(f"{name}, ahead of {other}", lead))
        return Found(findings, {"right": np.array(list(right.values()))})

    def conclusions(self, stored: Stored) -> list[Conclusion]:
        return [
            concluded(
                "without fine-tuning the mean of all places says more than the first one",
                "54.8 against 29.2 points of Spearman on STS, BERT-base",
                stored.of_all("mean, ahead of first"),
                0.0,
                "alike",
            ),
            concluded(
                "less what all texts have in common, vectors tell texts better",
                "the cone that states lie in hides what differs",
                stored.of_all(f"{CENTRED}, ahead of mean of words"),
                0.0,
                "alike",
            ),
        ]

    def draw(self, stored: Stored, figure: Figure) -> None:
        found = [stored.of_all(name) for name in (*POOLINGS, CENTRED)]
        share = "share of first halves whose nearest second half is their own"
        bars(figure.subplots(), found, share)


def pooled(case: Case, sentences: list[tuple[str, ...]]) -> list[Floats]:
    """The vectors (N, D) of sentences by each of the poolings."""
    texts = read_texts(case.subject, [TaggedWords(own, own) for own in sentences])
    own = replace(case, texts=texts, cache=None)
    heard = _Pooling(own)
    listen(own.subject, own.texts, [heard])
    return [np.stack(vectors) for vectors in zip(*heard.vectors, strict=True)]


class _Pooling:
    """Makes vectors of each text."""

    sites = SITES

    def __init__(self, case: Case) -> None:
        self.num_layers = case.subject.num_layers
        self.vectors: list[list[Floats]] = [[] for _ in case.texts]

    def hear(self, heard: Heard) -> None:
        """Pool a batch."""
        names = ["embeddings.output", *(f"blocks.{n}.residual" for n in range(self.num_layers))]
        for row, number in enumerate(heard.numbers):
            text = heard.texts[row]
            lowest, before, last = (
                heard.values[names[layer]][row, : len(text)].double() for layer in (0, -2, -1)
            )
            inside = torch.from_numpy(text.word >= 0).to(last.device)
            made: list[Tensor] = [
                last[0],
                last[-1],
                last.mean(0),
                last[inside].mean(0),
                last.amax(0),
                ((before + last) / 2)[inside].mean(0),
                lowest[inside].mean(0),
            ]
            self.vectors[number] = [vector.cpu().numpy() for vector in made]

    def found(self) -> Found:
        """Nothing but the vectors."""
        return Found([])


def found_again(first: Floats, second: Floats) -> Floats:
    """For each vector of the first (N, D) whether the nearest of the second is its own, (N,); of
    several as near the share that is."""
    cosines = unit(first) @ unit(second).T
    nearest = cosines >= cosines.max(1, keepdims=True) - 1e-12
    return np.diagonal(nearest) / nearest.sum(1)
