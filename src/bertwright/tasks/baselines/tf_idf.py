"""TF-IDF baselines: words alone, without order and without a pretrained model."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, ClassVar

import numpy as np

from bertwright.tasks.baselines.baseline import Features, FloatMatrix, TaskBaseline
from bertwright.tasks.baselines.frequency import are_pairs
from bertwright.tasks.baselines.linear import (
    METHOD_NAMES,
    LinearBaseline,
    LinearModelKind,
    fit_linear,
)
from bertwright.tasks.formats.examples import Example, Examples, ExtractiveQuestion, MultipleChoice
from bertwright.tasks.outputs import MatchingOutput, Prediction
from bertwright.tasks.task import Task

MAX_FEATURES, MAX_DENSE = 20_000, 4_096
"""Maximum number of words and word pairs: for sparse features, and for dense text vectors."""

MAX_COEFFICIENTS = 2_000_000
"""Maximum number of coefficients of all labels together."""

WORD_PATTERN = r"(?u)\b\w+\b"

MIN_UNSEGMENTED_LENGTH = 15
"""Median characters per word above which a script is assumed to have no spaces."""

_SENTENCE = re.compile(r"[^.!?\n]+[.!?]*")


@dataclass(frozen=True)
class TfIdfFeatures:
    """TF-IDF of words and word pairs, or of characters for scripts without spaces.

    Attributes:
        vocabulary: the words in column order.
        idf: (F,) inverse document frequency.
    """

    is_character_level: bool
    vocabulary: list[str]
    idf: FloatMatrix

    @staticmethod
    def fit(texts: Sequence[str], max_features: int = MAX_FEATURES) -> "TfIdfFeatures":
        """Count the documents of each word."""
        lengths = [len(text) / max(len(text.split()), 1) for text in texts if text]
        is_character_level = bool(lengths) and median(lengths) > MIN_UNSEGMENTED_LENGTH
        vectorizer = _vectorizer(is_character_level, max_features)
        try:
            vectorizer.fit(texts)
        except ValueError:  # no text has a word
            return TfIdfFeatures(is_character_level, ["\0"], np.ones(1, np.float32))
        vocabulary = sorted(vectorizer.vocabulary_, key=vectorizer.vocabulary_.get)
        return TfIdfFeatures(is_character_level, vocabulary, vectorizer.idf_.astype(np.float32))

    def matrix(self, texts: Sequence[str]) -> Any:
        """Return a sparse matrix (N, F) with rows of length 1."""
        vectorizer = _vectorizer(self.is_character_level, None, self.vocabulary)
        vectorizer.idf_ = self.idf.astype(np.float64)
        return vectorizer.transform(texts).tocsr()

    def pairs(self, firsts: Sequence[str], seconds: Sequence[str]) -> Any:
        """Return pair features, sparse (N, 2 F + 1): difference, product and cosine."""
        from scipy import sparse

        first, second = self.matrix(firsts), self.matrix(seconds)
        product = first.multiply(second)
        cosine = sparse.csr_matrix(product.sum(1))
        return sparse.hstack([abs(first - second), product, cosine]).tocsr()

    def cosines(self, firsts: Sequence[str], seconds: Sequence[str]) -> FloatMatrix:
        """Return the cosines of text pairs, (N,)."""
        product = self.matrix(firsts).multiply(self.matrix(seconds))
        return np.asarray(product.sum(1), np.float32).ravel()


@dataclass(frozen=True)
class TfIdfLinearBaseline(LinearBaseline):
    """A linear model on TF-IDF, for classes, labels and numbers."""

    kind: ClassVar[str] = "words-linear"
    features: TfIdfFeatures
    has_pairs: bool

    @staticmethod
    def fit(
        kind: LinearModelKind, task: Task, examples: Sequence[Example]
    ) -> "TfIdfLinearBaseline":
        """Fit the model to training examples."""
        labels = [*task.labels]
        has_pairs = are_pairs(examples)
        texts = [text for e in examples for text in (e.text, e.pair) if text is not None]
        max_features = max(MAX_COEFFICIENTS // max(len(labels), 1), 100)
        features = TfIdfFeatures.fit(texts, min(MAX_FEATURES, max_features))
        references = [task.output_type.reference(example) for example in examples]
        linear = fit_linear(kind, _pair_features(features, examples, has_pairs), references, labels)
        name = f"TF-IDF with {METHOD_NAMES[kind]}"
        return TfIdfLinearBaseline(kind, labels, *linear, name, len(examples), features, has_pairs)

    def predict(self, examples: Sequence[Any], features: Features = None) -> list[Prediction]:
        return self.predict_inputs(_pair_features(self.features, examples, self.has_pairs))


def _pair_features(features: TfIdfFeatures, examples: Sequence[Example], has_pairs: bool) -> Any:
    if not has_pairs:
        return features.matrix([" ".join(filter(None, (e.text, e.pair))) for e in examples])
    return features.pairs([e.text for e in examples], [e.pair or "" for e in examples])


@dataclass(frozen=True)
class TfIdfCosineBaseline(TaskBaseline):
    """The TF-IDF cosine of two texts, for similarity, relevance and multiple choice."""

    kind: ClassVar[str] = "words-cosine"
    features: TfIdfFeatures
    has_vectors: bool
    name: str = "cosine of TF-IDF"
    num_training_examples: int = 0

    @staticmethod
    def fit(task: Task, examples: Examples) -> "TfIdfCosineBaseline":
        """Fit the vocabulary to the training examples."""
        has_vectors = isinstance(task.output_type, MatchingOutput)
        texts = [text for example in examples for text in _example_texts(example)]
        features = TfIdfFeatures.fit(texts, MAX_DENSE if has_vectors else MAX_FEATURES)
        return TfIdfCosineBaseline(features, has_vectors, num_training_examples=len(examples))

    def predict(self, examples: Sequence[Any], features: Features = None) -> list[Prediction]:
        if examples and isinstance(examples[0], MultipleChoice):
            return [self._predict_choice(example) for example in examples]
        firsts, seconds = [e.text for e in examples], [e.pair or "" for e in examples]
        cosines = self.features.cosines(firsts, seconds).tolist()
        if not self.has_vectors:
            return [Prediction(cosine) for cosine in cosines]
        dense = (
            self.features.matrix([*_example_texts(e)]).toarray().astype(np.float32)
            for e in examples
        )
        return [Prediction(c, vectors=vectors) for c, vectors in zip(cosines, dense, strict=True)]

    def _predict_choice(self, example: MultipleChoice) -> Prediction:
        text = f"{example.text} {example.question}"
        cosines = self.features.cosines([text] * len(example.options), example.options)
        return Prediction(int(cosines.argmax()))


@dataclass(frozen=True)
class SlidingWindowBaseline(TaskBaseline):
    """The sliding-window baseline of Rajpurkar et al. 2016.

    Its answer is the longest run of words not in the question, in the sentence most similar to it.
    """

    kind: ClassVar[str] = "words-span"
    features: TfIdfFeatures
    max_words: int
    name: str = "other words of the nearest sentence"
    num_training_examples: int = 0

    @staticmethod
    def fit(examples: Sequence[ExtractiveQuestion]) -> "SlidingWindowBaseline":
        """Fit the vocabulary to the training texts, and the median answer length."""
        features = TfIdfFeatures.fit([*dict.fromkeys(example.text for example in examples)])
        sizes = [len(answer.split()) for e in examples for answer in (e.answers or ())[:1]]
        return SlidingWindowBaseline(
            features,
            max(round(median(sizes)) if sizes else 1, 1),
            num_training_examples=len(examples),
        )

    def predict(self, examples: Sequence[Any], features: Features = None) -> list[Prediction]:
        return [self._predict_span(example) for example in examples]

    def _predict_span(self, example: ExtractiveQuestion) -> Prediction:
        sentences = [match.group().strip() for match in _SENTENCE.finditer(example.text)]
        if not sentences:
            return Prediction("")
        cosines = self.features.cosines([example.question] * len(sentences), sentences)
        sentence = sentences[int(cosines.argmax())]
        question_words = set(re.findall(WORD_PATTERN, example.question.lower()))
        runs: list[list[re.Match[str]]] = [[]]
        for match in re.finditer(WORD_PATTERN, sentence):
            if match.group().lower() in question_words:
                runs.append([])
            else:
                runs[-1].append(match)
        run = max(runs, key=len)[: self.max_words]
        return Prediction(sentence[run[0].start() : run[-1].end()] if run else "")


def _example_texts(example: Any) -> Iterable[str]:
    if isinstance(example, MultipleChoice):
        return (f"{example.text} {example.question}", *example.options)
    return (text for text in (*example.texts, *example.negatives) if text is not None)


def _vectorizer(
    is_character_level: bool, max_features: int | None, vocabulary: Sequence[str] | None = None
) -> Any:
    from sklearn.feature_extraction.text import TfidfVectorizer

    options: dict[str, Any] = (
        {"analyzer": "char", "ngram_range": (1, 3)}
        if is_character_level
        else {"token_pattern": WORD_PATTERN, "ngram_range": (1, 2)}
    )
    word_index = None if vocabulary is None else {word: n for n, word in enumerate(vocabulary)}
    return TfidfVectorizer(
        sublinear_tf=True, max_features=max_features, vocabulary=word_index, **options
    )
