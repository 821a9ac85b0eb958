"""Exact match and word F1 of answers, as SQuAD scores them.

Case, punctuation, articles and whitespace are ignored. If there are several references, the best
score counts. The two versions of SQuAD differ in the F1 of an answer that is only punctuation and
articles: it is 0 in the first (Rajpurkar et al. 2016); in the second, which has unanswerable
questions, it is 1 if the reference is empty too (Rajpurkar et al. 2018).
"""

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence

from bertwright.tasks.metrics.metrics import Metric, mean_metric

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)

ReferenceAnswers = Sequence[str]
"""All correct answers; empty for an unanswerable question."""


def normalise_answer(text: str) -> str:
    """Return the normalised answer, without invisible characters (U+200B)."""
    if not text.isascii():
        text = "".join(c for c in text if unicodedata.category(c) != "Cf")
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def _word_overlap_f1(reference: str, prediction: str) -> float:
    """Return the F1 over the words of two texts, counted as multisets."""
    true = Counter(normalise_answer(reference).split())
    predicted = Counter(normalise_answer(prediction).split())
    correct = (true & predicted).total()
    return 2 * correct / (true.total() + predicted.total()) if correct else 0.0


def _word_overlap_f1_with_no_answer(reference: str, prediction: str) -> float:
    if not normalise_answer(reference) or not normalise_answer(prediction):
        return float(normalise_answer(reference) == normalise_answer(prediction))
    return _word_overlap_f1(reference, prediction)


def _best_of_references(score: Callable[[str, str], float]) -> Metric:
    """Return a metric that is the mean score against the best reference.

    References that are empty when normalised only count if all are, or if there is none.
    """

    def best_score(answers: ReferenceAnswers, prediction: str) -> float:
        non_empty = [answer for answer in answers if normalise_answer(answer)]
        return max(score(answer, prediction) for answer in non_empty or [""])

    return mean_metric(best_score)


exact_match = _best_of_references(lambda a, b: float(normalise_answer(a) == normalise_answer(b)))
"""Fraction of predictions that equal a reference."""

word_f1 = _best_of_references(_word_overlap_f1)
"""Mean word F1, for tasks in which every question has an answer."""

word_f1_with_no_answer = _best_of_references(_word_overlap_f1_with_no_answer)
"""Mean word F1, for tasks in which some questions have no answer, predicted as ""."""
