"""The language made to order holds what it is made to hold."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from bertwright.studies.corpora import Grammar, Written, story_tasks
from bertwright.studies.corpora.stories import (
    HOURS,
    Name,
    Story,
    World,
    connected,
    sentence,
    stories,
)
from bertwright.tasks.catalogue import find_part, table_task, tagging_task
from bertwright.tasks.formats.minimal_pairs import MinimalPair, read_minimal_pairs
from bertwright.tasks.formats.tables import Columns
from bertwright.text.shards import Data
from bertwright.text.tokenizers import WordPieceChoice


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    written = Written(tmp_path_factory.mktemp("grammar") / "corpus")
    Grammar(documents=100).write(written)
    return written


@pytest.fixture(scope="module")
def pairs(written: Written) -> list[MinimalPair]:
    return read_minimal_pairs(written.pairs)


def test_the_same_choice_writes_the_same_bytes(written: Written, tmp_path: Path) -> None:
    again = Written(tmp_path / "again")
    Grammar(documents=100).write(again)
    files = [file for file in written.folder.rglob("*") if file.is_file()]
    assert len(files) == 11
    for file in files:
        assert (again.folder / file.relative_to(written.folder)).read_bytes() == file.read_bytes()


@pytest.mark.parametrize("told", [lambda story: story, connected], ids=["plain", "connected"])
def test_names_and_phrases_are_where_they_are_said_to_be(told: Callable[[Story], Story]) -> None:
    world = World(0)
    names = {str(name) for name in world.people + world.companies + world.towns}
    phrases = {" ".join(phrase) for phrase in world.phrases}
    number = 0
    for story in map(told, stories(world, 0, "text", 50)):
        known = list(story.known(set(world.phrases)))
        for start, stop, label in known:
            found = str(story)[start:stop]
            assert found.casefold() in (phrases if label == "phrase" else names)
        number += len(known)
        assert sum(str(story).casefold().count(phrase) for phrase in phrases) == sum(
            label == "phrase" for *_, label in known
        )
    assert number > 100


def test_stories_with_what_is_known_of_them_make_the_same_text(tmp_path: Path) -> None:
    made: list[Data] = []
    for annotated in (False, True):
        corpus = Grammar(documents=100, annotated=annotated, dialogues=40 * annotated)
        written = Written(tmp_path / str(annotated))
        corpus.write(written)
        data = tmp_path / f"data-{annotated}"
        corpus.prepare(written, WordPieceChoice(size=400), tmp_path / "vocabulary", data)
        made.append(Data.open(data))
    plain, rich = made
    assert plain.split("train").phrases is None
    turns, entities = rich.split("train").turns, rich.split("train").entities
    assert turns is not None
    assert entities is not None
    assert len(turns.starts) > 40
    assert len(entities.starts) > 100
    assert rich.report["tokens"] > plain.report["tokens"]


def test_a_connective_says_what_a_sentence_is_to_the_one_before() -> None:
    [*plain] = stories(World(0), 0, "text", 20)
    seen: Counter[str] = Counter()
    for story, told in zip(plain, map(connected, plain), strict=True):
        before = -1
        for (hour, words), (_, own) in zip(story.sentences, told.sentences, strict=True):
            opening = " ".join(map(str, own[: len(own) - len(words)]))
            assert [*own[len(own) - len(words) :]] == [*words]
            if opening in ("then,", "meanwhile,"):
                assert (opening == "meanwhile,") == (hour == before)
            assert (opening == "in fact,") <= bool({"founded", "lives", "has"} & {*words})
            seen[opening], before = seen[opening] + 1, hour
    assert seen.keys() == {"", "then,", "meanwhile,", "in fact,"}
    assert 0.55 < 1 - seen[""] / seen.total() < 0.7


def test_the_words_of_a_world_are_all_different() -> None:
    world = World(seed=3)
    words = [w for nouns in world.nouns for w in nouns] + world.verbs + world.adjectives
    words += [w for phrase in world.phrases for w in phrase]
    words += [w for name in world.people + world.companies + world.towns for w in name.words]
    assert len(words) == len(set(words))


def test_documents_tell_of_a_day_in_order() -> None:
    for story in stories(World(0), 0, "text", 20):
        hours = [hour for hour, _ in story.sentences]
        assert hours == sorted(hours)
        assert set(hours) == set(range(len(HOURS)))


def test_facts_are_always_the_same() -> None:
    world = World(0)
    draw = np.random.default_rng(0)
    told: dict[str, set[str]] = {}
    for _ in range(2000):
        fact = world.fact(draw)
        assert isinstance(fact[-1], Name)
        told.setdefault(" ".join(str(word) for word in fact[:-1]), set()).add(str(fact[-1]))
    assert all(len(answers) == 1 for answers in told.values())


def test_every_fact_is_asked_for_once(written: Written) -> None:
    asked = [json.loads(line) for line in written.questions.read_text("utf-8").splitlines()]
    told = {f"{each['prompt']} {each['answer']}." for each in asked}
    draw, world = np.random.default_rng(0), World(0)
    assert told == {sentence(world.fact(draw)) for _ in range(5000)}
    assert len(told) == len(asked) == 90
    assert all(e["gap"].replace("[MASK]", e["answer"]) in told for e in asked)


def test_pairs_of_agreement_differ_in_the_number_of_the_verb(pairs: list[MinimalPair]) -> None:
    verbs = set(World(0).verbs)
    for pair in pairs:
        if pair.paradigm != "agreement":
            continue
        good, bad = pair.good.rstrip(".").split(), pair.bad.rstrip(".").split()
        [(one, other)] = [(g, b) for g, b in zip(good, bad, strict=True) if g != b]
        assert one.removesuffix("s") == other.removesuffix("s") or {one, other} & verbs
        assert one != other


def test_pairs_of_order_have_the_same_words(pairs: list[MinimalPair]) -> None:
    ordered = [pair for pair in pairs if pair.paradigm == "order"]
    for pair in ordered:
        both = [sorted(text.lower().rstrip(".").split()) for text in (pair.good, pair.bad)]
        assert both[0] == both[1]


@pytest.mark.parametrize("name", ["entailment", "order", "topic"])
def test_tables_can_be_read_and_have_every_class(written: Written, name: str) -> None:
    pair = None if name == "topic" else "pair"
    task = table_task(name, Columns("text", pair, "label"))
    train, dev = (task.read(find_part(written.task(name), part)) for part in ("train", "dev"))
    assert {e.label for e in dev} == {e.label for e in train}  # type: ignore[union-attr]
    assert (len(train), len(dev)) == (story_tasks.TRAINING, story_tasks.DEVELOPMENT)
    assert not {e.first for e in train} & {e.first for e in dev} or name == "order"  # type: ignore[union-attr]


def test_names_are_tagged(written: Written) -> None:
    examples = tagging_task("names").read(find_part(written.task("names"), "dev"))
    tags = {tag for example in examples for tag in example.tags or ()}  # type: ignore[union-attr]
    assert {"B-PER", "I-PER", "B-ORG", "B-LOC", "O"} <= tags
