"""Replacement of words by a masked language model's predictions.

Jiao et al. (2020, section 3.3). Their code also shows the model the whole text as a second segment,
leaves stop words and words with other characters than letters, and looks for neighbours of words of
several tokens among vectors of GloVe.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from bertwright.compression.distillation.augmentation.augmentation import (
    Augmentation,
    AugmentationFunction,
    AugmentationInputs,
)
from bertwright.core.errors import UserError
from bertwright.core.rng import integers, uniform
from bertwright.data.tokenization.tokenizer import Tokenizer
from bertwright.data.tokenization.words import word_spans
from bertwright.models.scoring.likelihood import SCORING_BATCH_TOKENS
from bertwright.models.scoring.masked_states import masked_hidden_states
from bertwright.models.text_batches import add_special_tokens, text_batches
from bertwright.models.text_model import TextModel


class MaskedLMAugmentation(Augmentation):
    """An augmentation that replaces words with probability ``replace_probability``.

    A word that is a single token is replaced by one of the model's ``num_candidates`` most likely
    predictions. A word of several tokens is replaced by one of the same number of words: those
    whose embeddings are nearest to the mean embedding of its tokens.
    """

    kind: Literal["masked"] = "masked"
    replace_probability: float = Field(default=0.4, ge=0, le=1)
    num_candidates: int = Field(default=15, ge=1, le=65_536)
    needs_augmenter: ClassVar[bool] = True

    def build(self, inputs: AugmentationInputs) -> AugmentationFunction:
        augmenter = inputs.augmenter
        if augmenter is None or not augmenter.is_masked_lm:
            raise UserError(
                "augmentation masked needs a masked language model: name a pre-trained one with "
                "--augmenter"
            )
        return _MaskedLMAugmenter(
            self, _ReplacementCandidates(augmenter, self.num_candidates), inputs.seed
        )


@dataclass(frozen=True)
class _Word:
    """The span of a word in its text, its token ids, and the index of the first one."""

    start: int
    stop: int
    token_ids: list[int]
    token_index: int


@dataclass(frozen=True)
class _MaskedLMAugmenter:
    """An augmenter that replaces words by a masked language model's candidates."""

    config: MaskedLMAugmentation
    candidates: "_ReplacementCandidates"
    seed: int

    def __call__(self, texts: Sequence[str]) -> list[list[str | None]]:
        return [
            [self._copy(text, words, candidates, n) for n in range(self.config.num_copies)]
            for text, (words, candidates) in zip(
                texts, self.candidates.words_and_candidates(texts), strict=True
            )
        ]

    def _copy(
        self, text: str, words: Sequence[_Word], candidates: Sequence[list[str]], copy_index: int
    ) -> str:
        key, indices = self.config.random_key(self.seed, text), np.arange(len(words))
        is_replaced = uniform(key, copy_index, 0, indices) < self.config.replace_probability
        sizes = np.array([max(len(options), 1) for options in candidates], np.int64)
        choices = integers(key, sizes, copy_index, 1, indices)
        for index in reversed(range(len(words))):
            if is_replaced[index] and candidates[index]:
                word = words[index]
                text = text[: word.start] + candidates[index][choices[index]] + text[word.stop :]
        return text


class _ReplacementCandidates:
    """The possible replacements of words: those tokens of a model that are whole words."""

    def __init__(self, model: TextModel, num_candidates: int) -> None:
        self._model, self._tokenizer = model, model.tokenizer
        word_tokens = _whole_word_tokens(model.tokenizer)
        self._words = list(word_tokens.values())
        self._num_candidates = min(num_candidates, len(self._words))
        self._word_token_ids = torch.tensor(
            list(word_tokens), dtype=torch.int64, device=model.device
        )
        self._embeddings = model.model.embedding_table.detach().float()

    @torch.inference_mode()
    def words_and_candidates(
        self, texts: Sequence[str]
    ) -> list[tuple[list[_Word], list[list[str]]]]:
        """Return the words of each text, and the candidates for each word."""
        encoded = [self._tokenizer.encode_with_offsets(text) for text in texts]
        words = [
            list(_split_words(text, *encoding, self._max_tokens))
            for text, encoding in zip(texts, encoded, strict=True)
        ]
        candidates = [[list[str]()] * len(text_words) for text_words in words]
        for is_single, find in ((True, self._predicted_words), (False, self._nearest_words)):
            selected = [
                (t, w)
                for t, text_words in enumerate(words)
                for w, word in enumerate(text_words)
                if (len(word.token_ids) == 1) == is_single
            ]
            inputs = [(encoded[t][0], words[t][w]) for t, w in selected]
            for (t, w), options in zip(selected, find(inputs), strict=True):
                candidates[t][w] = options
        return list(zip(words, candidates, strict=True))

    @property
    def _max_tokens(self) -> int | None:
        max_length = self._model.model.encoder.max_length
        return None if max_length is None else max_length - 2

    def _predicted_words(self, text_words: Sequence[tuple[list[int], _Word]]) -> list[list[str]]:
        """Return candidates for single-token words, given each word with its text's token ids."""
        model, specials = self._model.model, self._tokenizer.special_tokens
        assembly = model.recipe.assembly
        sequences = [
            add_special_tokens(token_ids, specials, model.encoder.max_length, assembly)
            for token_ids, _ in text_words
        ]
        candidates = [list[str]()] * len(sequences)
        for batch in text_batches(
            sequences, specials.pad, self._model.device, batch_tokens=SCORING_BATCH_TOKENS
        ):
            words = [text_words[index][1] for index in batch.indices]
            positions = torch.tensor(
                [[word.token_index + assembly.text_start] for word in words],
                device=batch.token_ids.device,
            )
            is_masked = batch.token_info.index == positions
            states = masked_hidden_states(
                model, batch.token_ids, batch.token_info, is_masked, positions, specials.mask
            )
            logits = model.logits(states[:, 0]).float().index_select(1, self._word_token_ids)
            originals = torch.tensor([word.token_ids for word in words], device=logits.device)
            logits = logits.masked_fill(self._word_token_ids == originals, -torch.inf)
            for index, options in zip(batch.indices, self._top_words(logits), strict=True):
                candidates[index] = options
        return candidates

    def _nearest_words(self, text_words: Sequence[tuple[list[int], _Word]]) -> list[list[str]]:
        """Return candidates for words of several tokens: those with the largest cosine."""
        if not text_words:
            return []
        means = torch.stack([self._embeddings[word.token_ids].mean(0) for _, word in text_words])
        candidates = F.normalize(self._embeddings[self._word_token_ids], dim=-1)
        return self._top_words(means @ candidates.T)

    def _top_words(self, scores: Tensor) -> list[list[str]]:
        """Return the words with the highest scores (N, W)."""
        values, indices = scores.topk(self._num_candidates, -1)
        return [
            [self._words[n] for n, score in zip(*top, strict=True) if score > -torch.inf]
            for top in zip(indices.tolist(), values.tolist(), strict=True)
        ]


def _whole_word_tokens(tokenizer: Tokenizer) -> dict[int, str]:
    """Return the token ids that are whole words, with their text."""
    words: dict[int, str] = {}
    for token_id in tokenizer.ids.tolist():
        text = tokenizer.decode([token_id]).strip()
        if word_spans(text) == [(0, len(text))] and text[:1].isalnum():
            # The token is decoded after another word, because byte-level tokens include a leading
            # space.
            ids, first = tokenizer.encode_pretokenized(["a", text])
            if ids[first[1] :] == [token_id]:
                words[token_id] = text
    return words


def _split_words(
    text: str, token_ids: list[int], spans: Sequence[tuple[int, int]], max_tokens: int | None
) -> Iterator[_Word]:
    """Yield the words (letters and digits) within the first ``max_tokens`` tokens of a text."""
    index = 0
    for start, stop in word_spans(text):
        while index < len(spans) and spans[index][1] <= start:
            index += 1
        end = index
        while end < len(spans) and spans[end][0] < stop:
            end += 1
        if max_tokens is not None and end > max_tokens:
            return
        # Skip words that share a token with a neighbour.
        is_inside = all(start <= a and b <= stop for a, b in spans[index:end])
        if end > index and is_inside and text[start].isalnum():
            yield _Word(start, stop, token_ids[index:end], index)
