"""The geometry of hidden states."""

# Imported here, as another group imports one of them: the order of reports is that of the imports.
from bertwright.analysis.geometry.contextuality import Contextuality
from bertwright.analysis.geometry.sentence_vectors import SentenceVectors
from bertwright.analysis.geometry.word_senses import WordSenses

__all__ = ["Contextuality", "SentenceVectors", "WordSenses"]
