"""The texts that studies read: the embedded sample, one's own files, and languages made to order,
in which it is known what there is to be learned."""

from bertwright.studies.corpora.algo import Algo
from bertwright.studies.corpora.corpus import Corpus, Files, Sample, Written
from bertwright.studies.corpora.duo import Duo
from bertwright.studies.corpora.grammar import Grammar
from bertwright.studies.corpora.items import Items
from bertwright.studies.corpora.long import Long
from bertwright.studies.corpora.village import Village

__all__ = [
    "Algo",
    "Corpus",
    "Duo",
    "Files",
    "Grammar",
    "Items",
    "Long",
    "Sample",
    "Village",
    "Written",
]
