"""Learning a vocabulary: the same text gives the same vocabulary, in any process.

Words are counted here, over all cores, and the library's trainer is fed the counted words in one
fixed order: memory grows with the number of different words only. What the library then leaves to
chance is taken away per kind; see each trainer.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import tokenizers as library
from pydantic import ValidationError
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

from bertwright.axes import explain
from bertwright.errors import UserError
from bertwright.files import atomic_folder, require_free
from bertwright.machine.cores import num_cores
from bertwright.text.documents import Document, ReadCounts
from bertwright.text.duplicates import unseen
from bertwright.text.keys import key_pattern
from bertwright.text.languages import upsampling
from bertwright.text.processes import chunked, in_order
from bertwright.text.readers import read_documents
from bertwright.text.sources import find_sources
from bertwright.text.tokenizers import (
    ByteBpeChoice,
    Tokenizer,
    TokenizerChoice,
    UnigramChoice,
    WordPieceChoice,
    WordsChoice,
)
from bertwright.text.unigram import learn_pieces

_FEWEST = 16
"""Pieces of text and special ones, beside sentinels."""

BERT_SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
ROBERTA_SPECIALS = ("<s>", "<pad>", "</s>", "<unk>")
ROBERTA_MASK = "<mask>"

MOST_WORDS_FED = 10_000_000
"""Counts of a larger text are scaled down to this many words in all."""
MOST_DISTINCT_WORDS = 2_000_000
"""Beyond this many different words, those seen once so far are forgotten while counting."""
CHARACTER_COVERAGE = 0.9999
"""The share of a text's characters that get a piece of their own; the rest is unknown."""

_SEPARATOR = "\0"


def train_tokenizer(
    texts: Iterable[str], choice: TokenizerChoice, num_workers: int = 1
) -> Tokenizer:
    """Learn a vocabulary from texts (one document each; none may hold a NUL).

    Errors: UserError where the texts hold no word.
    """
    return _trained(map(Document, texts), choice, num_workers, alpha=1.0)


def _trained(
    documents: Iterable[Document], choice: TokenizerChoice, num_workers: int, alpha: float
) -> Tokenizer:
    if type(choice) not in _KINDS:
        raise UserError("items are not learned from text: 'bertwright prepare --item' lists them")
    untrained, train = _KINDS[type(choice)]
    backend = untrained(choice)
    if choice.size - choice.sentinels < _FEWEST:
        raise UserError(
            f"{choice.sentinels:,} of {choice.size:,} pieces cannot be sentinels: leave "
            f"{_FEWEST} for text"
        )
    words = _count_words(documents, backend, num_workers, alpha)
    if not words:
        raise UserError("the text holds no word to learn a vocabulary from")
    train(backend, words, choice.size - choice.sentinels)
    backend.add_tokens([_sentinel(n) for n in reversed(range(choice.sentinels))])
    if backend.get_vocab_size() > choice.size:
        raise UserError(
            f"the letters of this text and the special pieces alone are "
            f"{backend.get_vocab_size():,} pieces: ask for as many at least, not {choice.size:,}"
        )
    return Tokenizer(backend)


def train_on_files(
    inputs: Sequence[str | Path],
    out: str | Path,
    choice: TokenizerChoice | dict[str, Any],
    *,
    column: str = "text",
    format: str | None = None,
    language_column: str | None = None,
    alpha: float = 1.0,
    num_workers: int | None = None,
) -> Tokenizer:
    """Learn a vocabulary from files, folders and patterns, and write it into a new folder.

    Each document counts once. Where inputs state their languages, as for ``prepare``, the share of
    each in the text is raised to ``alpha``: 1 takes the text as it is, less lets small languages
    count for more.

    Errors: those of reading, and of a choice that cannot be.
    """
    if not 0.0 <= alpha <= 1.0:
        raise UserError(f"alpha must be at least 0 and at most 1, not {alpha}")
    try:
        chosen = TokenizerChoice.choose(choice)
    except ValidationError as error:
        raise explain(error, "tokenizer") from None
    except ValueError as error:
        raise UserError(f"the tokenizer {error}") from None
    require_free(Path(out))
    met = ReadCounts()
    sources = find_sources(inputs, column, format, met, language_column)
    if alpha != 1.0 and not all(source.speaks for source in sources):
        raise UserError(
            "alpha weighs languages: state that of every text, as en=FILE or with --language-column"
        )
    documents = unseen(read_documents(sources, met), met)
    sides = (side for document in documents for side in document.sides)
    tokenizer = _trained(sides, chosen, num_workers or num_cores(), alpha)
    with atomic_folder(Path(out)) as folder:
        tokenizer.save(folder)
    return tokenizer


def _count_words(
    documents: Iterable[Document], backend: library.Tokenizer, num_workers: int, alpha: float
) -> Counter[str]:
    """Every word as the trainer is to see it, with its count; a language counts by its smoothed
    share of the characters."""
    keys: dict[str | None, Counter[str]] = {}
    sizes: dict[str | None, int] = {}
    for counted in in_order(_KeyCounter, (backend.to_str(),), chunked(documents), num_workers):
        for language, (size, found) in counted.items():
            own = keys.setdefault(language, Counter())
            own.update(found)
            sizes[language] = sizes.get(language, 0) + size
            if len(own) > MOST_DISTINCT_WORDS // len(keys):
                keys[language] = Counter({key: n for key, n in own.items() if n > 1})
    factors = upsampling(sizes, alpha)
    words: Counter[str] = Counter()
    for language, own in keys.items():
        for key, count in own.items():
            normal = backend.normalizer.normalize_str(key) if backend.normalizer else key
            for word, _ in backend.pre_tokenizer.pre_tokenize_str(normal):
                words[word] += round(factors[language] * count)
    return words


class _KeyCounter:
    """Counts the short strings that a tokenizer may be given one by one."""

    def __init__(self, settings: str) -> None:
        pattern = key_pattern(settings)
        if pattern is None:
            raise ValueError("a tokenizer that is trained here must be one that may be cut")
        self._find = pattern.findall

    def __call__(self, documents: list[Document]) -> dict[str | None, tuple[int, Counter[str]]]:
        """By language, the number of characters and the strings."""
        counts: dict[str | None, Counter[str]] = {}
        sizes: Counter[str | None] = Counter()
        for document in documents:
            counts.setdefault(document.language, Counter()).update(self._find(document.text))
            sizes[document.language] += len(document.text)
        return {language: (sizes[language], counts[language]) for language in counts}


def _wordpiece(choice: TokenizerChoice) -> library.Tokenizer:
    backend = library.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer(lowercase=choice.lowercase)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece(prefix="##", cleanup=False)
    return backend


def _words(choice: TokenizerChoice) -> library.Tokenizer:
    backend = _wordpiece(choice)
    backend.model = models.WordLevel({"[UNK]": 0}, unk_token="[UNK]")
    return backend


def _byte_bpe(choice: TokenizerChoice) -> library.Tokenizer:
    backend = library.Tokenizer(models.BPE())
    if choice.lowercase:
        raise UserError("byte-bpe keeps every byte, so it cannot be lower-cased: drop --lowercase")
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    return backend


def _unigram(choice: TokenizerChoice) -> library.Tokenizer:
    backend = library.Tokenizer(models.Unigram())
    lowercase = [normalizers.Lowercase()] if choice.lowercase else []
    collapse = normalizers.Replace(library.Regex(r"\s+"), " ")
    backend.normalizer = normalizers.Sequence(
        [normalizers.NFKC(), *lowercase, collapse, normalizers.Strip()]
    )
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    backend.decoder = decoders.Metaspace(prepend_scheme="always")
    return backend


def _train_wordpiece(backend: library.Tokenizer, words: Counter[str], size: int) -> None:
    """Merges, with an alphabet in a fixed order.

    Left alone the trainer numbers the continuing characters (``##e``) in the order of a hash map
    that differs from process to process, and ties between merges go by number.
    """
    words = _within_alphabet(words, size // 2)
    firsts = sorted({word[0] for word in words})
    continuing = sorted({character for word in words for character in word[1:]})
    alphabet = [*firsts, *(f"##{character}" for character in continuing)]
    trainer = trainers.WordPieceTrainer(
        vocab_size=size, special_tokens=[*BERT_SPECIALS, *alphabet], show_progress=False
    )
    trained = _fed(library.Tokenizer(models.WordPiece(unk_token="[UNK]")), words, trainer)
    backend.model = models.WordPiece(
        trained.get_vocab(), unk_token="[UNK]", max_input_chars_per_word=100
    )
    _finish_like_bert(backend)


def _train_words(backend: library.Tokenizer, words: Counter[str], size: int) -> None:
    """No training but counting; of words as frequent the first by the alphabet."""
    ranked = sorted(words, key=lambda word: (-words[word], word))[: size - len(BERT_SPECIALS)]
    vocabulary = {piece: number for number, piece in enumerate((*BERT_SPECIALS, *ranked))}
    backend.model = models.WordLevel(vocabulary, unk_token="[UNK]")
    _finish_like_bert(backend)


def _finish_like_bert(backend: library.Tokenizer) -> None:
    backend.add_special_tokens([_special(name) for name in BERT_SPECIALS])
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0",
        pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=[(name, backend.token_to_id(name)) for name in ("[CLS]", "[SEP]")],
    )


def _train_byte_bpe(backend: library.Tokenizer, words: Counter[str], size: int) -> None:
    """Merges of bytes; the trainer sorts its alphabet, so nothing is left to chance."""
    trainer = trainers.BpeTrainer(
        vocab_size=size - 1,
        special_tokens=list(ROBERTA_SPECIALS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.model = _fed(library.Tokenizer(models.BPE()), words, trainer).model
    _finish_like_roberta(backend)


def _train_unigram(backend: library.Tokenizer, words: Counter[str], size: int) -> None:
    """Expectation maximisation of our own; see :mod:`bertwright.text.unigram`."""
    others = len(ROBERTA_SPECIALS) + 1
    pieces = learn_pieces(_parts_within_alphabet(words, size // 2), size - others)
    vocabulary = [*((name, 0.0) for name in ROBERTA_SPECIALS), *pieces]
    backend.model = models.Unigram(vocabulary, ROBERTA_SPECIALS.index("<unk>"))
    _finish_like_roberta(backend)


_KINDS: dict[
    type[TokenizerChoice],
    tuple[
        Callable[[TokenizerChoice], library.Tokenizer],
        Callable[[library.Tokenizer, Counter[str], int], None],
    ],
] = {
    WordPieceChoice: (_wordpiece, _train_wordpiece),
    ByteBpeChoice: (_byte_bpe, _train_byte_bpe),
    UnigramChoice: (_unigram, _train_unigram),
    WordsChoice: (_words, _train_words),
}


def _special(name: str) -> library.AddedToken:
    # RoBERTa's mask takes the space before it, as every word of its text does.
    return library.AddedToken(name, special=True, normalized=False, lstrip=name == ROBERTA_MASK)


def _sentinel(number: int) -> library.AddedToken:
    # Not special to the library, or the answers of a decoder would be read out without them.
    return library.AddedToken(f"<extra_id_{number}>", special=False, normalized=False)


def _finish_like_roberta(backend: library.Tokenizer) -> None:
    backend.add_special_tokens([_special(name) for name in (*ROBERTA_SPECIALS, ROBERTA_MASK)])
    start, end = ((name, backend.token_to_id(name)) for name in ("<s>", "</s>"))
    backend.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[start, end]
    )


def _alphabet(words: Counter[str], most: int) -> set[str]:
    """The characters that are frequent enough to be worth a piece."""
    characters: Counter[str] = Counter()
    for word, count in words.items():
        for character in word:
            characters[character] += count
    kept: set[str] = set()
    covered, wanted = 0, CHARACTER_COVERAGE * characters.total()
    for character, count in sorted(characters.items(), key=lambda pair: (-pair[1], pair[0])):
        if covered >= wanted or len(kept) >= most:
            break
        kept.add(character)
        covered += count
    return kept


def _within_alphabet(words: Counter[str], most: int) -> Counter[str]:
    """The words of such characters alone.

    Errors: UserError where there are none.
    """
    kept = _alphabet(words, most)
    found = Counter({word: count for word, count in words.items() if kept.issuperset(word)})
    return _require_some(found, most)


def _parts_within_alphabet(words: Counter[str], most: int) -> Counter[str]:
    """What of the words stands between other characters: a word may be a whole line, where nobody
    writes spaces. Errors as for whole words."""
    kept = _alphabet(words, most)
    found: Counter[str] = Counter()
    for word, count in words.items():
        for part in "".join(c if c in kept else "\0" for c in word).split("\0"):
            if part:
                found[part] += count
    return _require_some(found, most)


def _require_some(words: Counter[str], most: int) -> Counter[str]:
    if not words:
        raise UserError(
            f"no word is made of the {most} most frequent characters alone: ask for more pieces"
        )
    return words


def _fed(
    tokenizer: library.Tokenizer, words: Counter[str], trainer: trainers.Trainer
) -> library.Tokenizer:
    tokenizer.pre_tokenizer = pre_tokenizers.Split(_SEPARATOR, "removed")
    tokenizer.train_from_iterator(_repeated(words), trainer)
    return tokenizer


def _repeated(words: Counter[str]) -> Iterator[str]:
    """Every word as often as it was counted, in lines that are not too long."""
    scale = min(1.0, MOST_WORDS_FED / words.total())
    for word in sorted(words):
        left = int(words[word] * scale + 0.5)
        while left > 0:
            yield _SEPARATOR.join([word] * min(left, 1000))
            left -= 1000
