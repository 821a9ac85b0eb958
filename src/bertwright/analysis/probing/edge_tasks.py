"""Spans of words with labels: what edge probes predict (Tenney et al. 2019a).

Published tasks that no annotation here supports have no substitute: semantic roles and proto-roles.
The deep arguments of a verb are what a dependency tree tells of semantic roles: with the passive
undone, the subject of an active verb and the agent of a passive one are the same.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from bertwright.analysis.core.texts import AnalysedText
from bertwright.analysis.probing.chunks import Span, chunk_examples
from bertwright.tasks.formats.dependency_trees import DependencyTree
from bertwright.tasks.metrics.entity_spans import entity_spans

PARTS_OF_SPEECH, CHUNKS, ENTITIES = "parts of speech", "chunks", "named entities"
RELATIONS, DEEP_ARGUMENTS = "relations", "deep arguments"

DEEP_SUBJECT, DEEP_OBJECT, INDIRECT_OBJECT, OBLIQUE = (
    "deep subject",
    "deep object",
    "indirect object",
    "oblique",
)


@dataclass(frozen=True)
class LabelledEdge:
    """One span of words, or two, with a label."""

    spans: tuple[Span, ...]
    label: str


def part_of_speech_edges(text: AnalysedText) -> list[LabelledEdge]:
    """Return every word with its part of speech."""
    return [LabelledEdge(((word, word + 1),), tag) for word, tag in enumerate(text.tags)]


def chunk_edges(text: AnalysedText) -> list[LabelledEdge]:
    """Return base noun phrases, verb groups, and as many spans at most that are neither."""
    examples = chunk_examples(text.tree).items()
    return _complete(text, (LabelledEdge((span,), kind) for span, kind in examples))


def entity_edges(text: AnalysedText) -> list[LabelledEdge]:
    """Return the named entities with their types."""
    spans = entity_spans(text.tree.entities or ())
    edges = (LabelledEdge(((first, last + 1),), kind) for kind, first, last in spans)
    return _complete(text, edges)


def relation_edges(text: AnalysedText) -> list[LabelledEdge]:
    """Return words with their heads and relations, punctuation excluded."""
    tree = text.tree
    return _complete(
        text,
        (
            LabelledEdge(((word, word + 1), (head, head + 1)), relation)
            for word, (head, relation) in enumerate(zip(tree.heads, tree.relations, strict=True))
            if head >= 0 and relation != "punct"
        ),
    )


def deep_argument_edges(text: AnalysedText) -> list[LabelledEdge]:
    """Return verbs with the phrases of their arguments, and their relation in the active voice."""
    tree = text.tree
    return _complete(
        text,
        (
            LabelledEdge(((verb, verb + 1), phrase_span(tree, word)), relation)
            for word, verb in enumerate(tree.heads)
            if verb >= 0
            and tree.tags[verb] == "VERB"
            and (relation := deep_relation(tree, word)) is not None
        ),
    )


EDGE_TASKS: Mapping[str, Callable[[AnalysedText], list[LabelledEdge]]] = {
    PARTS_OF_SPEECH: part_of_speech_edges,
    CHUNKS: chunk_edges,
    ENTITIES: entity_edges,
    RELATIONS: relation_edges,
    DEEP_ARGUMENTS: deep_argument_edges,
}
"""Functions from a text with a tree to its edges, by task."""


def deep_relation(tree: DependencyTree, word: int) -> str | None:
    """Return the relation of an argument to its verb in the active voice; None for others.

    The subject of a passive verb is its deep object, or its indirect object if the verb also has an
    object ("he was given a book"); the agent ("by her") is its deep subject.
    """
    match tree.relations[word], tree.subtype(word):
        case "nsubj", "pass":
            siblings = (n for n, head in enumerate(tree.heads) if head == tree.heads[word])
            has_object = any(tree.relations[sibling] == "obj" for sibling in siblings)
            return INDIRECT_OBJECT if has_object else DEEP_OBJECT
        case ("nsubj", _) | ("obl", "agent"):
            return DEEP_SUBJECT
        case "obj", _:
            return DEEP_OBJECT
        case "iobj", _:
            return INDIRECT_OBJECT
        case "obl", _:
            return OBLIQUE
        case _:
            return None


def phrase_span(tree: DependencyTree, head: int) -> Span:
    """Return the span from the first to the last word that depends on a word, itself included."""
    words, newest = {head}, {head}
    while newest:
        newest = {word for word, parent in enumerate(tree.heads) if parent in newest} - words
        words |= newest
    return min(words), max(words) + 1


def _complete(text: AnalysedText, edges: Iterable[LabelledEdge]) -> list[LabelledEdge]:
    """Return the edges whose words were not truncated."""
    size = len(text.words)
    return [edge for edge in edges if all(stop <= size for _, stop in edge.spans)]
