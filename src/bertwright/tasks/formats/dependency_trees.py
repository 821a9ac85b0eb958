"""Sentences with dependency trees, from CoNLL-U files."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from bertwright.core.errors import UserError
from bertwright.core.messages import count_noun
from bertwright.data.readers.text_lines import read_located_lines
from bertwright.tasks.formats.conll_columns import read_sentences
from bertwright.tasks.formats.examples import TaggedSentence
from bertwright.tasks.formats.tagged_sentences import CONLLU, syntactic_words

HEAD_COLUMN, RELATION_COLUMN = CONLLU.tag_columns["head"], 7
"""Columns of CoNLL-U."""


@dataclass(frozen=True)
class DependencyTree:
    """A sentence and its dependency tree.

    Attributes:
        heads: index of the head of each word, -1 for the root.
        relations: relation of each word to its head, without subtypes (``nsubj``, not
            ``nsubj:pass``).
        tags: universal parts of speech.
        subtypes: subtype of each relation (``pass``), or ``""``; () if no relation has one.
        entities: tag of each word for named entities (``B-PER``, ``I-PER``, ``O``); None if the
            sentence is not annotated.
    """

    words: tuple[str, ...]
    heads: tuple[int, ...]
    relations: tuple[str, ...]
    tags: tuple[str, ...]
    location: str = field(default="", compare=False, repr=False)
    subtypes: tuple[str, ...] = ()
    entities: tuple[str, ...] | None = None

    def subtype(self, word: int) -> str:
        """Return the subtype of the relation of a word to its head, or ``""``."""
        return self.subtypes[word] if self.subtypes else ""


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
                raise UserError(f"{location}: {count_noun(len(row), 'column')}, but CoNLL-U has 10")
            if not row[HEAD_COLUMN].isdecimal() or int(row[HEAD_COLUMN]) > len(words):
                raise UserError(f"{location}: the head {row[HEAD_COLUMN]!r} is not a word")
            heads.append(int(row[HEAD_COLUMN]) - 1)
        relations = [row[RELATION_COLUMN].partition(":") for _, row in words]
        trees.append(
            DependencyTree(
                tuple(row[CONLLU.word_column] for _, row in words),
                tuple(heads),
                tuple(relation for relation, _, _ in relations),
                tuple(row[CONLLU.tag_columns["upos"]] for _, row in words),
                words[0][0],
                tuple(subtype for _, _, subtype in relations),
            )
        )
    if not trees:
        raise UserError(f"{path} has no sentences")
    return trees


def annotate_entities(
    trees: Sequence[DependencyTree], sentences: Sequence[TaggedSentence]
) -> list[DependencyTree]:
    """Return the trees with the entity tags of the sentences that have the same words.

    The other trees stay without annotation. Errors: UserError if no sentence matches.
    """
    tags_of = {sentence.words: sentence.tags for sentence in sentences}
    annotated = [replace(tree, entities=tags_of.get(tree.words)) for tree in trees]
    if all(tree.entities is None for tree in annotated):
        raise UserError(
            f"no sentence with entity tags ({sentences[0].location} and others) has the words of a "
            f"tree: give the tags of the same sentences, with the same words"
        )
    return annotated
