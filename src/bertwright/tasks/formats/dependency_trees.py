"""Sentences with dependency trees, from CoNLL-U files."""

from dataclasses import dataclass, field
from pathlib import Path

from bertwright.core.errors import UserError
from bertwright.data.readers.text_lines import read_located_lines
from bertwright.tasks.formats.conll_columns import read_sentences
from bertwright.tasks.formats.tagged_sentences import CONLLU, syntactic_words

HEAD_COLUMN, RELATION_COLUMN = 6, 7
"""Columns of CoNLL-U."""


@dataclass(frozen=True)
class DependencyTree:
    """A sentence and its dependency tree.

    Attributes:
        heads: index of the head of each word, -1 for the root.
        relations: relation of each word to its head, without subtypes (``nsubj``, not
            ``nsubj:pass``).
        tags: universal parts of speech.
    """

    words: tuple[str, ...]
    heads: tuple[int, ...]
    relations: tuple[str, ...]
    tags: tuple[str, ...]
    location: str = field(default="", compare=False, repr=False)


def read_trees(path: Path) -> list[DependencyTree]:
    """Read the trees of a CoNLL-U file.

    Errors: UserError with file and line, for a row that is too short or an invalid head.
    """
    trees: list[DependencyTree] = []
    for rows in read_sentences(read_located_lines(path)):
        words = syntactic_words(rows)
        heads: list[int] = []
        for location, row in words:
            if len(row) < CONLLU.min_columns:
                raise UserError(f"{location}: {len(row)} columns, but CoNLL-U has 10")
            if not row[HEAD_COLUMN].isdecimal() or int(row[HEAD_COLUMN]) > len(words):
                raise UserError(f"{location}: the head {row[HEAD_COLUMN]!r} is not a word")
            heads.append(int(row[HEAD_COLUMN]) - 1)
        trees.append(
            DependencyTree(
                tuple(row[CONLLU.word_column] for _, row in words),
                tuple(heads),
                tuple(row[RELATION_COLUMN].split(":")[0] for _, row in words),
                tuple(row[CONLLU.tag_columns["upos"]] for _, row in words),
                words[0][0],
            )
        )
    if not trees:
        raise UserError(f"{path} has no sentences")
    return trees
