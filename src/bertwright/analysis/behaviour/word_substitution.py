"""Substitution of words in texts by similar words: names of the same type, and common nouns.

Names that are also other words (Rose, Mark, China) or names of another type (Florence, Jordan) are
excluded.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from bertwright.analysis.behaviour.classification import (
    PartWords,
    class_probabilities,
    most_likely_classes,
)
from bertwright.analysis.core.model import AnalysedModel
from bertwright.analysis.core.texts import AnalysedText
from bertwright.core.rng import stream_key
from bertwright.tasks.formats.dependency_trees import DependencyTree

WordClasses = Mapping[str, Sequence[str]]

_WOMEN = """Mary Anna Emma Sarah Laura Julia Alice Helen Maria Susan Linda Karen Nancy Lisa Emily
Rachel Rebecca Hannah Olivia Sophie Elena Irene Diana Martha Ruth Eleanor Catherine Jessica
Jennifer Amanda Nicole Angela Barbara Deborah Margaret Elizabeth Fatima Aisha Priya Yuki Ingrid
Amina Svetlana Guadalupe Oluchi Siobhan"""

_MEN = """John James Robert Michael David Thomas Peter Paul George Henry Daniel Andrew Stephen
Edward Kevin Brian Simon Oliver Samuel Benjamin Matthew Joseph Anthony Richard Charles William
Christopher Alexander Nicholas Jonathan Timothy Ahmed Omar Hiroshi Ivan Carlos Diego Luis Rajesh
Kofi Mehmet Giovanni Vladimir Oluwaseun Siddharth Bjorn"""

_CITIES = """London Paris Berlin Madrid Rome Vienna Tokyo Moscow Chicago Boston Seattle Toronto
Cairo Athens Dublin Lisbon Oslo Stockholm Warsaw Prague Budapest Beijing Mumbai Delhi Baghdad
Istanbul Nairobi Lagos Karachi Bangkok Jakarta Manila Melbourne Montreal Philadelphia Houston
Atlanta Denver Detroit Baltimore Brussels Amsterdam Ljubljana Ulaanbaatar Ouagadougou Reykjavik"""

_COUNTRIES = """France Germany Spain Italy Japan Russia Egypt Canada Mexico Brazil India Iraq Iran
Israel Australia England Scotland Ireland Portugal Greece Sweden Norway Denmark Finland Poland
Hungary Austria Switzerland Belgium Argentina Colombia Venezuela Nigeria Kenya Ethiopia Pakistan
Afghanistan Indonesia Vietnam Thailand Korea Ukraine Kyrgyzstan Liechtenstein Mozambique Uruguay"""

_NOUNS = """film movie actor director scene character picture song book novel house car boat
street school shop office room door window table chair garden river lake mountain road bridge train
teacher doctor student friend neighbor lawyer soldier worker player driver dog horse bird tree
flower computer phone letter newspaper article meeting team game idea problem week month year
hour"""

PROPER_NAMES: WordClasses = {
    "women": tuple(_WOMEN.split()),
    "men": tuple(_MEN.split()),
    "cities": tuple(_CITIES.split()),
    "countries": tuple(_COUNTRIES.split()),
}

COMMON_NOUNS: WordClasses = {
    "one thing": tuple(_NOUNS.split()),
    "several things": tuple(f"{thing}s" for thing in _NOUNS.split()),
}


def proper_nouns(text: AnalysedText) -> list[str]:
    """Return the words that may be names."""
    return words_with_tag(text, "PROPN")


def common_nouns(text: AnalysedText) -> list[str]:
    """Return the words that may be common nouns."""
    return words_with_tag(text, "NOUN")


def words_with_tag(text: AnalysedText, tag: str) -> list[str]:
    """Return the words with this tag; all words if the text has no tags."""
    if not isinstance(text.source, DependencyTree):
        return re.findall(r"\w+", " ".join(text.raw_texts))
    tags = text.source.tags[: len(text.words)]
    return [word for word, word_tag in zip(text.words, tags, strict=True) if word_tag == tag]


@dataclass(frozen=True)
class WordSubstitution:
    """A word of a text, in lower case, and the replacements for it throughout that text.

    ``rewrite_functions`` map an occurrence to its replacement.
    """

    text_index: int
    word: str
    replacements: tuple[str, ...]
    rewrite_functions: tuple[Callable[[str], str], ...]

    def with_case_variants(self) -> "WordSubstitution":
        """Return the substitution of the word by its own lower-case and upper-case forms."""
        return replace(
            self,
            replacements=("small letters", "capitals"),
            rewrite_functions=(str.lower, str.upper),
        )

    def apply(self, parts: Sequence[PartWords]) -> list[list[PartWords]]:
        """Return the parts of the text after each replacement; attached punctuation stays."""
        word = re.compile(rf"(?<!\w){re.escape(self.word)}(?!\w)", re.IGNORECASE)

        def rewrite(text: str, function: Callable[[str], str]) -> str:
            return word.sub(lambda match: function(match[0]), text)

        return [
            [[rewrite(text, function) for text in part] for part in parts]
            for function in self.rewrite_functions
        ]


def find_substitutions(
    texts: Sequence[AnalysedText],
    word_classes: WordClasses,
    candidate_words: Callable[[AnalysedText], Sequence[str]],
    max_replacements: int,
    seed: int,
) -> list[WordSubstitution]:
    """Find each text's first word in a word class; draw random replacements from the class.

    There are at most ``max_replacements`` per text; texts without such a word are skipped.
    """
    class_of = {word.lower(): name for name, words in word_classes.items() for word in words}
    substitutions: list[WordSubstitution] = []
    for number, text in enumerate(texts):
        target = next((w.lower() for w in candidate_words(text) if w.lower() in class_of), None)
        if target is None:
            continue
        others = [word for word in word_classes[class_of[target]] if word.lower() != target]
        order = np.random.default_rng(stream_key(seed, "exchange", target, number)).permutation(
            len(others)
        )
        replacements = tuple(others[n] for n in order[:max_replacements])
        if replacements:
            functions = tuple(partial(match_case, new) for new in replacements)
            substitutions.append(WordSubstitution(number, target, replacements, functions))
    return substitutions


def match_case(new: str, old: str) -> str:
    """Write a word in the same case as another one: lower, upper or capitalised."""
    if old.islower():
        return new.lower()
    if len(old) > 1 and old.isupper():
        return new.upper()
    return new[:1].upper() + new[1:]


def prediction_changes(
    model: AnalysedModel,
    text_parts: Sequence[Sequence[PartWords]],
    substitutions: Sequence[WordSubstitution],
) -> list[NDArray[np.bool_]]:
    """Return which replacements in each substitution change the predicted class."""
    before = most_likely_classes(
        class_probabilities(model, [text_parts[item.text_index] for item in substitutions])
    )
    after = most_likely_classes(
        class_probabilities(
            model, [t for item in substitutions for t in item.apply(text_parts[item.text_index])]
        )
    )
    ends = np.cumsum([len(item.rewrite_functions) for item in substitutions])[:-1]
    by_substitution = np.split(np.array(after), ends) if substitutions else []
    return [classes != label for classes, label in zip(by_substitution, before, strict=True)]
