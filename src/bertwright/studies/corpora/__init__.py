"""The corpora of studies: the embedded sample, files, and synthetic languages."""

from bertwright.studies.corpora.algorithmic import AlgorithmicCorpus
from bertwright.studies.corpora.corpus import Corpus, CorpusFolder, FileCorpus, SampleCorpus
from bertwright.studies.corpora.item_histories import ItemHistoryCorpus
from bertwright.studies.corpora.long_range import LongRangeCorpus
from bertwright.studies.corpora.multilingual import MultilingualCorpus
from bertwright.studies.corpora.story_corpus import StoryCorpus

__all__ = [
    "AlgorithmicCorpus",
    "Corpus",
    "CorpusFolder",
    "FileCorpus",
    "ItemHistoryCorpus",
    "LongRangeCorpus",
    "MultilingualCorpus",
    "SampleCorpus",
    "StoryCorpus",
]
