"""Baselines of words alone: TF-IDF, without order and without a pre-trained model."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, ClassVar, cast

import numpy as np

from bertwright.tasks.answers import Prediction
from bertwright.tasks.baselines.baseline import Baseline, Matrix
from bertwright.tasks.baselines.frequencies import is_paired
from bertwright.tasks.baselines.linear import (
    KIND_OF,
    METHOD,
    Linear,
    LinearKind,
    answers,
    fit_linear,
)
from bertwright.tasks.formats.examples import Example, Examples, Options, Question
from bertwright.tasks.task import Task

MAX_FEATURES, MAX_DENSE = 20_000, 4_096
"""The most frequent words and pairs of words; fewer where texts become dense vectors."""

MAX_COEFFICIENTS = 2_000_000
"""Of all labels together."""

WORD = r"(?u)\b\w+\b"

LONG_WORD = 15
"""Characters of a word of the median text, from where on a script is taken to have no spaces."""

_SENTENCE = re.compile(r"[^.!?\n]+[.!?]*")


@dataclass(frozen=True)
class TfIdf:
    """Words and pairs of words by how telling they are; characters where there are no spaces.

    Attributes:
        vocabulary: the words in the order of the columns.
        idf: (F,) the logarithm of how few texts have each.
    """

    by_characters: bool
    vocabulary: list[str]
    idf: Matrix

    @staticmethod
    def fit(texts: Sequence[str], max_features: int = MAX_FEATURES) -> "TfIdf":
        """Find the words of texts, and how many texts have each."""
        lengths = [len(text) / max(len(text.split()), 1) for text in texts if text]
        by_characters = bool(lengths) and median(lengths) > LONG_WORD
        vectorizer = _vectorizer(by_characters, max_features)
        try:
            vectorizer.fit(texts)
        except ValueError:  # no text has a word
            return TfIdf(by_characters, ["\0"], np.ones(1, np.float32))
        words = sorted(vectorizer.vocabulary_, key=vectorizer.vocabulary_.get)
        return TfIdf(by_characters, words, vectorizer.idf_.astype(np.float32))

    def matrix(self, texts: Sequence[str]) -> Any:
        """Return sparse (N, F), rows of length 1."""
        vectorizer = _vectorizer(self.by_characters, None, self.vocabulary)
        vectorizer.idf_ = self.idf.astype(np.float64)
        return vectorizer.transform(texts).tocsr()

    def pairs(self, firsts: Sequence[str], seconds: Sequence[str]) -> Any:
        """Return sparse (N, 2 F + 1) of pairs: what only one text has, what both have, and their
        cosine."""
        from scipy import sparse

        one, other = self.matrix(firsts), self.matrix(seconds)
        common = one.multiply(other)
        cosine = sparse.csr_matrix(common.sum(1))
        return sparse.hstack([abs(one - other), common, cosine]).tocsr()

    def cosines(self, firsts: Sequence[str], seconds: Sequence[str]) -> Matrix:
        """Return how alike two texts are, (N,)."""
        common = self.matrix(firsts).multiply(self.matrix(seconds))
        return np.asarray(common.sum(1), np.float32).ravel()


@dataclass(frozen=True)
class WordsLinear(Baseline):
    """A linear model of TF-IDF, for classes, labels and numbers."""

    kind: ClassVar[str] = "words-linear"
    words: TfIdf
    answer: LinearKind
    labels: list[str]
    paired: bool
    coefficients: Matrix
    intercepts: Matrix
    name: str
    trained_on: int

    @staticmethod
    def fit(task: Task, examples: Sequence[Example]) -> "WordsLinear":
        """Fit the model to training examples."""
        kind, labels = KIND_OF[task.answer.own_kind()], [*task.labels]
        paired = is_paired(examples)
        texts = [text for e in examples for text in (e.first, e.second) if text is not None]
        most = max(MAX_COEFFICIENTS // max(len(labels), 1), 100)
        words = TfIdf.fit(texts, min(MAX_FEATURES, most))
        right = [task.answer.reference(example) for example in examples]
        linear = fit_linear(kind, _features(words, examples, paired), right, labels)
        name = f"TF-IDF with {METHOD[kind]}"
        return WordsLinear(words, kind, labels, paired, *linear, name, len(examples))

    def predict(
        self, examples: Examples, vectors: Sequence[Matrix] | None = None
    ) -> list[Prediction]:
        features = _features(self.words, cast(Sequence[Example], examples), self.paired)
        outputs = Linear(self.coefficients, self.intercepts).outputs(features)
        return answers(self.answer, outputs, self.labels)


def _features(words: TfIdf, examples: Sequence[Example], paired: bool) -> Any:
    if not paired:
        return words.matrix([" ".join(filter(None, (e.first, e.second))) for e in examples])
    return words.pairs([e.first for e in examples], [e.second or "" for e in examples])


@dataclass(frozen=True)
class WordsCosine(Baseline):
    """The cosine of the TF-IDF of two texts: for how near they are, for how relevant one is to the
    other, and for the option that is most like what it goes on with."""

    kind: ClassVar[str] = "words-cosine"
    words: TfIdf
    answer: str
    name: str = "cosine of TF-IDF"
    trained_on: int = 0

    @staticmethod
    def fit(task: Task, examples: Examples) -> "WordsCosine":
        """Find the words of the training examples."""
        kind = task.answer.own_kind()
        most = MAX_DENSE if kind == "closeness" else MAX_FEATURES
        words = TfIdf.fit([text for e in examples for text in _texts(e)], most)
        return WordsCosine(words, kind, trained_on=len(examples))

    def predict(
        self, examples: Examples, vectors: Sequence[Matrix] | None = None
    ) -> list[Prediction]:
        if self.answer == "option":
            return [self._option(cast(Options, example)) for example in examples]
        pairs = cast(Sequence[Example], examples)
        firsts, seconds = [e.first for e in pairs], [e.second or "" for e in pairs]
        cosines = self.words.cosines(firsts, seconds).tolist()
        if self.answer != "closeness":
            return [Prediction(cosine) for cosine in cosines]
        dense = (self.words.matrix([*_texts(e)]).toarray().astype(np.float32) for e in pairs)
        return [Prediction(c, vectors=rows) for c, rows in zip(cosines, dense, strict=True)]

    def _option(self, example: Options) -> Prediction:
        text = f"{example.first} {example.question}"
        cosines = self.words.cosines([text] * len(example.options), example.options)
        return Prediction(int(cosines.argmax()))


@dataclass(frozen=True)
class WordsSpan(Baseline):
    """In the sentence that is most like the question, the longest run of words that the question
    has not: a sliding window, as Rajpurkar et al. 2016 compare with."""

    kind: ClassVar[str] = "words-span"
    words: TfIdf
    longest: int
    name: str = "other words of the nearest sentence"
    trained_on: int = 0

    @staticmethod
    def fit(examples: Sequence[Question]) -> "WordsSpan":
        """Find the words of the training texts, and how long answers are."""
        words = TfIdf.fit([*dict.fromkeys(example.text for example in examples)])
        sizes = [len(answer.split()) for e in examples for answer in (e.answers or ())[:1]]
        return WordsSpan(
            words, max(round(median(sizes)) if sizes else 1, 1), trained_on=len(examples)
        )

    def predict(
        self, examples: Examples, vectors: Sequence[Matrix] | None = None
    ) -> list[Prediction]:
        return [self._span(cast(Question, example)) for example in examples]

    def _span(self, example: Question) -> Prediction:
        sentences = [match.group().strip() for match in _SENTENCE.finditer(example.text)]
        if not sentences:
            return Prediction("")
        cosines = self.words.cosines([example.question] * len(sentences), sentences)
        sentence = sentences[int(cosines.argmax())]
        question_words = set(re.findall(WORD, example.question.lower()))
        runs: list[list[re.Match[str]]] = [[]]
        for match in re.finditer(WORD, sentence):
            if match.group().lower() in question_words:
                runs.append([])
            else:
                runs[-1].append(match)
        run = max(runs, key=len)[: self.longest]
        return Prediction(sentence[run[0].start() : run[-1].end()] if run else "")


def _texts(example: Any) -> Iterable[str]:
    if isinstance(example, Options):
        return (f"{example.first} {example.question}", *example.options)
    return (text for text in (example.first, example.second, *example.others) if text is not None)


def _vectorizer(
    by_characters: bool, max_features: int | None, vocabulary: Sequence[str] | None = None
) -> Any:
    from sklearn.feature_extraction.text import TfidfVectorizer

    more: dict[str, Any] = (
        {"analyzer": "char", "ngram_range": (1, 3)}
        if by_characters
        else {"token_pattern": WORD, "ngram_range": (1, 2)}
    )
    named = None if vocabulary is None else {word: n for n, word in enumerate(vocabulary)}
    return TfidfVectorizer(sublinear_tf=True, max_features=max_features, vocabulary=named, **more)
