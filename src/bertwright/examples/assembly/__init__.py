"""Assembly: the stream of pieces becomes rows.

Reading order: ``source`` (the axis), ``chunks`` (how whole sentences fill rows), ``layout`` (how a
stretch of the stream lies in a row), then one file per way of cutting: ``packed``, ``sentences``,
``pairs`` and ``connected`` (both laid out by ``pair_layout``), ``dialogues``, ``translations``,
``histories``; last ``mixture``, which has rows of several of them, and ``half_reversed``, which has
those of another in both directions.
"""

from bertwright.examples.assembly.connected import ConnectedPair
from bertwright.examples.assembly.dialogues import Dialogue
from bertwright.examples.assembly.half_reversed import HalfReversed
from bertwright.examples.assembly.histories import ItemHistory
from bertwright.examples.assembly.mixture import MixedRows, Mixture
from bertwright.examples.assembly.packed import Contiguous, Packed
from bertwright.examples.assembly.pairs import Pair, SegmentPair, SentencePair
from bertwright.examples.assembly.sentences import DocSentences, FullSentences
from bertwright.examples.assembly.source import Assembly, RowSource
from bertwright.examples.assembly.translations import TranslationPair

__all__ = [
    "Assembly",
    "ConnectedPair",
    "Contiguous",
    "Dialogue",
    "DocSentences",
    "FullSentences",
    "HalfReversed",
    "ItemHistory",
    "MixedRows",
    "Mixture",
    "Packed",
    "Pair",
    "RowSource",
    "SegmentPair",
    "SentencePair",
    "TranslationPair",
]
