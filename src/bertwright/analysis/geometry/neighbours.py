"""Nearest neighbours of a word in context over a corpus (Peters et al. 2018, table 4)."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise

import numpy as np
import torch
from torch import Tensor

from bertwright.core.config import quote
from bertwright.core.errors import UserError
from bertwright.data.tokenization.sentences import sentence_ends
from bertwright.data.tokenization.words import word_spans
from bertwright.models.layer_selection import LayerSelection, select_layers
from bertwright.models.text_batches import add_special_tokens, text_batches
from bertwright.models.text_model import TextModel

SENTENCES_PER_CHUNK = 512
"""Number of sentences that are sorted by length into batches together."""

_MARKED = re.compile(r"\[([^][]*)\]")


@dataclass(frozen=True)
class MarkedWord:
    """A word (or phrase) in a sentence: the characters [start, stop) of ``text``."""

    text: str
    start: int
    stop: int

    @staticmethod
    def parse(marked_text: str) -> "MarkedWord":
        """Parse a sentence with one word in brackets: ``He wrote a [play] in five acts``.

        Errors: UserError unless exactly one word is in brackets.
        """
        matches = list(_MARKED.finditer(marked_text))
        text = _MARKED.sub(r"\1", marked_text)
        if len(matches) != 1 or not matches[0][1].strip() or "[" in text or "]" in text:
            problem = f"{len(matches)} words" if len(matches) != 1 else "an empty or nested word"
            raise UserError(
                f"mark exactly one word by brackets, as in 'He wrote a [play] in five acts': "
                f"{quote(marked_text)} marks {problem}"
            )
        return MarkedWord(text, matches[0].start(), matches[0].end() - 2)

    @property
    def word(self) -> str:
        """Return the word."""
        return self.text[self.start : self.stop]

    @property
    def marked_text(self) -> str:
        """Return the sentence with the word in brackets."""
        return f"{self.text[: self.start]}[{self.word}]{self.text[self.stop :]}"


@dataclass(frozen=True)
class Neighbour:
    """A word in a sentence of the corpus, with its cosine similarity to the query."""

    occurrence: MarkedWord
    similarity: float


@dataclass(frozen=True)
class CorpusNeighbours:
    """The nearest neighbours of each query, most similar first, and the size of the corpus."""

    neighbours: list[list[Neighbour]]
    num_sentences: int
    num_words: int


@dataclass(frozen=True)
class WordVectorsOfChunk:
    """Words (N) in sentences, and their unit vectors (N, D)."""

    occurrences: list[MarkedWord]
    vectors: Tensor


def find_neighbours(
    model: TextModel,
    queries: Sequence[MarkedWord],
    texts: Iterable[str],
    number: int = 10,
    layers: str = "last",
    same_word: bool = False,
) -> CorpusNeighbours:
    """Return the ``number`` words of a corpus whose hidden states are most similar to each query.

    The vector of a word is the mean of the hidden states of its tokens, in ``layers`` as in
    :meth:`TextModel.embed`; similarity is the cosine. Sentences that equal the query are left out,
    and repeated ones count once. With ``same_word`` only occurrences of the query's word are
    compared, ignoring case. Memory does not grow with the corpus. Errors: UserError for a query
    beyond the maximum length, and for a corpus without words.
    """
    selection = select_layers(layers, "concat", model.model.recipe.encoder.hidden_widths)
    vectors = _query_vectors(model, selection, queries)
    nearest: list[dict[str, Neighbour]] = [{} for _ in queries]
    num_sentences = num_words = 0
    sentences = iter_sentences(texts)
    while chunk := list(islice(sentences, SENTENCES_PER_CHUNK)):
        num_sentences += len(chunk)
        words = _corpus_words(model, selection, chunk)
        num_words += len(words.occurrences)
        if not words.occurrences:
            continue
        similarities = vectors @ words.vectors.T
        for index, query in enumerate(queries):
            for neighbour in _nearest_in_chunk(
                similarities[index], words, query, number, same_word
            ):
                nearest[index].setdefault(neighbour.occurrence.marked_text, neighbour)
            ranked = sorted(nearest[index].items(), key=lambda item: -item[1].similarity)
            nearest[index] = dict(ranked[:number])
    if not num_words:
        raise UserError("the corpus has no words: name other files")
    return CorpusNeighbours([[*n.values()] for n in nearest], num_sentences, num_words)


def find_static_neighbours(
    model: TextModel, word: str, number: int = 10
) -> list[tuple[str, float]]:
    """Return the tokens whose embeddings are most similar to those of a word, by cosine.

    The embedding of a word of several tokens is their mean. The word itself and special tokens are
    left out. The list is empty if the vocabulary does not hold the word.
    """
    tokenizer, embeddings = model.tokenizer, model.model.encoder.embeddings
    special_tokens = tokenizer.special_tokens.all
    word_ids = tokenizer.encode(word)
    if not word_ids or tokenizer.special_tokens.unknown in word_ids:
        return []
    candidates = np.setdiff1d(tokenizer.ids, [*special_tokens, *word_ids])
    with torch.inference_mode():
        ids = torch.from_numpy(candidates).to(model.device)
        table = torch.nn.functional.normalize(embeddings.look_up(ids).float(), dim=-1)
        query = embeddings.look_up(torch.tensor(word_ids, device=model.device)).float().mean(0)
        similarities = table @ torch.nn.functional.normalize(query, dim=0)
    best = similarities.topk(min(number, len(candidates)))
    return [
        (tokenizer.decode([int(candidates[index])]).strip(), float(similarity))
        for similarity, index in zip(best.values.tolist(), best.indices.tolist(), strict=True)
    ]


def iter_sentences(texts: Iterable[str]) -> Iterator[str]:
    """Yield the sentences of texts, without white space around them."""
    for text in texts:
        for start, stop in pairwise([0, *sentence_ends(text), len(text)]):
            if sentence := text[start:stop].strip():
                yield sentence


def _query_vectors(
    model: TextModel, layers: LayerSelection, queries: Sequence[MarkedWord]
) -> Tensor:
    """Return the unit vectors of the queries, (Q, D)."""
    words = _words_in_sentences(model, layers, [[query] for query in queries])
    for query in queries:
        if query not in words.occurrences:
            raise UserError(
                f"{quote(query.marked_text)}: the marked word has no token within the model's "
                f"{model.max_length} tokens: shorten the sentence"
            )
    order = [words.occurrences.index(query) for query in queries]
    return words.vectors[order]


def _corpus_words(
    model: TextModel, layers: LayerSelection, sentences: Sequence[str]
) -> WordVectorsOfChunk:
    """Return all words of sentences, without punctuation marks."""
    words = [
        [
            MarkedWord(sentence, start, stop)
            for start, stop in word_spans(sentence)
            if sentence[start].isalnum()
        ]
        for sentence in sentences
    ]
    return _words_in_sentences(model, layers, [row for row in words if row])


@torch.inference_mode()
def _words_in_sentences(
    model: TextModel, layers: LayerSelection, sentences: Sequence[Sequence[MarkedWord]]
) -> WordVectorsOfChunk:
    """Return the words of each sentence with their vectors, leaving out truncated words."""
    specials, max_length = model.tokenizer.special_tokens, model.max_length
    encodings = [model.tokenizer.encode_with_offsets(words[0].text) for words in sentences]
    assembly = model.model.recipe.assembly
    token_ids = [add_special_tokens(ids, specials, max_length, assembly) for ids, _ in encodings]
    occurrences: list[MarkedWord] = []
    vectors: list[Tensor] = []
    for batch in text_batches(token_ids, specials.pad, model.device):
        states = model.hidden_states(layers, batch).float()
        owners: list[int] = []
        positions: list[int] = []
        first = len(occurrences)
        for row, index in enumerate(batch.indices.tolist()):
            offsets = encodings[index][1]
            for word, tokens in zip(
                sentences[index], _token_ranges(offsets, sentences[index]), strict=True
            ):
                if tokens and tokens.stop < batch.lengths[row] - 1:
                    first_position = row * states.shape[1] + assembly.text_start
                    positions += [first_position + token for token in tokens]
                    owners += [len(occurrences) - first] * len(tokens)
                    occurrences.append(word)
        sums = states.new_zeros(len(occurrences) - first, states.shape[2])
        index_tensor = torch.tensor(positions, dtype=torch.int64, device=states.device)
        owner_tensor = torch.tensor(owners, dtype=torch.int64, device=states.device)
        sums.index_add_(0, owner_tensor, states.flatten(0, 1)[index_tensor])
        # The direction of a mean is that of the sum.
        vectors.append(torch.nn.functional.normalize(sums, dim=-1))
    return WordVectorsOfChunk(
        occurrences, torch.cat(vectors) if vectors else torch.empty(0, layers.width)
    )


def _token_ranges(offsets: Sequence[tuple[int, int]], words: Sequence[MarkedWord]) -> list[range]:
    """Return the tokens that overlap each word."""
    starts, stops = np.array(offsets, np.int64).reshape(-1, 2).T
    firsts = np.searchsorted(stops, [word.start for word in words], side="right")
    ends = np.searchsorted(starts, [word.stop for word in words], side="left")
    return [range(first, end) for first, end in zip(firsts.tolist(), ends.tolist(), strict=True)]


def _nearest_in_chunk(
    similarities: Tensor, words: WordVectorsOfChunk, query: MarkedWord, number: int, same_word: bool
) -> Iterator[Neighbour]:
    """Yield at least the ``number`` nearest words of a chunk that may be neighbours."""
    num_yielded = 0
    for index in similarities.argsort(descending=True).tolist():
        occurrence = words.occurrences[index]
        is_other_word = occurrence.word.casefold() != query.word.casefold()
        if occurrence.text == query.text or (same_word and is_other_word):
            continue
        yield Neighbour(occurrence, float(similarities[index]))
        num_yielded += 1
        if num_yielded == number:
            return
