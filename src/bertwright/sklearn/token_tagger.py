"""``TokenTagger``: a tag for every word."""

from collections.abc import Iterable, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import Tags, check_consistent_length
from sklearn.utils.validation import check_is_fitted

from bertwright.core.messages import count_noun
from bertwright.sklearn.fine_tuned_estimator import FineTunedEstimator
from bertwright.tasks.formats.examples import TaggedSentence
from bertwright.tasks.outputs import TokenClassificationOutput
from bertwright.tasks.outputs.output_decoder import group_by_example
from bertwright.tasks.task import Task


class TokenTagger(FineTunedEstimator):
    """A tagger of words: parts of speech, names, or any other tags.

    ``X`` holds N sentences, each a list of words, or a text whose words are separated by spaces;
    ``y`` a list of tags for each. ``classes_`` (K,) are the tags in the order of probabilities.
    """

    classes_: NDArray[np.str_]

    def fit(self, X: Any, y: Any) -> Self:  # noqa: N803
        """Fine-tune on sentences with a tag for every word.

        Errors: ValueError for less than two tags, and for a sentence with another number of tags.
        """
        sentences = _read_sentences(X)
        if y is None:
            raise ValueError("TokenTagger requires y to be passed, but the target y is None")
        tags = [tuple(map(str, sentence_tags)) for sentence_tags in y]
        check_consistent_length(sentences, tags)
        for index, (words, sentence_tags) in enumerate(zip(sentences, tags, strict=True)):
            if len(words) != len(sentence_tags):
                raise ValueError(
                    f"sentence {index} has {count_noun(len(sentence_tags), 'tag')} for "
                    f"{count_noun(len(words), 'word')}: give each word one"
                )
        names = sorted({tag for sentence_tags in tags for tag in sentence_tags})
        if len(names) < 2:
            raise ValueError(f"TokenTagger needs at least two tags, and y has one class: {names}")
        self.classes_ = np.array(names)
        output_type = TokenClassificationOutput(stride=self.stride)
        task = Task("words", output_type, labels=tuple(names))
        examples = [
            TaggedSentence(words, sentence_tags)
            for words, sentence_tags in zip(sentences, tags, strict=True)
        ]
        self._fine_tune(task, examples, [" ".join(words) for words in sentences])
        return self

    def predict(self, X: Any) -> NDArray[np.object_]:  # noqa: N803
        """Return the tags of each sentence: N lists."""
        return _as_object_array(
            self.classes_[probabilities.argmax(1)].tolist()
            for probabilities in self.predict_proba(X)
        )

    def predict_proba(self, X: Any) -> NDArray[np.object_]:  # noqa: N803
        """Return the probabilities of the tags of each sentence: N arrays (words, K) float32."""
        check_is_fitted(self)
        examples = [TaggedSentence(words) for words in _read_sentences(X)]
        model, decoder = self.model_, self.model_.output_decoder
        sequences = decoder.encode(model.example_encoder, examples)
        groups = group_by_example(sequences, model.head_outputs(sequences), len(examples))
        empty = np.empty((0, len(self.classes_)), np.float32)
        return _as_object_array(
            np.stack([*decoder.decision_probabilities(parts)]) if parts else empty
            for parts in groups
        )

    def score(self, X: Any, y: Any) -> float:  # noqa: N803
        """Return the F1 of spans, or the accuracy if the tags do not form spans."""
        predicted = [tuple(tags) for tags in self.predict(X)]
        metric: Any = self.model_.task.output_type.metric(self.model_.task.metrics[0])
        return float(metric([tuple(map(str, tags)) for tags in y], predicted))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.one_d_array = True
        tags.input_tags.two_d_array = False  # sentences have different numbers of words
        tags.target_tags.required = True
        return tags


def _read_sentences(X: Any) -> list[tuple[str, ...]]:  # noqa: N803
    """Return the words of each sentence; TypeError for other than texts and lists of words."""
    if isinstance(X, str):
        raise ValueError("an iterable of sentences is expected, and X is one string: pass [X]")
    sentences = [tuple(item.split()) if isinstance(item, str) else item for item in X]
    for index, words in enumerate(sentences):
        if not isinstance(words, Iterable) or not all(isinstance(word, str) for word in words):
            raise TypeError(
                f"sentence {index} is {words!r}: give a text, or a list of words that are strings"
            )
    return [tuple(words) for words in sentences]


def _as_object_array(values: Iterable[Sequence[Any] | NDArray[Any]]) -> NDArray[np.object_]:
    """Return values of different lengths as an array (N,) of objects."""
    items = list(values)
    array = np.empty(len(items), dtype=object)
    for index, item in enumerate(items):
        array[index] = item
    return array
