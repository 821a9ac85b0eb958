"""Minimal pairs, prompts and tasks about the stories of :mod:`.stories`.

Minimal pairs: agreement across a distractor, facts of the world, word order. Prompts: the end of a
fact. Tasks: entailment, the topic of a text, names, and which of two sentences is earlier in the
day.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TypeVar

import numpy as np

from bertwright.core.rng import generator, stream_key
from bertwright.studies.corpora.corpus import CorpusFolder, write_jsonl
from bertwright.studies.corpora.stories import (
    TOPICS,
    Clause,
    EntityName,
    Word,
    World,
    format_sentence,
    generate_stories,
)

PAIRS_OF_A_KIND = 300
TRAINING, DEVELOPMENT = 2_000, 500

Sentence = Sequence[Word]
LabelledTexts = tuple[tuple[Sequence[Sentence], ...], str]
"""One or two texts, each a list of sentences, and their label."""

Translation = Callable[[Sentence], Sentence]
"""A function that translates a sentence of the world."""

T = TypeVar("T")


def write_minimal_pairs(world: World, seed: int, path: Path) -> None:
    """Write pairs of an acceptable and an unacceptable sentence, in BLiMP's format."""
    rng = generator(stream_key(seed, "pairs"))
    with open(path, "w", encoding="utf-8") as file:
        for name, make_pair in (
            ("agreement", _agreement_pair),
            ("facts", _fact_pair),
            ("order", _order_pair),
        ):
            for _ in range(PAIRS_OF_A_KIND):
                good, bad = make_pair(world, rng)
                pair = {"sentence_good": good, "sentence_bad": bad, "UID": name}
                file.write(json.dumps(pair) + "\n")


def write_prompts(world: World, path: Path) -> None:
    """Write every fact of the world without its last name, as a prompt and with a gap."""
    write_jsonl(
        path,
        (
            {
                "kind": "facts",
                "prompt": format_sentence(words).removesuffix("."),
                "continuation": str(name),
                "gap": format_sentence([*words, "[MASK]"]),
            }
            for *words, name in world.facts()
        ),
    )


def _agreement_pair(world: World, rng: np.random.Generator) -> tuple[str, str]:
    """Return a clause, and the same clause with the verb in the number of the distractor."""
    clause = _distractor_clause(world, rng)
    words = clause.words()
    bad = [*words]
    wrong_verb = _inflected_verb(replace(clause, plural=not clause.plural))
    bad[words.index(_inflected_verb(clause))] = wrong_verb
    return format_sentence(words), format_sentence(bad)


def _distractor_clause(world: World, rng: np.random.Generator) -> Clause:
    """Return a clause with a noun of the other number between the subject and the verb."""
    while True:
        clause = world.clause(int(rng.integers(TOPICS)), rng)
        if clause.near is not None:
            return replace(clause, near_plural=not clause.plural)


def _inflected_verb(clause: Clause) -> str:
    return clause.verb if clause.plural else f"{clause.verb}s"


def _fact_pair(world: World, rng: np.random.Generator) -> tuple[str, str]:
    """Return a fact, and the same fact with the last name of another fact of the same kind."""
    fact = world.fact(rng)
    while True:
        other = world.fact(rng)
        if other[1:-1] == fact[1:-1] and other[-1] != fact[-1]:
            return format_sentence(fact), format_sentence([*fact[:-1], other[-1]])


def _order_pair(world: World, rng: np.random.Generator) -> tuple[str, str]:
    """Return a clause, and the same clause with two adjacent words swapped."""
    words = world.clause(int(rng.integers(TOPICS)), rng).words()
    index = int(rng.integers(len(words) - 1))
    bad = [*words]
    bad[index], bad[index + 1] = bad[index + 1], bad[index]
    return format_sentence(words), format_sentence(bad)


def identity(words: Sentence) -> Sentence:
    """Return a sentence unchanged."""
    return words


UNTRANSLATED = {"": identity}
"""The translations for corpora without other languages."""


def write_tasks(
    world: World,
    seed: int,
    corpus_folder: CorpusFolder,
    translations: Mapping[str, Translation] = UNTRANSLATED,
    with_hours: bool = True,
) -> None:
    """Write a folder for every task: tables of entailment, topic and order, tagged words for names.

    The same examples are written in several translations; a translation's key is the suffix of its
    task names.
    """
    rng = generator(stream_key(seed, "tasks"))
    tables = {
        "entailment": ("text\tpair\tlabel\n", _entailments(world, rng)),
        "topic": ("text\tlabel\n", _topics(world, seed)),
        "order": ("text\tpair\tlabel\n", _orders(world, seed, rng, with_hours)),
    }
    for name, (header, examples) in tables.items():
        _write_parts(corpus_folder, name, "tsv", examples, _table_line, translations, header)
    _write_parts(
        corpus_folder, "names", "iob2", _name_sentences(world, seed), _iob_lines, translations
    )


def _write_parts(
    corpus_folder: CorpusFolder,
    name: str,
    suffix: str,
    examples: Iterator[T],
    format_example: Callable[[T, Translation], str],
    translations: Mapping[str, Translation],
    header: str = "",
) -> None:
    for part, count in (("train", TRAINING), ("dev", DEVELOPMENT)):
        part_examples = list(islice(examples, count))
        for name_suffix, translate in translations.items():
            folder = corpus_folder.task(name + name_suffix)
            folder.mkdir(parents=True, exist_ok=True)
            with open(folder / f"{part}.{suffix}", "w", encoding="utf-8") as file:
                file.write(header)
                file.writelines(format_example(example, translate) for example in part_examples)


def _table_line(labelled_texts: LabelledTexts, translate: Translation) -> str:
    texts, label = labelled_texts
    fields = [" ".join(format_sentence(translate(words)) for words in text) for text in texts]
    return "\t".join([*fields, label]) + "\n"


def _entailments(world: World, rng: np.random.Generator) -> Iterator[LabelledTexts]:
    """Yield pairs: an entailed text omits words; others have a changed word or swapped roles."""
    while True:
        clause = _distractor_clause(world, rng)
        premise = replace(clause, phrase=None)
        shorter = replace(premise, near=None, adjective=None, thing_adjective=None)
        if rng.random() < 0.5:
            yield ([premise.words()], [shorter.words()]), "follows"
            continue
        assert premise.near is not None, "it has a distractor"
        wrong = (
            replace(shorter, subject=premise.thing, thing=premise.subject),
            replace(shorter, subject=premise.near, plural=premise.near_plural),
            replace(shorter, verb=world.clause(0, rng).verb),
        )[int(rng.integers(3))]
        if wrong != shorter:
            yield ([premise.words()], [wrong.words()]), "does-not"


def _topics(world: World, seed: int) -> Iterator[LabelledTexts]:
    for story in generate_stories(world, seed, "topic", TRAINING + DEVELOPMENT):
        yield ([words for _, words in story.sentences[:3]],), str(story.topic)


def _orders(
    world: World, seed: int, rng: np.random.Generator, with_hours: bool
) -> Iterator[LabelledTexts]:
    """Yield two sentences from different hours of one day, in order or swapped."""
    num_stories = 2 * (TRAINING + DEVELOPMENT)
    for story in generate_stories(world, seed, "order", num_stories, with_hours):
        early, late = sorted(rng.choice(len(story.sentences), 2, replace=False).tolist())
        if story.sentences[early][0] == story.sentences[late][0]:
            continue
        first, second = ([story.sentences[n][1]] for n in (early, late))
        in_order = rng.random() < 0.5
        yield ((first, second), "in-order") if in_order else ((second, first), "swapped")


def _name_sentences(world: World, seed: int) -> Iterator[Sentence]:
    for story in generate_stories(world, seed, "names", TRAINING + DEVELOPMENT):
        facts = [
            words for _, words in story.sentences if any(isinstance(w, EntityName) for w in words)
        ]
        yield facts[0] if facts else story.sentences[0][1]


def _iob_lines(words: Sentence, translate: Translation) -> str:
    """Return one line per word with its tag, then an empty line."""
    lines: list[tuple[str, str]] = []
    for word in translate(words):
        if isinstance(word, EntityName):
            tags = ["B", *["I"] * (len(word.words) - 1)]
            lines += [(w, f"{t}-{word.kind}") for w, t in zip(word.words, tags, strict=True)]
        else:
            lines.append((word, "O"))
    return "".join(f"{number}\t{w}\t{tag}\n" for number, (w, tag) in enumerate(lines, 1)) + "\n"
