"""Sentences with their trees: the heads and relations of CoNLL-U."""

from dataclasses import dataclass, field
from pathlib import Path

from bertwright.errors import UserError
from bertwright.tasks.formats.columns import sentences_of
from bertwright.tasks.formats.examples import TaggedWords
from bertwright.tasks.formats.lines import located_lines
from bertwright.tasks.formats.tagged import CONLLU, syntactic_words

HEAD, RELATION = 6, 7
"""The columns."""


@dataclass(frozen=True)
class Tree:
    """A sentence and its tree.

    Attributes:
        heads: of each word the index of the word that it depends on, -1 for the root.
        relations: what each word is to its head, without subtypes (``nsubj``, not ``nsubj:pass``).
        tags: universal parts of speech.
    """

    words: tuple[str, ...]
    heads: tuple[int, ...]
    relations: tuple[str, ...]
    tags: tuple[str, ...]
    where: str = field(default="", compare=False, repr=False)

    @property
    def text(self) -> TaggedWords:
        """The words with their parts of speech."""
        return TaggedWords(self.words, self.tags, self.where)


def read_trees(path: Path) -> list[Tree]:
    """The trees of a CoNLL-U file.

    Errors: UserError, naming file and line, for a row that is too short, a head that is no word.
    """
    found: list[Tree] = []
    for rows in sentences_of(located_lines(path)):
        words = syntactic_words(rows)
        heads: list[int] = []
        for where, row in words:
            if len(row) < CONLLU.num_columns:
                raise UserError(f"{where}: {len(row)} columns, where CoNLL-U has 10")
            if not row[HEAD].isdecimal() or int(row[HEAD]) > len(words):
                raise UserError(f"{where}: the head {row[HEAD]!r} is no word")
            heads.append(int(row[HEAD]) - 1)
        found.append(
            Tree(
                tuple(row[CONLLU.word] for _, row in words),
                tuple(heads),
                tuple(row[RELATION].split(":")[0] for _, row in words),
                tuple(row[CONLLU.tags["upos"]] for _, row in words),
                words[0][0],
            )
        )
    if not found:
        raise UserError(f"{path} holds no sentences")
    return found
