"""Texts as inputs of analyses: tokens, the word of each token, and categories of positions."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bertwright.analysis.core.model import AnalysedModel
from bertwright.batches.formats.arrangement.text_layout import truncate_longest_first
from bertwright.core.errors import UserError
from bertwright.data.readers.text_lines import format_suffix, read_lines
from bertwright.models.text_batches import TextBatch, text_batches
from bertwright.modules.token_tensors import TokenInfo
from bertwright.tasks.example_encoder import ExampleEncoder
from bertwright.tasks.formats.dependency_trees import DependencyTree, annotate_entities, read_trees
from bertwright.tasks.formats.examples import Example, TaggedSentence
from bertwright.tasks.formats.tagged_sentences import TaggedSentenceReader

TokenCategory = Literal["opening", "separator", "punctuation", "first"]
"""Categories of positions: the special token that opens a sequence, or in XLNet closes it; special
tokens that end a text; full stops and commas (Clark et al. 2019); the first token of a word."""

TOKEN_CATEGORIES: tuple[TokenCategory, ...] = get_args(TokenCategory)

PUNCTUATION = (".", ",")

SentenceWords = tuple[str, ...]
SourceText = Example | TaggedSentence | DependencyTree


@dataclass(frozen=True)
class AnalysedText:
    """One encoded sequence.

    Attributes:
        token_ids: (T,) token ids, special tokens included.
        segment_ids: (T,) text of a pair that each token belongs to.
        has_segments: True if the encoder reads segment ids.
        word_ids: (T,) word of each token, -1 for special tokens.
        words: Words given by the source, or else decoded from tokens.
        raw_texts: Each text as written, up to the truncation.
        category_masks: (T,) bool for each category.
        source: The text that was encoded.
    """

    token_ids: list[int]
    segment_ids: list[int]
    has_segments: bool
    word_ids: NDArray[np.int64]
    words: tuple[str, ...]
    raw_texts: tuple[str, ...]
    category_masks: dict[TokenCategory, NDArray[np.bool_]]
    source: SourceText

    def __len__(self) -> int:
        return len(self.token_ids)

    @property
    def tree(self) -> DependencyTree:
        """The dependency tree of the source; only for analyses that require trees."""
        assert isinstance(self.source, DependencyTree)
        return self.source

    @property
    def tags(self) -> tuple[str, ...]:
        """Part-of-speech tags of the words, from the tree."""
        return self.tree.tags[: len(self.words)]

    @property
    def is_truncated(self) -> bool:
        """True if words of the source are missing because of the maximum length."""
        parts = _source_parts(self.source)
        return list(self.raw_texts) != [p if isinstance(p, str) else " ".join(p) for p in parts]


def read_source_texts(path: Path) -> list[SourceText]:
    """Read the trees of a CoNLL-U file, or one text per line; a tab separates pairs.

    Errors: UserError with file and line for unreadable content, and for a file without texts.
    """
    if format_suffix(path) == ".conllu":
        return [*read_trees(path)]
    texts = _parse_lines(
        (f"{path} line {line_number}", line) for line_number, line in read_lines(path)
    )
    if not texts:
        raise UserError(f"{path} holds no texts")
    return texts


def add_entities(texts: Sequence[SourceText], path: Path) -> list[SourceText]:
    """Add the entity tags of a file with columns to the trees with the same words.

    Errors: UserError with file and line for unreadable content, and if there are no trees, or none
    has the words of a tagged sentence.
    """
    trees = [text for text in texts if isinstance(text, DependencyTree)]
    if not trees:
        raise UserError(f"{path} tags the words of trees: give a CoNLL-U file as the data")
    return [*annotate_entities(trees, TaggedSentenceReader().read(path))]


def parse_source_texts(lines: Sequence[str]) -> list[SourceText]:
    """Parse texts from the command line; a tab separates pairs.

    Errors: UserError for an empty text.
    """
    if not all(line.strip() for line in lines):
        raise UserError("a text is empty: type some words")
    return _parse_lines(("", line) for line in lines)


def _parse_lines(lines: Iterable[tuple[str, str]]) -> list[SourceText]:
    """Parse lines with their locations; empty lines are skipped."""
    texts: list[SourceText] = []
    for location, line in lines:
        first, _, second = line.partition("\t")
        if first.strip():
            texts.append(Example(first, second or None, location=location))
    return texts


def encode_texts(
    model: AnalysedModel, texts: Sequence[SourceText], max_length: int = 128
) -> list[AnalysedText]:
    """Encode texts and pairs.

    They are truncated to ``max_length`` tokens as in fine-tuning; a partly truncated word is
    dropped.
    """
    recipe, model_length = model.text_model.model.recipe, model.encoder.max_length
    encoder = ExampleEncoder.from_recipe(
        recipe, model.tokenizer, model_length, min(max_length, model_length or max_length)
    )
    return [_encode_text(model, encoder, text) for text in texts]


def encode_sentences(
    model: AnalysedModel, sentences: Iterable[SentenceWords], max_length: int = 128
) -> list[AnalysedText]:
    """Encode sentences that are already split into words."""
    return encode_texts(model, [TaggedSentence(words) for words in sentences], max_length)


def encode_nonempty_texts(
    model: AnalysedModel, texts: Sequence[SourceText], max_length: int = 128
) -> list[AnalysedText]:
    """Encode the texts with at least one word; control characters do not count as words.

    Errors: UserError if no text has a word.
    """
    encoded = [text for text in encode_texts(model, texts, max_length) if text.words]
    if not encoded:
        raise UserError(f"no text has a word that fits into {max_length} tokens of {model.name}")
    return encoded


def has_several_tokens(text: AnalysedText) -> bool:
    """Return True if at least two tokens remain after masking one."""
    return int((text.word_ids >= 0).sum()) > 2


def model_mismatch(
    model: AnalysedModel, other_model: AnalysedModel, texts: Sequence[AnalysedText]
) -> str | None:
    """Return why two models cannot be compared on these texts, or None if they can."""
    for text in texts:
        words = list(text.words)
        if other_model.tokenizer.encode_pretokenized(words) != model.tokenizer.encode_pretokenized(
            words
        ):
            return (
                f"{other_model.name} tokenises the texts differently from {model.name}: compare "
                f"models with the same vocabulary"
            )
    if model.heads_per_layer != other_model.heads_per_layer:
        return (
            f"{other_model.name} has {other_model.size_description}, {model.name} "
            f"{model.size_description}: compare models of the same size"
        )
    return None


def token_batches(
    model: AnalysedModel, texts: Sequence[AnalysedText], batch_tokens: int
) -> Iterator[TextBatch]:
    """Yield padded batches of at most ``batch_tokens`` tokens, longest texts first."""
    return text_batches(
        [text.token_ids for text in texts],
        model.tokenizer.special_tokens.pad,
        model.text_model.device,
        [text.segment_ids for text in texts] if texts and texts[0].has_segments else None,
        batch_tokens,
    )


def texts_digest(texts: Sequence[AnalysedText]) -> str:
    """Return a digest of everything that analyses read from the texts.

    That is their tokens and words, and the trees, tags and labels of their sources.
    """
    digest = hashlib.sha256()
    for text in texts:
        # Category masks follow from tokens and words; the location of a source is irrelevant.
        source = {name: value for name, value in vars(text.source).items() if name != "location"}
        fields = [
            text.token_ids,
            text.segment_ids,
            text.has_segments,
            text.word_ids.tolist(),
            text.words,
        ]
        digest.update(json.dumps([*fields, type(text.source).__name__, source]).encode() + b"\n")
    return digest.hexdigest()[:16]


def _encode_text(model: AnalysedModel, encoder: ExampleEncoder, text: SourceText) -> AnalysedText:
    sources = _source_parts(text)
    parts = [_tokenize_words(model, part) for part in sources]
    budget = encoder.max_length - 2 - encoder.num_separators * (len(parts) - 1)
    kept = [
        _truncate_words(part, most)
        for part, most in zip(parts, _token_budgets(parts, budget), strict=True)
    ]
    token_ids, segments = encoder.join_texts([[i for _, ids in part for i in ids] for part in kept])
    word_ids, words = np.full(len(token_ids), -1), list[str]()
    position = encoder.text_start
    for part in kept:
        for word, ids in part:
            word_ids[position : position + len(ids)] = len(words)
            words.append(word)
            position += len(ids)
        position += encoder.num_separators
    raw = tuple(
        source if part == whole and isinstance(source, str) else _raw_text(model, source, part)
        for source, whole, part in zip(sources, parts, kept, strict=True)
    )
    masks = _category_masks(word_ids, words, 0 if encoder.text_start else len(word_ids) - 1)
    return AnalysedText(
        token_ids, segments, encoder.has_segments, word_ids, tuple(words), raw, masks, text
    )


def _source_parts(text: SourceText) -> list[str | tuple[str, ...]]:
    if isinstance(text, TaggedSentence | DependencyTree):
        return [text.words]
    return [text.text] if text.pair is None else [text.text, text.pair]


def _tokenize_words(
    model: AnalysedModel, part: str | tuple[str, ...]
) -> list[tuple[str, list[int]]]:
    """Return the words of a text, each with its token ids."""
    tokenizer = model.tokenizer
    if isinstance(part, str):
        ids, starts = tokenizer.encode_with_word_starts(part)
        starts = [0, *starts[1:]] if ids else []
        words = [ids[begin:end] for begin, end in pairwise([*starts, len(ids)])]
        return [(tokenizer.decode(word_ids).strip(), word_ids) for word_ids in words]
    ids, starts = tokenizer.encode_pretokenized(list(part))
    bounds = pairwise([*starts, len(ids)])
    return [(word, ids[begin:end]) for word, (begin, end) in zip(part, bounds, strict=True)]


def _raw_text(
    model: AnalysedModel, part: str | tuple[str, ...], words: list[tuple[str, list[int]]]
) -> str:
    """Return a text up to the end of the last of these words."""
    if not isinstance(part, str):
        return " ".join(part[: len(words)])
    _, spans = model.tokenizer.encode_with_offsets(part)
    number = sum(len(ids) for _, ids in words)
    return part[: spans[number - 1][1]] if number else ""


def _token_budgets(parts: Sequence[list[tuple[str, list[int]]]], num_tokens: int) -> Sequence[int]:
    """Return the number of tokens to keep of each text; pairs are truncated as in fine-tuning."""
    if len(parts) == 1:
        return [num_tokens]
    first, second = (sum(len(ids) for _, ids in part) for part in parts)
    return [int(budget) for budget in truncate_longest_first(first, second, num_tokens)]


def _truncate_words(
    words: list[tuple[str, list[int]]], num_tokens: int
) -> list[tuple[str, list[int]]]:
    ends = accumulate(len(ids) for _, ids in words)
    return [word for word, end in zip(words, ends, strict=True) if end <= num_tokens]


def _category_masks(
    word_ids: NDArray[np.int64], words: Sequence[str], opening_position: int
) -> dict[TokenCategory, NDArray[np.bool_]]:
    is_punctuation = np.array([*(word in PUNCTUATION for word in words), False])
    opening = np.arange(len(word_ids)) == opening_position
    return {
        "opening": opening,
        "separator": (word_ids < 0) & ~opening,
        "punctuation": is_punctuation[word_ids],
        "first": (word_ids >= 0) & (word_ids != np.concatenate([[-1], word_ids[:-1]])),
    }


def encoder_inputs(model: AnalysedModel, text: AnalysedText) -> tuple[Tensor, TokenInfo]:
    """Return the token ids (1, T) and token info that the encoder reads."""
    device = model.text_model.device
    token_ids = torch.tensor([text.token_ids], device=device)
    plain = TokenInfo.from_token_ids(token_ids)
    if not text.has_segments:
        return token_ids, plain
    segments = torch.tensor([text.segment_ids], device=device)
    return token_ids, TokenInfo(plain.index, segment_ids=segments)
