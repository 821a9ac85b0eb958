"""The texts that studies read: the embedded sample, one's own files, and languages made to order,
in which it is known what there is to be learned."""

from bertwright.studies.corpora.corpus import Corpus, Files, Sample, Written
from bertwright.studies.corpora.grammar import Grammar
from bertwright.studies.corpora.items import Items

__all__ = ["Corpus", "Files", "Grammar", "Items", "Sample", "Written"]
