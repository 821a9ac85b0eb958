"""Words that a masked model would write in the place of others (Jiao et al. 2020, section 3.3)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from bertwright.compression.augmentation.augmentation import Augmentation, Augmenter, Given
from bertwright.errors import UserError
from bertwright.model.hidden import states_asked
from bertwright.model.reading import read_batches, single
from bertwright.model.scoring import SCORING_BUDGET
from bertwright.model.text_model import TextModel
from bertwright.randomness import integers, uniform
from bertwright.text.tokenizers import Tokenizer
from bertwright.text.words import word_spans


class ByMaskedModel(Augmentation):
    """A word is exchanged with the chance ``exchanged``: one that is a single piece for one of
    ``candidates`` that the model would most likely write there, any other for one of as many whose
    vectors in its table are nearest to the mean of those of its own pieces."""

    kind: Literal["masked"] = "masked"
    exchanged: float = Field(default=0.4, ge=0, le=1)
    candidates: int = Field(default=15, ge=1, le=65_536)
    asks_namer: ClassVar[bool] = True

    def augmenter(self, given: Given) -> Augmenter:
        namer = given.namer
        if namer is None or not namer.fills_places:
            raise UserError(
                "augmentation masked needs a model that fills hidden places: name a pre-trained "
                "one with --namer"
            )
        return _Exchanging(self, _Candidates(namer, self.candidates), given.seed)


@dataclass(frozen=True)
class _Word:
    """From where to where a word stands in a text, its pieces, and where the first is."""

    start: int
    stop: int
    pieces: list[int]
    place: int


class _Exchanging:
    """Of :class:`ByMaskedModel`."""

    def __init__(self, choice: ByMaskedModel, candidates: "_Candidates", seed: int) -> None:
        self._choice, self._candidates, self._seed = choice, candidates, seed

    def __call__(self, texts: Sequence[str]) -> list[list[str | None]]:
        read, found = self._candidates.read(texts), list[list[str | None]]()
        for text, (words, candidates) in zip(texts, read, strict=True):
            found.append([self._copy(text, words, candidates, n) for n in range(self._copies)])
        return found

    @property
    def _copies(self) -> int:
        return self._choice.copies

    def _copy(
        self, text: str, words: Sequence[_Word], candidates: Sequence[list[str]], number: int
    ) -> str:
        draws, places = self._choice.draws(self._seed, text), np.arange(len(words))
        exchanged = uniform(draws, number, 0, places) < self._choice.exchanged
        sizes = np.array([max(len(own), 1) for own in candidates], np.int64)
        which = integers(draws, sizes, number, 1, places)
        for place in reversed(range(len(words))):
            if exchanged[place] and candidates[place]:
                word = words[place]
                text = text[: word.start] + candidates[place][which[place]] + text[word.stop :]
        return text


class _Candidates:
    """What could stand in the place of words: pieces of a model that are whole words."""

    def __init__(self, model: TextModel, number: int) -> None:
        self._model, self._tokenizer = model, model.tokenizer
        written = _whole_words(model.tokenizer)
        self._written = list(written.values())
        self._number = min(number, len(self._written))
        self._whole = torch.tensor(list(written), dtype=torch.int64, device=model.device)
        self._table = model.model.embedding.detach().float()

    @torch.inference_mode()
    def read(self, texts: Sequence[str]) -> list[tuple[list[_Word], list[list[str]]]]:
        """The words of each text, and the candidates of each word."""
        encoded = self._tokenizer.encode_spans(list(texts))
        words = [
            list(_words(text, *own, self._longest))
            for text, own in zip(texts, encoded, strict=True)
        ]
        found = [[list[str]()] * len(own) for own in words]
        for kind, asked in ((True, self._likely), (False, self._near)):
            where = [
                (text, place)
                for text, own in enumerate(words)
                for place, word in enumerate(own)
                if (len(word.pieces) == 1) == kind
            ]
            rows = [(encoded[text][0], words[text][place]) for text, place in where]
            for (text, place), candidates in zip(where, asked(rows), strict=True):
                found[text][place] = candidates
        return list(zip(words, found, strict=True))

    @property
    def _longest(self) -> int | None:
        longest = self._model.model.encoder.longest
        return None if longest is None else longest - 2

    def _likely(self, asked: Sequence[tuple[list[int], _Word]]) -> list[list[str]]:
        """Of words of one piece, each within the pieces of its text."""
        model, specials = self._model.model, self._tokenizer.specials
        rows = [single(pieces, specials, model.encoder.longest) for pieces, _ in asked]
        found = [list[str]()] * len(rows)
        for batch in read_batches(rows, specials.pad, self._model.device, budget=SCORING_BUDGET):
            words = [asked[number][1] for number in batch.numbers]
            where = torch.tensor([[word.place + 1] for word in words], device=batch.pieces.device)
            hidden = batch.coordinates.place == where
            states = states_asked(
                model, batch.pieces, batch.coordinates, hidden, where, specials.mask
            )
            logits = model.logits(states[:, 0]).float().index_select(1, self._whole)
            own = torch.tensor([word.pieces for word in words], device=logits.device)
            logits = logits.masked_fill(self._whole == own, -torch.inf)
            for number, best in zip(batch.numbers, self._best(logits), strict=True):
                found[number] = best
        return found

    def _near(self, asked: Sequence[tuple[list[int], _Word]]) -> list[list[str]]:
        """Of words of several pieces."""
        if not asked:
            return []
        own = torch.stack([self._table[word.pieces].mean(0) for _, word in asked])
        whole = F.normalize(self._table[self._whole], dim=-1)
        return self._best(F.normalize(own, dim=-1) @ whole.T)

    def _best(self, scores: Tensor) -> list[list[str]]:
        """The words of the highest of scores (N, W)."""
        found = scores.topk(self._number, -1)
        return [
            [self._written[n] for n, s in zip(which, values, strict=True) if s > -torch.inf]
            for which, values in zip(found.indices.tolist(), found.values.tolist(), strict=True)
        ]


def _whole_words(tokenizer: Tokenizer) -> dict[int, str]:
    """The pieces that are words by themselves, as they are written."""
    found: dict[int, str] = {}
    for piece in tokenizer.ids.tolist():
        written = tokenizer.decode([piece]).strip()
        whole = word_spans(written) == [(0, len(written))] and written[:1].isalnum()
        # Behind another word, because pieces of bytes hold the space before them.
        if whole:
            ids, first = tokenizer.words(["a", written])
            if ids[first[1] :] == [piece]:
                found[piece] = written
    return found


def _words(
    text: str, pieces: list[int], spans: Sequence[tuple[int, int]], longest: int | None
) -> Iterator[_Word]:
    """Those of a text that are made of letters and digits, up to the longest row."""
    place = 0
    for start, stop in word_spans(text):
        while place < len(spans) and spans[place][1] <= start:
            place += 1
        end = place
        while end < len(spans) and spans[end][0] < stop:
            end += 1
        if longest is not None and end > longest:
            return
        # A piece that reaches beyond the word is none of its own.
        apart = all(start <= a and b <= stop for a, b in spans[place:end])
        if end > place and apart and text[start].isalnum():
            yield _Word(start, stop, pieces[place:end], place)
