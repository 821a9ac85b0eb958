"""Encode examples as token sequences: texts, pairs, words with positions, texts in windows."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from bertwright.batches.formats import InputFormat
from bertwright.batches.formats.arrangement.text_layout import truncate_longest_first
from bertwright.batches.formats.pairs import TextPair
from bertwright.batches.word_windows import word_windows
from bertwright.core.errors import UserError
from bertwright.data.tokenization.tokenizer import Tokenizer
from bertwright.modules.attention.mask import get_global_segment
from bertwright.recipes import Recipe
from bertwright.tasks.formats.examples import (
    Example,
    ExtractiveQuestion,
    TaggedSentence,
    TaskExample,
)

DEFAULT_MAX_LENGTH = 512
"""Default maximum sequence length, if the encoder allows it."""


@dataclass(frozen=True)
class TaskSequence:
    """One sequence, with special tokens.

    Attributes:
        example_index: index of its example.
        segment_ids: segment of each token; None if the encoder has no segments.
        positions: output positions; empty if the sequence is pooled.
        first_word: index in the example of the first word with an output position; a long sentence
            has several sequences.
        offsets: for each position after the first, the character range (start, stop) of its token
            in the text.
        text_offsets: the same for all tokens of the text, shared by its windows.
        first_token: for a window, the index of its first token in the text.
        num_truncated: number of tokens that are in no sequence; of windows, stated for the first.
        document_ids: for each token, the text it belongs to, if a siamese head keeps texts from
            attending to each other; else None.
        target_ids: tokens that a decoder predicts, with the end token; empty if there are none.
    """

    token_ids: list[int]
    example_index: int
    segment_ids: list[int] | None = None
    positions: tuple[int, ...] = ()
    first_word: int = 0
    offsets: tuple[tuple[int, int], ...] = ()
    text_offsets: Sequence[tuple[int, int]] = ()
    first_token: int = 0
    num_truncated: int = 0
    document_ids: list[int] | None = None
    target_ids: tuple[int, ...] = ()


@dataclass(frozen=True)
class ExampleEncoder:
    """Encoding of texts as the inputs of an encoder.

    Attributes:
        num_separators: number of separator tokens between the texts of a pair.
        separator_segment: segment of these separators: 0, as in BERT; 1 if the first text has
            global attention that excludes them (Longformer).
        has_segments: whether the encoder distinguishes the texts of a pair by segment.
        is_siamese: whether the texts of a pair are encoded independently.
        input_format: the special tokens around texts; one at the end is in the last text's segment.
    """

    tokenizer: Tokenizer
    input_format: InputFormat
    max_length: int
    num_separators: int
    separator_segment: int
    has_segments: bool
    is_siamese: bool = False

    @staticmethod
    def from_recipe(
        recipe: Recipe,
        tokenizer: Tokenizer,
        encoder_max_length: int | None,
        max_length: int | None = None,
        is_siamese: bool = False,
    ) -> "ExampleEncoder":
        """Return the encoding of a recipe.

        The default ``max_length`` is ``encoder_max_length``, 512 at most.
        """
        limit = (
            min(encoder_max_length or DEFAULT_MAX_LENGTH, DEFAULT_MAX_LENGTH)
            if max_length is None
            else max_length
        )
        encoder, num_separators = recipe.encoder, num_pair_separators(recipe, tokenizer)
        separator_segment = (
            0 if encoder.has_segments or get_global_segment(encoder.visibility) == 1 else 1
        )
        return ExampleEncoder(
            tokenizer,
            recipe.assembly,
            limit,
            num_separators,
            separator_segment,
            encoder.distinguishes_segments,
            is_siamese,
        )

    @property
    def text_start(self) -> int:
        """Return the position of the first token of a text."""
        return self.input_format.text_start

    def encode(
        self,
        examples: Sequence[TaskExample],
        stride: int | None = None,
        example_indices: Sequence[int] | None = None,
    ) -> list[TaskSequence]:
        """Return the sequences of all examples, in their order.

        With a ``stride``, the last text of a long example is encoded in windows that start
        ``stride`` tokens apart; the text gets at least half of each sequence. Windows of words
        start at words, and each word has one output position. ``example_indices`` replace the
        indices of the examples.
        """
        indices = range(len(examples)) if example_indices is None else example_indices
        texts = [e for e in examples if isinstance(e, Example)]
        if len(texts) != len(examples):
            return [
                sequence
                for n, e in zip(indices, examples, strict=True)
                for sequence in self._encode_words(n, e, stride)
            ]
        if self.is_siamese and (single := next((e for e in texts if e.pair is None), None)):
            raise UserError(
                f"{single.location or 'an example'}: head.pooling: siamese compares two texts, and "
                f"this is one: name the column of the second (pair), or choose another head.pooling"
            )
        firsts = self.tokenizer.encode_batch([e.text for e in texts])
        seconds = self.tokenizer.encode_batch([e.pair or "" for e in texts])
        return [
            sequence
            for n, e, a, b in zip(indices, texts, firsts, seconds, strict=True)
            for sequence in self._encode_texts(n, [a] if e.pair is None else [a, b], stride)
        ]

    def encode_texts(
        self,
        texts: Sequence[str],
        max_length: int | None = None,
        prefix_ids: Sequence[int] = (),
    ) -> list[TaskSequence]:
        """Return one sequence for every text, with its index as ``example_index``.

        Sequences have at most ``max_length`` tokens, by default those of the encoder.
        ``prefix_ids`` stand between the start token and every text.
        """
        limit = min(max_length or self.max_length, self.max_length)
        available = max(limit - 2 - len(prefix_ids), 0)
        return [
            self._build_sequence(
                index, [[*prefix_ids, *ids[:available]]], max(len(ids) - available, 0)
            )
            for index, ids in enumerate(self.tokenizer.encode_batch(list(texts)))
        ]

    def encode_questions(
        self, questions: Sequence[ExtractiveQuestion], stride: int, max_question_length: int
    ) -> list[TaskSequence]:
        """Encode each question before its text, which is split into windows.

        The output positions are the start token and the tokens of the text. The text gets at least
        half of a sequence.
        """
        question_ids = self.tokenizer.encode_batch([q.question for q in questions])
        texts = dict.fromkeys(q.text for q in questions)
        encoded_texts = {text: self.tokenizer.encode_with_offsets(text) for text in texts}
        available = self.max_length - 2 - self.num_separators
        max_question_length = min(max_question_length, available // 2)
        sequences: list[TaskSequence] = []
        for index, (question, ids) in enumerate(zip(questions, question_ids, strict=True)):
            text_ids, offsets = encoded_texts[question.text]
            first = ids[:max_question_length]
            text_start = self.text_start + len(first) + self.num_separators
            for start, stop in _window_bounds(len(text_ids), available - len(first), stride):
                sequence = self._build_sequence(index, [first, text_ids[start:stop]])
                is_last = self.input_format.ends_with_start_token
                start_token = len(sequence.token_ids) - 1 if is_last else 0
                sequences.append(
                    replace(
                        sequence,
                        positions=(start_token, *range(text_start, text_start + stop - start)),
                        offsets=tuple(offsets[start:stop]),
                        text_offsets=offsets,
                        first_token=start,
                        num_truncated=0 if start else len(ids) - len(first),
                    )
                )
        return sequences

    def _encode_texts(
        self, example_index: int, token_ids: list[list[int]], stride: int | None
    ) -> Iterator[TaskSequence]:
        """Return the sequences of a text or of a text pair."""
        num_separators = 2 if self.is_siamese else self.num_separators
        available = self.max_length - 2 - (num_separators if len(token_ids) > 1 else 0)
        length = sum(map(len, token_ids))
        if length <= available:
            yield self._build_sequence(example_index, token_ids)
        elif stride is None:
            if len(token_ids) == 1:
                kept = [token_ids[0][:available]]
            else:
                first, second = token_ids
                lengths = truncate_longest_first(len(first), len(second), available)
                kept = [ids[:limit] for ids, limit in zip(token_ids, lengths, strict=True)]
            yield self._build_sequence(example_index, kept, length - available)
        else:
            *first_texts, last_text = token_ids
            min_window = min(len(last_text), available // 2)
            before = [ids[: available - min_window] for ids in first_texts]
            length_before = sum(map(len, before))
            num_truncated = sum(map(len, first_texts)) - length_before
            window_size = available - length_before
            for start, stop in _window_bounds(len(last_text), window_size, stride):
                yield self._build_sequence(
                    example_index,
                    [*before, last_text[start:stop]],
                    0 if start else num_truncated,
                )

    def join_texts(self, token_ids: Sequence[list[int]]) -> tuple[list[int], list[int]]:
        """Join one or two texts with special tokens: token ids and segment ids."""
        joined, segment_ids = list(token_ids[0]), [0] * len(token_ids[0])
        for ids in token_ids[1:]:
            joined += [self.tokenizer.special_tokens.end] * self.num_separators + ids
            segment_ids += [self.separator_segment] * self.num_separators + [1] * len(ids)
        last = len(token_ids) - 1
        joined = self.input_format.add_special_tokens(joined, self.tokenizer.special_tokens)
        if self.input_format.ends_with_start_token:
            return joined, [*segment_ids, last, last]
        return joined, [0, *segment_ids, last]

    def _build_sequence(
        self, example_index: int, token_ids: Sequence[list[int]], num_truncated: int = 0
    ) -> TaskSequence:
        document_ids = None
        if self.is_siamese:
            texts = [self.join_texts([ids])[0] for ids in token_ids]
            joined = [token for text in texts for token in text]
            segment_ids = [0] * len(joined)
            document_ids = [index for index, text in enumerate(texts) for _ in text]
        else:
            joined, segment_ids = self.join_texts(token_ids)
        return TaskSequence(
            joined,
            example_index,
            segment_ids if self.has_segments else None,
            num_truncated=num_truncated,
            document_ids=document_ids,
        )

    def _encode_words(
        self, example_index: int, sentence: TaskExample, stride: int | None
    ) -> Iterator[TaskSequence]:
        assert isinstance(sentence, TaggedSentence)
        available = self.max_length - 2
        ids, starts = self.tokenizer.encode_pretokenized(list(sentence.words))
        bounds = [*starts, len(ids)]
        for window in word_windows(starts, len(ids), available, stride):
            begin, end = bounds[window.words.start], bounds[window.words.stop]
            # A word longer than a sequence is truncated.
            sequence = self._build_sequence(example_index, [ids[begin:end][:available]])
            positions = tuple(self.text_start + starts[word] - begin for word in window.tagged)
            yield replace(sequence, positions=positions, first_word=window.tagged.start)


def num_truncated_tokens(sequences: Sequence[TaskSequence]) -> dict[int, int]:
    """Return the number of truncated tokens by example index; empty if nothing was truncated."""
    totals = Counter[int]()
    for sequence in sequences:
        totals[sequence.example_index] += sequence.num_truncated
    return {index: total for index, total in totals.items() if total}


def document_ids_of(sequences: Sequence[TaskSequence]) -> list[list[int]] | None:
    """Return the document ids of siamese sequences; None for others."""
    return [s.document_ids for s in sequences if s.document_ids is not None] or None


def num_pair_separators(recipe: Recipe, tokenizer: Tokenizer) -> int:
    """Return the number of separators between the texts of a pair.

    The recipe's pair assembly determines it, else the tokenizer's post-processor; without one it is
    two for RoBERTa's special tokens, one for BERT's.
    """
    assembly = recipe.assembly.for_evaluation
    if isinstance(assembly, TextPair):
        return assembly.separators
    num_added = tokenizer.backend.num_special_tokens_to_add
    if num_separators := num_added(is_pair=True) - num_added(is_pair=False):
        return num_separators
    return 2 if tokenizer.id_to_token(tokenizer.special_tokens.end) == "</s>" else 1


def _window_bounds(size: int, window_size: int, stride: int) -> Iterator[tuple[int, int]]:
    """Return start and end of each window; windows leave no gaps and the last reaches the end."""
    start = 0
    while start + window_size < size:
        yield start, start + window_size
        start += min(stride, window_size)
    yield start, size
