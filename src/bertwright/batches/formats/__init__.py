"""Input formats: how the token stream becomes sequences.

Reading order: ``input_format`` (the axis), ``arrangement`` (how texts become sequences), then one
file per format: ``packed``, ``sentences``, ``pairs``, ``connective_pairs``, ``dialogues``,
``sentence_groups``, ``document_crops``, ``translations``, ``item_history``, ``contiguous_pair``,
``mixture`` (several formats in one run) and ``half_reversed`` (another format, read in both
directions).
"""

from bertwright.batches.formats.connective_pairs import ConnectedPair
from bertwright.batches.formats.contiguous_pair import ContiguousPair
from bertwright.batches.formats.dialogues import DialogueFormat
from bertwright.batches.formats.document_crops import DocumentCrops
from bertwright.batches.formats.half_reversed import HalfReversed
from bertwright.batches.formats.input_format import InputFormat, SequenceSource
from bertwright.batches.formats.item_history import ItemHistory
from bertwright.batches.formats.mixture import MixedSequences, Mixture
from bertwright.batches.formats.packed import Contiguous, Packed
from bertwright.batches.formats.pairs import SegmentPair, SentencePair, TextPair
from bertwright.batches.formats.sentence_groups import SentenceGroups
from bertwright.batches.formats.sentences import DocSentences, FullSentences
from bertwright.batches.formats.translations import TranslationPair

__all__ = [
    "ConnectedPair",
    "Contiguous",
    "ContiguousPair",
    "DialogueFormat",
    "DocSentences",
    "DocumentCrops",
    "FullSentences",
    "HalfReversed",
    "InputFormat",
    "ItemHistory",
    "MixedSequences",
    "Mixture",
    "Packed",
    "SegmentPair",
    "SentenceGroups",
    "SentencePair",
    "SequenceSource",
    "TextPair",
    "TranslationPair",
]
