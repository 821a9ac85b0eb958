"""Deterministic training of tokenizer vocabularies.

Words are counted on all cores, and memory grows only with the number of distinct words. The
library's trainer receives the counted words in a fixed order. The functions here remove its
remaining non-determinism.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import tokenizers as library
from pydantic import ValidationError
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

from bertwright.core.config import to_user_error
from bertwright.core.errors import UserError
from bertwright.core.files import atomic_folder, require_new_folder
from bertwright.core.hardware import num_cores
from bertwright.core.parallel import chunk_texts, map_in_order
from bertwright.data.deduplication import drop_duplicates
from bertwright.data.document import Document, ReadCounts
from bertwright.data.languages import upsampling_factors
from bertwright.data.readers.sources import find_sources
from bertwright.data.readers.tables import read_documents
from bertwright.data.tokenization.pretokens import pretoken_pattern
from bertwright.data.tokenization.tokenizer import (
    ByteBpeConfig,
    Tokenizer,
    TokenizerConfig,
    UnigramConfig,
    WordLevelConfig,
    WordPieceConfig,
)
from bertwright.data.tokenization.unigram import learn_unigram_tokens

_MIN_VOCAB_SIZE = 16
"""Minimum size to train, without sentinels; a text may have fewer tokens."""

BERT_SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
ROBERTA_SPECIAL_TOKENS = ("<s>", "<pad>", "</s>", "<unk>")
ROBERTA_MASK_TOKEN = "<mask>"

MAX_TRAINING_WORDS = 10_000_000
"""Maximum total of word counts; counts of a larger text are scaled down to it."""
MAX_DISTINCT_WORDS = 2_000_000
"""Maximum number of distinct words; beyond it, words seen once are dropped while counting."""
CHARACTER_COVERAGE = 0.9999
"""Fraction of the text that characters with a token cover; other characters are unknown."""

_SEPARATOR = "\0"


def train_tokenizer(
    texts: Iterable[str], config: TokenizerConfig, num_workers: int = 1
) -> Tokenizer:
    """Train a tokenizer on texts (one document each, without NUL).

    Errors: UserError if the texts contain no word.
    """
    return _train(map(Document, texts), config, num_workers, alpha=1.0)


def _train(
    documents: Iterable[Document], config: TokenizerConfig, num_workers: int, alpha: float
) -> Tokenizer:
    if type(config) not in _TRAINERS:
        raise UserError("items are not learned from text: use 'bertwright prepare --item'")
    build, train = _TRAINERS[type(config)]
    backend = build(config)
    vocab_size = config.vocab_size - config.sentinels
    if vocab_size < _MIN_VOCAB_SIZE:
        raise UserError(
            f"{config.vocab_size:,} tokens, {config.sentinels:,} of them sentinels, are too few to "
            f"train a vocabulary: leave {_MIN_VOCAB_SIZE} for text"
        )
    words = _count_words(documents, backend, num_workers, alpha)
    if not words:
        raise UserError("the text contains no word to train a vocabulary on")
    train(backend, words, vocab_size)
    backend.add_tokens([_sentinel_token(n) for n in reversed(range(config.sentinels))])
    if backend.get_vocab_size() > config.vocab_size:
        raise UserError(
            f"the characters of this text and the special tokens alone are "
            f"{backend.get_vocab_size():,} tokens: raise the vocabulary size to at least that, "
            f"from {config.vocab_size:,}"
        )
    return Tokenizer(backend)


def word_level_tokenizer(words: Sequence[str], lowercase: bool) -> Tokenizer:
    """Return a tokenizer of distinct words, which have ids after the special tokens."""
    backend = _word_level(WordLevelConfig(lowercase=lowercase))
    _set_words(backend, words)
    return Tokenizer(backend)


def train_tokenizer_on_files(
    inputs: Sequence[str | Path],
    output: str | Path,
    config: TokenizerConfig | dict[str, Any],
    *,
    column: str = "text",
    split: str = "train",
    format: str | None = None,
    language_column: str | None = None,
    alpha: float = 1.0,
    num_workers: int | None = None,
) -> Tokenizer:
    """Train a tokenizer on files, folders and patterns, and write it into a new folder.

    Duplicate documents count once. If inputs state their languages (as for ``prepare``), the
    fraction of each language is raised to ``alpha``; an ``alpha`` below 1 gives small languages
    more weight.

    Errors: UserError for unreadable inputs and invalid configurations.
    """
    if not 0.0 <= alpha <= 1.0:
        raise UserError(f"alpha must be at least 0 and at most 1, not {alpha}")
    try:
        parsed = TokenizerConfig.parse(config)
    except ValidationError as error:
        raise to_user_error(error, "tokenizer") from None
    except ValueError as error:
        raise UserError(f"the tokenizer {error}") from None
    require_new_folder(Path(output))
    counts = ReadCounts()
    sources = find_sources(inputs, column, format, counts, language_column, split=split)
    if alpha != 1.0 and not all(source.has_language for source in sources):
        raise UserError(
            "alpha weights languages: state the language of every text, with en=FILE or "
            "--language-column"
        )
    documents = drop_duplicates(read_documents(sources, counts), counts)
    sides = (side for document in documents for side in document.sides)
    tokenizer = _train(sides, parsed, num_workers or num_cores(), alpha)
    with atomic_folder(Path(output)) as folder:
        tokenizer.save(folder)
    return tokenizer


def _count_words(
    documents: Iterable[Document], backend: library.Tokenizer, num_workers: int, alpha: float
) -> Counter[str]:
    """Return the counts of normalised words, weighted by language."""
    pretokens: dict[str | None, Counter[str]] = {}
    sizes: dict[str | None, int] = {}
    settings = json.loads(backend.to_str())
    for chunk in map_in_order(_PretokenCounter, (settings,), chunk_texts(documents), num_workers):
        for language, (size, chunk_counts) in chunk.items():
            counts = pretokens.setdefault(language, Counter())
            counts.update(chunk_counts)
            sizes[language] = sizes.get(language, 0) + size
            if len(counts) > MAX_DISTINCT_WORDS // len(pretokens):
                pretokens[language] = Counter({key: n for key, n in counts.items() if n > 1})
    factors = upsampling_factors(sizes, alpha)
    words: Counter[str] = Counter()
    for language, counts in pretokens.items():
        for pretoken, count in counts.items():
            text = backend.normalizer.normalize_str(pretoken) if backend.normalizer else pretoken
            for word, _ in backend.pre_tokenizer.pre_tokenize_str(text):
                words[word] += round(factors[language] * count)
    return words


class _PretokenCounter:
    """A counter of pretokens, the strings that a tokenizer can encode separately."""

    def __init__(self, settings: dict[str, Any]) -> None:
        pattern = pretoken_pattern(settings)
        if pattern is None:
            raise ValueError("the tokenizer has no known pretoken pattern")
        self._find = pattern.findall

    def __call__(self, documents: list[Document]) -> dict[str | None, tuple[int, Counter[str]]]:
        """Return the number of characters and the pretoken counts by language."""
        counts: dict[str | None, Counter[str]] = {}
        sizes: Counter[str | None] = Counter()
        for document in documents:
            counts.setdefault(document.language, Counter()).update(self._find(document.text))
            sizes[document.language] += len(document.text)
        return {language: (sizes[language], counts[language]) for language in counts}


def _wordpiece(config: TokenizerConfig) -> library.Tokenizer:
    backend = library.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer(lowercase=config.lowercase)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece(prefix="##", cleanup=False)
    return backend


def _word_level(config: TokenizerConfig) -> library.Tokenizer:
    backend = _wordpiece(config)
    backend.model = models.WordLevel({"[UNK]": 0}, unk_token="[UNK]")
    return backend


def _byte_bpe(config: TokenizerConfig) -> library.Tokenizer:
    backend = library.Tokenizer(models.BPE())
    if config.lowercase:
        raise UserError("byte-bpe keeps every byte, so it cannot be lower-cased: drop --lowercase")
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    return backend


def _unigram(config: TokenizerConfig) -> library.Tokenizer:
    backend = library.Tokenizer(models.Unigram())
    lowercase = [normalizers.Lowercase()] if config.lowercase else []
    collapse = normalizers.Replace(library.Regex(r"\s+"), " ")
    backend.normalizer = normalizers.Sequence(
        [normalizers.NFKC(), *lowercase, collapse, normalizers.Strip()]
    )
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    backend.decoder = decoders.Metaspace(prepend_scheme="always")
    return backend


def _train_wordpiece(
    backend: library.Tokenizer, word_counts: Counter[str], vocab_size: int
) -> None:
    """Train merges with an alphabet in a fixed order.

    By default the trainer numbers continuation characters (``##e``) in the order of a hash map,
    which differs between processes, and breaks ties between merges by these numbers.
    """
    # A character may be two tokens, at the beginning of words and within.
    num_characters = (vocab_size - len(BERT_SPECIAL_TOKENS)) // 2
    word_counts = _restrict_alphabet(word_counts, num_characters)
    firsts = sorted({word[0] for word in word_counts})
    continuing = sorted({character for word in word_counts for character in word[1:]})
    alphabet = [*firsts, *(f"##{character}" for character in continuing)]
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocab_size, special_tokens=[*BERT_SPECIAL_TOKENS, *alphabet], show_progress=False
    )
    trained = _train_backend(
        library.Tokenizer(models.WordPiece(unk_token="[UNK]")), word_counts, trainer
    )
    backend.model = models.WordPiece(
        trained.get_vocab(), unk_token="[UNK]", max_input_chars_per_word=100
    )
    _add_bert_special_tokens(backend)


def _train_word_level(
    backend: library.Tokenizer, word_counts: Counter[str], vocab_size: int
) -> None:
    """Set the vocabulary to the most frequent words; ties are broken alphabetically."""
    ranked = sorted(word_counts, key=lambda word: (-word_counts[word], word))[
        : vocab_size - len(BERT_SPECIAL_TOKENS)
    ]
    _set_words(backend, ranked)


def _set_words(backend: library.Tokenizer, words: Sequence[str]) -> None:
    """Set the vocabulary to the special tokens and these words."""
    vocabulary = {token: index for index, token in enumerate((*BERT_SPECIAL_TOKENS, *words))}
    backend.model = models.WordLevel(vocabulary, unk_token="[UNK]")
    _add_bert_special_tokens(backend)


def _add_bert_special_tokens(backend: library.Tokenizer) -> None:
    backend.add_special_tokens([_special_token(name) for name in BERT_SPECIAL_TOKENS])
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0",
        pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=[(name, backend.token_to_id(name)) for name in ("[CLS]", "[SEP]")],
    )


def _train_byte_bpe(backend: library.Tokenizer, word_counts: Counter[str], vocab_size: int) -> None:
    """Train merges of bytes; the trainer sorts its alphabet, so it is deterministic."""
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - 1,
        special_tokens=list(ROBERTA_SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.model = _train_backend(library.Tokenizer(models.BPE()), word_counts, trainer).model
    _add_roberta_special_tokens(backend)


def _train_unigram(backend: library.Tokenizer, word_counts: Counter[str], vocab_size: int) -> None:
    """Train with :mod:`bertwright.data.tokenization.unigram`, which is deterministic."""
    num_special = len(ROBERTA_SPECIAL_TOKENS) + 1
    words = _restrict_alphabet(word_counts, vocab_size // 2, keep_parts=True)
    tokens = learn_unigram_tokens(words, vocab_size - num_special)
    vocabulary = [*((name, 0.0) for name in ROBERTA_SPECIAL_TOKENS), *tokens]
    backend.model = models.Unigram(vocabulary, ROBERTA_SPECIAL_TOKENS.index("<unk>"))
    _add_roberta_special_tokens(backend)


_TRAINERS: dict[
    type[TokenizerConfig],
    tuple[
        Callable[[TokenizerConfig], library.Tokenizer],
        Callable[[library.Tokenizer, Counter[str], int], None],
    ],
] = {
    WordPieceConfig: (_wordpiece, _train_wordpiece),
    ByteBpeConfig: (_byte_bpe, _train_byte_bpe),
    UnigramConfig: (_unigram, _train_unigram),
    WordLevelConfig: (_word_level, _train_word_level),
}


def _special_token(name: str) -> library.AddedToken:
    # RoBERTa's mask token includes the space before it, like every word.
    return library.AddedToken(
        name, special=True, normalized=False, lstrip=name == ROBERTA_MASK_TOKEN
    )


def _sentinel_token(index: int) -> library.AddedToken:
    # Not marked as special, or the library would drop sentinels when it decodes generated text.
    return library.AddedToken(f"<extra_id_{index}>", special=False, normalized=False)


def _add_roberta_special_tokens(backend: library.Tokenizer) -> None:
    backend.add_special_tokens(
        [_special_token(name) for name in (*ROBERTA_SPECIAL_TOKENS, ROBERTA_MASK_TOKEN)]
    )
    start, end = ((name, backend.token_to_id(name)) for name in ("<s>", "</s>"))
    backend.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[start, end]
    )


def _restrict_alphabet(
    word_counts: Counter[str], max_characters: int, keep_parts: bool = False
) -> Counter[str]:
    """Return the words whose characters are all frequent enough to be a token.

    With ``keep_parts`` the parts of other words between rare characters are returned too, as in
    languages without spaces a word may be a whole line. Errors: UserError if no word is left.
    """
    characters: Counter[str] = Counter()
    for word, count in word_counts.items():
        for character in word:
            characters[character] += count
    kept: set[str] = set()
    covered, target = 0, CHARACTER_COVERAGE * characters.total()
    for character, count in sorted(characters.items(), key=lambda pair: (-pair[1], pair[0])):
        if covered >= target or len(kept) >= max_characters:
            break
        kept.add(character)
        covered += count
    words: Counter[str] = Counter()
    for word, count in word_counts.items():
        if kept.issuperset(word):
            words[word] += count
        elif keep_parts:
            for part in "".join(c if c in kept else "\0" for c in word).split("\0"):
                words[part] += count
    del words[""]
    if not words:
        raise UserError(
            f"no word consists of the {max_characters} most frequent characters alone: raise the "
            f"vocabulary size"
        )
    return words


def _train_backend(
    tokenizer: library.Tokenizer, word_counts: Counter[str], trainer: trainers.Trainer
) -> library.Tokenizer:
    tokenizer.pre_tokenizer = pre_tokenizers.Split(_SEPARATOR, "removed")
    tokenizer.train_from_iterator(_repeat_words(word_counts), trainer)
    return tokenizer


def _repeat_words(word_counts: Counter[str]) -> Iterator[str]:
    """Yield lines of bounded length that repeat every word as often as it was counted."""
    scale = min(1.0, MAX_TRAINING_WORDS / word_counts.total())
    for word in sorted(word_counts):
        remaining = int(word_counts[word] * scale + 0.5)
        while remaining > 0:
            yield _SEPARATOR.join([word] * min(remaining, 1000))
            remaining -= 1000
