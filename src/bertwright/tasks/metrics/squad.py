"""Exact match and word F1 of answers, as SQuAD scores them.

Case, punctuation, articles and whitespace do not count. Of several references the best one counts.
The two versions of SQuAD differ in the F1 of an answer that is only punctuation and articles: 0 in
the first (Rajpurkar et al. 2016); in the second, which has unanswerable questions, 1 if the
reference is empty too (Rajpurkar et al. 2018).
"""

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)

ReferenceAnswers = Sequence[str]
"""All correct answers; none for an unanswerable question."""


def normalise_answer(text: str) -> str:
    """Return the normalised answer; invisible characters (U+200B) are removed."""
    if not text.isascii():
        text = "".join(c for c in text if unicodedata.category(c) != "Cf")
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact_match(references: Sequence[ReferenceAnswers], predictions: Sequence[str]) -> float:
    """Return the fraction of predictions that equal a reference."""
    return _mean_over_examples(
        references,
        predictions,
        lambda answer, text: float(normalise_answer(answer) == normalise_answer(text)),
    )


def word_f1(references: Sequence[ReferenceAnswers], predictions: Sequence[str]) -> float:
    """Return the mean word F1, where every question has an answer."""
    return _mean_over_examples(references, predictions, _word_overlap_f1)


def word_f1_with_no_answer(
    references: Sequence[ReferenceAnswers], predictions: Sequence[str]
) -> float:
    """Return the mean word F1, where some questions have no answer, predicted as ""."""

    def f1(reference: str, prediction: str) -> float:
        if not normalise_answer(reference) or not normalise_answer(prediction):
            return float(normalise_answer(reference) == normalise_answer(prediction))
        return _word_overlap_f1(reference, prediction)

    return _mean_over_examples(references, predictions, f1)


def _word_overlap_f1(reference: str, prediction: str) -> float:
    """Return the F1 over the words of two texts, as multisets."""
    true = Counter(normalise_answer(reference).split())
    predicted = Counter(normalise_answer(prediction).split())
    correct = (true & predicted).total()
    return 2 * correct / (true.total() + predicted.total()) if correct else 0.0


def _mean_over_examples(
    references: Sequence[ReferenceAnswers],
    predictions: Sequence[str],
    metric: Callable[[str, str], float],
) -> float:
    scores = [
        max(metric(answer, prediction) for answer in _non_empty_answers(answers))
        for answers, prediction in zip(references, predictions, strict=True)
    ]
    return sum(scores) / len(scores)


def _non_empty_answers(answers: ReferenceAnswers) -> Sequence[str]:
    """Return the answers that are not empty when normalised; the empty one if none is."""
    return [answer for answer in answers if normalise_answer(answer)] or [""]
