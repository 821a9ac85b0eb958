"""Pairs of translations: the rows of translation language modelling (Lample and Conneau 2019)."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from bertwright.errors import UserError
from bertwright.examples.assembly.chunks import chain
from bertwright.examples.assembly.layout import annotated, languages_of
from bertwright.examples.assembly.pair_layout import longest_first
from bertwright.examples.assembly.source import Assembly, RowSource
from bertwright.examples.coordinates import Coordinates, Need, Rows
from bertwright.randomness import Counters
from bertwright.text.marks import SENTENCE_START, WORD_START

if TYPE_CHECKING:
    from bertwright.text.shards import Split
    from bertwright.text.tokenizers import Specials


class TranslationPair(Assembly):
    """[CLS] A [SEP] [CLS] B [SEP], where B translates A.

    Each side is in its language, delimiters included, and counts its positions from 0 (all of the
    pair is counted on without ``restart``). Of a pair that is too long the longer side loses its
    last pieces until both fit. ``packing`` puts consecutive pairs into one row while they fit,
    isolated from each other; without it the rest of a row is padding, which is much where the sides
    are sentences. XLM writes one delimiter for both [CLS] and [SEP], and a row for each pair.
    """

    kind: Literal["translation-pair"] = "translation-pair"
    restart: bool = True
    packing: bool = False

    @property
    def parted_by(self) -> str | None:
        return "packing" if self.packing else None

    @property
    def needs(self) -> frozenset[Need]:
        return frozenset({"translations"})

    def plan(self, split: "Split", specials: "Specials", seed: int) -> RowSource:
        second = np.asarray(split.translations, np.int64)
        if not len(second):
            raise UserError(
                f"the {split.name} split holds no translations: prepare some, as en,de=FILE,FILE"
            )
        sizes = np.diff(split.document_starts)
        kept = longest_first(sizes[second - 1], sizes[second], self.length - 4)
        stops = np.cumsum(kept[0] + kept[1] + 4)
        starts = np.append(0, stops[:-1])
        first = np.arange(len(second))
        if self.packing:
            first = chain(np.searchsorted(stops, starts + self.length, side="right"))
        bounds = np.append(first, len(second))
        return _TranslationRows(self, split, specials, second, np.stack(kept, axis=1), bounds)


@dataclass(frozen=True, slots=True, eq=False)
class _TranslationRows:
    """``second`` (P,): the document of each pair's second side; ``kept`` (P, 2): pieces of its
    sides; ``bounds`` (R + 1,): the pair at which each row begins."""

    assembly: TranslationPair
    split: "Split"
    specials: "Specials"
    second: NDArray[np.int64]
    kept: NDArray[np.int64]
    bounds: NDArray[np.int64]

    @property
    def num_rows(self) -> int:
        return len(self.bounds) - 1

    def rows(self, index: NDArray[np.int64], epoch: Counters) -> Rows:
        # One entry for every side of every pair of every row, then one for every place of a side.
        row, pair = _members(self.bounds[index], self.bounds[index + 1])
        document = np.stack([self.second[pair] - 1, self.second[pair]], axis=1).ravel()
        row, num_pieces = np.repeat(row, 2), self.kept[pair].ravel()
        begin = _restarted(num_pieces + 2, row)
        side, within = _members(np.zeros_like(num_pieces), num_pieces + 2)
        place, in_row = begin[side] + within, row[side]
        is_text = (within > 0) & (within <= num_pieces[side])

        source = self.split.document_starts[document[side]] + np.maximum(within - 1, 0)
        source = np.minimum(source, self.split.num_pieces - 1)
        pieces, marks = (found[:, 0] for found in self.split.gather(source, 1))
        edge = np.where(within == 0, self.specials.start, self.specials.end)

        shape = (len(index), self.assembly.length)

        def laid(values: NDArray[Any], otherwise: int) -> NDArray[np.int32]:
            grid = np.full(shape, otherwise, np.int32)
            grid[in_row, place] = values
            return grid

        def counted(mark: int) -> NDArray[np.int32]:
            starts = is_text & ((within == 1) | (marks & mark != 0))
            number = _restarted(starts.astype(np.int64), in_row) + starts - 1
            return laid(np.where(is_text, number, -1), -1)

        of_pair = _restarted(np.arange(len(row)) % 2, row)[side]
        position = within if self.assembly.restart else place - begin[side - side % 2]
        language = None
        if self.split.languages is not None:
            language = laid(languages_of(self.split, document)[side], 0)
        coordinates = Coordinates(
            position=laid(position, 0),
            document=laid(of_pair, -1),
            word=counted(WORD_START),
            sentence=counted(SENTENCE_START),
            language=language,
        )
        in_text = np.full(shape, -1, np.int64)
        in_text[in_row, place] = np.where(is_text, source, -1)
        coordinates = annotated(coordinates, self.split, in_text)
        special = laid(~is_text, 1) > 0
        return Rows(laid(np.where(is_text, pieces, edge), self.specials.pad), coordinates, special)


def _members(
    first: NDArray[np.int64], stop: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Of ranges: which one each member belongs to, and the members, one range after the other."""
    sizes = stop - first
    which = np.repeat(np.arange(len(sizes)), sizes)
    return which, np.arange(len(which)) - (np.cumsum(sizes) - sizes)[which] + first[which]


def _restarted(values: NDArray[np.int64], row: NDArray[np.int64]) -> NDArray[np.int64]:
    """The sum of the values before each one in its row; rows stand one after the other."""
    before = np.cumsum(values) - values
    return before - before[np.searchsorted(row, row)]
