"""Whether a wording is the right one: exact match and F1 over words, as SQuAD scores them.

Case, punctuation, articles and white space do not count. Of several right wordings the nearest one
does. The two versions of the data differ in one thing, the F1 of a wording of which nothing is left
but punctuation and articles: 0 in the first (Rajpurkar et al. 2016), in the second, where nothing
may be what is right, 1 if nothing is left of either (Rajpurkar et al. 2018).
"""

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)

Wordings = Sequence[str]
"""All that count as right; none where there is no answer."""


def bare(text: str) -> str:
    """Return what counts of a wording; characters that cannot be seen (U+200B) do not."""
    if not text.isascii():
        text = "".join(each for each in text if unicodedata.category(each) != "Cf")
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact_match(references: Sequence[Wordings], predictions: Sequence[str]) -> float:
    """The share of predictions that are a right wording, whatever else may be right."""
    return _mean(references, predictions, lambda right, said: float(bare(right) == bare(said)))


def word_f1(references: Sequence[Wordings], predictions: Sequence[str]) -> float:
    """The mean F1 over words, where every question has an answer."""
    return _mean(references, predictions, _overlap)


def word_f1_or_none(references: Sequence[Wordings], predictions: Sequence[str]) -> float:
    """The mean F1 over words, where some questions have no answer and "" says so."""

    def f1(right: str, said: str) -> float:
        if not bare(right) or not bare(said):
            return float(bare(right) == bare(said))
        return _overlap(right, said)

    return _mean(references, predictions, f1)


def _overlap(right: str, said: str) -> float:
    """F1 over the words of two texts, each as often as it stands in both."""
    wanted, given = Counter(bare(right).split()), Counter(bare(said).split())
    common = (wanted & given).total()
    return 2 * common / (wanted.total() + given.total()) if common else 0.0


def _mean(
    references: Sequence[Wordings], predictions: Sequence[str], of: Callable[[str, str], float]
) -> float:
    scores = [
        max(of(right, said) for right in _real(wordings))
        for wordings, said in zip(references, predictions, strict=True)
    ]
    return sum(scores) / len(scores)


def _real(wordings: Wordings) -> Sequence[str]:
    """The wordings of which something is left; the empty one where there are none."""
    return [wording for wording in wordings if bare(wording)] or [""]
