"""Import word vectors in the text format of word2vec, fastText and GloVe."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from bertwright.core.config import quote
from bertwright.core.errors import UserError
from bertwright.data.readers.text_lines import read_located_lines
from bertwright.data.vocabulary_training import BERT_SPECIAL_TOKENS, word_level_tokenizer
from bertwright.models.saving import model_from_tensors
from bertwright.models.text_model import TextModel
from bertwright.recipes import Recipe
from bertwright.recipes.loading import merge, read_recipe

UNKNOWN_WORDS = ("<unk>", "[UNK]")
"""Names of the vector of unknown words."""

MAX_WIDTH = 65_536


@dataclass(frozen=True)
class WordVectorFile:
    """The content of a file: vectors (N, D) float32 of N words, most frequent first as published.

    ``unknown`` (D,) is the vector of unknown words: the one of the file, or else the mean.
    """

    words: list[str]
    vectors: NDArray[np.float32]
    unknown: NDArray[np.float32]


def import_word_vectors(path: Path) -> tuple[TextModel, int]:
    """Return a model without blocks that embeds words, and the number of omitted words.

    The vocabulary is lower-cased if all its words are. Words that the tokenizer would split, such
    as words with a hyphen, are omitted. Special tokens other than the unknown token have vectors of
    0. Errors: UserError for a file that holds no word vectors.
    """
    source = read_word_vectors(path)
    lowercase = all(word == word.lower() for word in source.words)
    tokens = word_level_tokenizer(source.words, lowercase).encode_batch(source.words)
    first_id = len(BERT_SPECIAL_TOKENS)
    kept = [index for index, ids in enumerate(tokens) if ids == [first_id + index]]
    if not kept:
        raise UserError(f"{path} holds no word without punctuation: name another file")
    tokenizer = word_level_tokenizer([source.words[index] for index in kept], lowercase)
    width = source.vectors.shape[1]
    table = torch.zeros(first_id + len(kept), width)
    table[first_id:] = torch.from_numpy(source.vectors[kept])
    table[tokenizer.special_tokens.unknown] = torch.from_numpy(source.unknown)
    settings = {
        "name": path.name.removesuffix(".gz").removesuffix(".txt"),
        "source": "",
        "text": {"tokenizer": {"vocab_size": max(16, len(table)), "lowercase": lowercase}},
        "encoder": {"width": width},
        "objectives": dict.fromkeys(read_recipe("word2vec")["objectives"]),
    }
    recipe = Recipe.model_validate(merge(read_recipe("word2vec"), settings))
    weights = {"encoder.embeddings.tokens.weight": table}
    model = model_from_tensors(recipe, len(table), weights, str(path))
    return TextModel(model, tokenizer), len(source.words) - len(kept)


def read_word_vectors(path: Path) -> WordVectorFile:
    """Read a text file (also ``.gz``): on each line a word and its numbers, separated by spaces.

    A first line with the number of words and their width is optional. Of words that occur twice,
    the first is read. Errors: UserError that names the line.
    """
    words, vectors = dict[str, None](), list[NDArray[np.float32]]()
    unknown, size, width, num_vectors = None, None, 0, 0
    for number, (location, line) in enumerate(read_located_lines(path)):
        parts = line.rstrip().split(" ")
        if number == 0 and len(parts) == 2 and all(part.isdecimal() for part in parts):
            size, width = int(parts[0]), int(parts[1])
            continue
        width = width or len(parts) - 1
        # Some words of GloVe hold spaces.
        word, values = " ".join(parts[:-width]), parts[-width:]
        vector = _parse_vector(location, word, values, width)
        num_vectors += 1
        if word in UNKNOWN_WORDS:
            unknown = vector
        elif word not in words and word not in BERT_SPECIAL_TOKENS:
            words[word] = None
            vectors.append(vector)
    if not words:
        raise UserError(f"{path} holds no word vectors: each line needs a word and its numbers")
    if size is not None and num_vectors != size:
        raise UserError(f"{path} holds {num_vectors:,} of {size:,} word vectors: download it again")
    table = np.stack(vectors)
    return WordVectorFile(list(words), table, table.mean(axis=0) if unknown is None else unknown)


def _parse_vector(location: str, word: str, values: list[str], width: int) -> NDArray[np.float32]:
    """Return a vector (D,); UserError unless there is a word with ``width`` finite numbers."""
    if not 1 <= width <= MAX_WIDTH:
        raise UserError(
            f"{location}: expected a word and its numbers, and at most {MAX_WIDTH:,} of these: "
            f"name a text file of word2vec or GloVe"
        )
    try:
        vector = np.array(values, np.float32)
    except ValueError:
        vector = np.empty(0, np.float32)
    if not word or len(vector) != width or not np.isfinite(vector).all():
        raise UserError(
            f"{location}: expected a word and {width} finite numbers, not "
            f"{quote(' '.join([word, *values]))}"
        )
    return vector
