"""Interchangeable words: names by type, and common nouns.

Names that are also other words (Rose, Mark, China) or names of another type (Florence, Jordan) are
left out.
"""

import re
from collections.abc import Mapping, Sequence

from bertwright.analysis.core.texts import AnalysedText
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
    """Return the words with this tag; all words of a text without tags."""
    if not isinstance(text.source, DependencyTree):
        return re.findall(r"\w+", " ".join(text.raw_texts))
    tags = text.source.tags[: len(text.words)]
    return [word for word, word_tag in zip(text.words, tags, strict=True) if word_tag == tag]
