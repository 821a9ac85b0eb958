"""Base noun phrases and verb groups of a dependency tree.

The rules, for Universal Dependencies, follow the chunks of Tjong Kim Sang and Buchholz (2000): they
do not overlap, and a noun phrase ends with its head.

- A *noun phrase* is a noun, name or pronoun with the words before it that depend on it, directly or
  through each other, as determiner, numeral, adjective, compound part or possessor (with its case
  marker), or that modify such an adjective or numeral; and with the other words of a name after it.
  Words beyond the first gap are left out.
- A *verb group* is a verb or copula, with its auxiliaries, the particle ``to`` and the adverbs
  between them. It begins with the first auxiliary or particle, and has no gap.
"""

from bertwright.tasks.formats.dependency_trees import DependencyTree

NOUN_PHRASE, VERB_GROUP, NO_CHUNK = "noun phrase", "verb group", "no chunk"

Span = tuple[int, int]
"""First word, and the word after the last."""

NOMINAL_TAGS = ("NOUN", "PROPN", "PRON")
_PRENOMINAL = {"det", "nummod", "amod", "compound", "nmod", "case", "advmod"}
_NAME_PARTS = {"flat"}
_POSSESSOR = "poss"


def chunk_spans(tree: DependencyTree) -> dict[Span, str]:
    """Return the chunks of a sentence, in order, with their types."""
    candidates = [
        ((_noun_phrase_start(tree, word), _name_end(tree, word)), NOUN_PHRASE)
        for word, tag in enumerate(tree.tags)
        if tag in NOMINAL_TAGS
    ] + [
        ((_verb_group_start(tree, word), word + 1), VERB_GROUP)
        for word, tag in enumerate(tree.tags)
        if tag == "VERB" or tree.relations[word] == "cop"
    ]
    # Of overlapping candidates, such as a compound and its parts, the longest is the chunk.
    chunks: dict[Span, str] = {}
    is_free = [True] * len(tree.words)
    for (start, stop), kind in sorted(candidates, key=lambda c: (c[0][0] - c[0][1], c[0])):
        if all(is_free[start:stop]):
            chunks[start, stop] = kind
            is_free[start:stop] = [False] * (stop - start)
    return dict(sorted(chunks.items()))


def chunk_examples(tree: DependencyTree) -> dict[Span, str]:
    """Return the chunks, and spans of the same lengths that are no chunks.

    Those are the chunks moved one word to the right, unless that is a chunk or leaves the sentence.
    """
    chunks = chunk_spans(tree)
    moved = ((start + 1, stop + 1) for start, stop in chunks)
    others = {span: NO_CHUNK for span in moved if span not in chunks and span[1] <= len(tree.words)}
    return chunks | others


def _noun_phrase_start(tree: DependencyTree, head: int) -> int:
    start = head
    while start > 0 and _is_prenominal(tree, start - 1, head):
        start -= 1
    return start


def _is_prenominal(tree: DependencyTree, word: int, head: int) -> bool:
    """Return whether a word before a noun belongs to its base noun phrase."""
    # A path is no longer than the sentence; a damaged tree may have a cycle.
    for _ in tree.words:
        if word == head:
            return True
        relation, parent = tree.relations[word], tree.heads[word]
        if parent < 0 or relation not in _PRENOMINAL | _NAME_PARTS:
            return False
        # "of" is no part of a base noun phrase, "'s" is.
        if relation == "case" and (tree.subtype(parent) != _POSSESSOR or word < parent):
            return False
        if relation == "nmod" and tree.subtype(word) != _POSSESSOR:
            return False
        if relation == "advmod" and parent == head:
            return False
        word = parent
    return False


def _name_end(tree: DependencyTree, head: int) -> int:
    stop = head + 1
    while (
        stop < len(tree.words) and tree.heads[stop] == head and tree.relations[stop] in _NAME_PARTS
    ):
        stop += 1
    return stop


def _verb_group_start(tree: DependencyTree, verb: int) -> int:
    """Return the first auxiliary or particle before a verb without a gap, else the verb."""
    head = tree.heads[verb] if tree.relations[verb] == "cop" else verb
    start = word = verb
    while word > 0 and tree.heads[word - 1] == head:
        word -= 1
        is_particle = tree.relations[word] == "mark" and tree.tags[word] == "PART"
        if tree.relations[word] == "aux" or is_particle:
            start = word
        elif tree.relations[word] != "advmod":
            break
    return start
