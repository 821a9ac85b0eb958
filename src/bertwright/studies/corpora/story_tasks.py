"""What can be asked of a model that has read the stories of :mod:`.stories`.

Minimal pairs: agreement over a distractor, facts of the world, the order of words. Questions: how
a fact ends. Tasks: does one sentence follow from another, which topic has a text, where are the
names, which of two sentences comes first in a day.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TypeVar

import numpy as np

from bertwright.randomness import generator, key
from bertwright.studies.corpora.corpus import Written, write_lines
from bertwright.studies.corpora.stories import (
    TOPICS,
    Clause,
    Name,
    Word,
    World,
    sentence,
    stories,
)

PAIRS_OF_A_KIND = 300
TRAINING, DEVELOPMENT = 2_000, 500

Sentence = Sequence[Word]
Row = tuple[tuple[Sequence[Sentence], ...], str]
"""One text or two, each some sentences, and the label."""

Telling = Callable[[Sentence], Sentence]
"""A sentence of the world in the words of a language."""

T = TypeVar("T")


def write_pairs(world: World, seed: int, file: Path) -> None:
    """Pairs of an acceptable sentence and one that is not, in the layout of BLiMP."""
    draw = generator(key(seed, "pairs"))
    with open(file, "w", encoding="utf-8") as opened:
        for name, make in (("agreement", _agreement), ("facts", _fact), ("order", _order)):
            for _ in range(PAIRS_OF_A_KIND):
                good, bad = make(world, draw)
                row = {"sentence_good": good, "sentence_bad": bad, "UID": name}
                opened.write(json.dumps(row) + "\n")


def write_questions(world: World, file: Path) -> None:
    """Every fact of the world with its last name left open: as text to continue, and with a gap."""
    write_lines(
        file,
        (
            {
                "kind": "facts",
                "prompt": sentence(words).removesuffix("."),
                "answer": str(name),
                "gap": sentence([*words, "[MASK]"]),
            }
            for *words, name in world.facts()
        ),
    )


def _agreement(world: World, draw: np.random.Generator) -> tuple[str, str]:
    """The verb in the number of the distractor."""
    clause = _with_distractor(world, draw)
    words = clause.words()
    place = words.index(_verb(clause))
    wrong = [*words]
    wrong[place] = _verb(replace(clause, plural=not clause.plural))
    return sentence(words), sentence(wrong)


def _with_distractor(world: World, draw: np.random.Generator) -> Clause:
    """A clause with somebody of the other number between subject and verb."""
    while True:
        clause = world.clause(int(draw.integers(TOPICS)), draw)
        if clause.near is not None:
            return replace(clause, near_plural=not clause.plural)


def _verb(clause: Clause) -> str:
    return clause.verb if clause.plural else f"{clause.verb}s"


def _fact(world: World, draw: np.random.Generator) -> tuple[str, str]:
    """The last name of another fact of the same kind."""
    fact = world.fact(draw)
    while True:
        other = world.fact(draw)
        if other[1:-1] == fact[1:-1] and other[-1] != fact[-1]:
            return sentence(fact), sentence([*fact[:-1], other[-1]])


def _order(world: World, draw: np.random.Generator) -> tuple[str, str]:
    """Two words that follow each other have changed places."""
    words = world.clause(int(draw.integers(TOPICS)), draw).words()
    place = int(draw.integers(len(words) - 1))
    wrong = [*words]
    wrong[place], wrong[place + 1] = wrong[place + 1], wrong[place]
    return sentence(words), sentence(wrong)


def as_it_is(words: Sentence) -> Sentence:
    """A sentence in the language of the world."""
    return words


WORLD = {"": as_it_is}
"""How tasks are told where there is no other language."""


def write_tasks(
    world: World, seed: int, to: Written, tellings: Mapping[str, Telling] = WORLD
) -> None:
    """A folder for every task: tables of entailment, topic and order, tagged words for names.

    The same examples are told in several ways; the key of each ends the names of its tasks.
    """
    draw = generator(key(seed, "tasks"))
    tables = {
        "entailment": ("text\tpair\tlabel\n", _entailments(world, draw)),
        "topic": ("text\tlabel\n", _topics(world, seed)),
        "order": ("text\tpair\tlabel\n", _orders(world, seed, draw)),
    }
    for name, (header, rows) in tables.items():
        _write_parts(to, name, "tsv", rows, _in_table, tellings, header)
    _write_parts(to, "names", "iob2", _names(world, seed), _tagged, tellings)


def _write_parts(
    to: Written,
    name: str,
    suffix: str,
    examples: Iterator[T],
    written: Callable[[T, Telling], str],
    tellings: Mapping[str, Telling],
    header: str = "",
) -> None:
    for part, count in (("train", TRAINING), ("dev", DEVELOPMENT)):
        chosen = list(islice(examples, count))
        for beside, telling in tellings.items():
            folder = to.task(name + beside)
            folder.mkdir(parents=True, exist_ok=True)
            with open(folder / f"{part}.{suffix}", "w", encoding="utf-8") as file:
                file.write(header)
                file.writelines(written(example, telling) for example in chosen)


def _in_table(row: Row, telling: Telling) -> str:
    texts, label = row
    told = [" ".join(sentence(telling(words)) for words in text) for text in texts]
    return "\t".join([*told, label]) + "\n"


def _entailments(world: World, draw: np.random.Generator) -> Iterator[Row]:
    """What follows leaves something out; what does not has changed a word or the roles."""
    while True:
        clause = _with_distractor(world, draw)
        told = replace(clause, phrase=None)
        shorter = replace(told, near=None, adjective=None, thing_adjective=None)
        if draw.random() < 0.5:
            yield ([told.words()], [shorter.words()]), "follows"
            continue
        assert told.near is not None, "it has a distractor"
        wrong = (
            replace(shorter, subject=told.thing, thing=told.subject),
            replace(shorter, subject=told.near, plural=told.near_plural),
            replace(shorter, verb=world.clause(0, draw).verb),
        )[int(draw.integers(3))]
        if wrong != shorter:
            yield ([told.words()], [wrong.words()]), "does-not"


def _topics(world: World, seed: int) -> Iterator[Row]:
    for story in stories(world, seed, "topic", TRAINING + DEVELOPMENT):
        yield ([words for _, words in story.sentences[:3]],), str(story.topic)


def _orders(world: World, seed: int, draw: np.random.Generator) -> Iterator[Row]:
    """Two sentences of one day, at different hours."""
    for story in stories(world, seed, "order", 2 * (TRAINING + DEVELOPMENT)):
        early, late = sorted(draw.choice(len(story.sentences), 2, replace=False).tolist())
        if story.sentences[early][0] == story.sentences[late][0]:
            continue
        first, second = ([story.sentences[n][1]] for n in (early, late))
        in_order = draw.random() < 0.5
        yield ((first, second), "in-order") if in_order else ((second, first), "swapped")


def _names(world: World, seed: int) -> Iterator[Sentence]:
    for story in stories(world, seed, "names", TRAINING + DEVELOPMENT):
        facts = [words for _, words in story.sentences if any(isinstance(w, Name) for w in words)]
        yield facts[0] if facts else story.sentences[0][1]


def _tagged(words: Sentence, telling: Telling) -> str:
    """A word and its tag on every line, and an empty line."""
    lines: list[tuple[str, str]] = []
    for word in telling(words):
        if isinstance(word, Name):
            tags = ["B", *["I"] * (len(word.words) - 1)]
            lines += [(w, f"{t}-{word.kind}") for w, t in zip(word.words, tags, strict=True)]
        else:
            lines.append((word, "O"))
    return "".join(f"{number}\t{w}\t{tag}\n" for number, (w, tag) in enumerate(lines, 1)) + "\n"
