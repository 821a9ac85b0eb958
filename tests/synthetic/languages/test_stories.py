"""The corpus of stories."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from bertwright.data.shards.dataset import Dataset
from bertwright.data.tokenization.tokenizer import WordPieceConfig
from bertwright.studies.corpora import CorpusFolder, StoryCorpus, story_tasks
from bertwright.studies.corpora.stories import (
    HOURS,
    EntityName,
    Story,
    World,
    add_connectives,
    format_sentence,
    generate_stories,
)
from bertwright.tasks.catalogue import find_split_file, table_task, tagging_task
from bertwright.tasks.formats.tables import Columns
from bertwright.tasks.zero_shot.minimal_pairs import MinimalPair, read_minimal_pairs


@pytest.fixture(scope="module")
def corpus_folder(tmp_path_factory: pytest.TempPathFactory) -> CorpusFolder:
    folder = CorpusFolder(tmp_path_factory.mktemp("grammar") / "corpus")
    StoryCorpus(documents=100).write(folder)
    return folder


@pytest.fixture(scope="module")
def pairs(corpus_folder: CorpusFolder) -> list[MinimalPair]:
    return read_minimal_pairs(corpus_folder.minimal_pairs)


def test_corpus_is_reproducible(corpus_folder: CorpusFolder, tmp_path: Path) -> None:
    again = CorpusFolder(tmp_path / "again")
    StoryCorpus(documents=100).write(again)
    files = [file for file in corpus_folder.folder.rglob("*") if file.is_file()]
    assert len(files) == 11
    for file in files:
        copy = again.folder / file.relative_to(corpus_folder.folder)
        assert copy.read_bytes() == file.read_bytes()


@pytest.mark.parametrize(
    "transform", [lambda story: story, add_connectives], ids=["plain", "connected"]
)
def test_annotations_cover_all_names_and_phrases(transform: Callable[[Story], Story]) -> None:
    world = World(0)
    names = {str(name) for name in world.people + world.companies + world.towns}
    phrases = {" ".join(phrase) for phrase in world.phrases}
    num_annotations = 0
    for story in map(transform, generate_stories(world, 0, "text", 50)):
        annotations = list(story.annotations(set(world.phrases)))
        for start, stop, label in annotations:
            text = str(story)[start:stop]
            assert text.casefold() in (phrases if label == "phrase" else names)
        num_annotations += len(annotations)
        assert sum(str(story).casefold().count(phrase) for phrase in phrases) == sum(
            label == "phrase" for *_, label in annotations
        )
    assert num_annotations > 100


def test_annotated_corpus_has_annotations_and_dialogues(tmp_path: Path) -> None:
    datasets: list[Dataset] = []
    for annotated in (False, True):
        corpus = StoryCorpus(documents=100, annotated=annotated, dialogues=40 * annotated)
        folder = CorpusFolder(tmp_path / str(annotated))
        corpus.write(folder)
        data = tmp_path / f"data-{annotated}"
        corpus.prepare(folder, WordPieceConfig(vocab_size=400), tmp_path / "vocabulary", data)
        datasets.append(Dataset.open(data))
    plain, rich = datasets
    assert plain.split("train").phrases is None
    turns, entities = rich.split("train").turns, rich.split("train").entities
    assert turns is not None
    assert entities is not None
    assert len(turns.starts) > 40
    assert len(entities.starts) > 100
    assert rich.report["tokens"] > plain.report["tokens"]


def test_connectives_match_the_relation_of_sentences() -> None:
    [*stories] = generate_stories(World(0), 0, "text", 20)
    counts: Counter[str] = Counter()
    for plain, connected in zip(stories, map(add_connectives, stories), strict=True):
        previous_hour = -1
        for (hour, words), (_, new_words) in zip(plain.sentences, connected.sentences, strict=True):
            num_added = len(new_words) - len(words)
            connective = " ".join(map(str, new_words[:num_added]))
            assert [*new_words[num_added:]] == [*words]
            if connective in ("then,", "meanwhile,"):
                assert (connective == "meanwhile,") == (hour == previous_hour)
            assert (connective == "in fact,") <= bool({"founded", "lives", "has"} & {*words})
            counts[connective] += 1
            previous_hour = hour
    assert counts.keys() == {"", "then,", "meanwhile,", "in fact,"}
    assert 0.55 < 1 - counts[""] / counts.total() < 0.7


def test_words_of_a_world_are_distinct() -> None:
    world = World(seed=3)
    words = [w for nouns in world.nouns for w in nouns] + world.verbs + world.adjectives
    words += [w for phrase in world.phrases for w in phrase]
    words += [w for name in world.people + world.companies + world.towns for w in name.words]
    assert len(words) == len(set(words))


def test_sentences_are_in_order_of_time() -> None:
    for story in generate_stories(World(0), 0, "text", 20):
        hours = [hour for hour, _ in story.sentences]
        assert hours == sorted(hours)
        assert set(hours) == set(range(len(HOURS)))


def test_facts_are_consistent() -> None:
    world = World(0)
    rng = np.random.default_rng(0)
    answers: dict[str, set[str]] = {}
    for _ in range(2000):
        fact = world.fact(rng)
        assert isinstance(fact[-1], EntityName)
        answers.setdefault(" ".join(str(word) for word in fact[:-1]), set()).add(str(fact[-1]))
    assert all(len(names) == 1 for names in answers.values())


def test_every_fact_has_one_prompt(corpus_folder: CorpusFolder) -> None:
    lines = corpus_folder.prompts.read_text("utf-8").splitlines()
    prompts = [json.loads(line) for line in lines]
    facts = {f"{prompt['prompt']} {prompt['continuation']}." for prompt in prompts}
    rng, world = np.random.default_rng(0), World(0)
    assert facts == {format_sentence(world.fact(rng)) for _ in range(5000)}
    assert len(facts) == len(prompts) == 90
    assert all(p["gap"].replace("[MASK]", p["continuation"]) in facts for p in prompts)


def test_agreement_pairs_differ_in_the_number_of_the_verb(pairs: list[MinimalPair]) -> None:
    verbs = set(World(0).verbs)
    for pair in pairs:
        if pair.paradigm != "agreement":
            continue
        good, bad = pair.good.rstrip(".").split(), pair.bad.rstrip(".").split()
        [(first, second)] = [(g, b) for g, b in zip(good, bad, strict=True) if g != b]
        assert first.removesuffix("s") == second.removesuffix("s") or {first, second} & verbs


def test_order_pairs_have_the_same_words(pairs: list[MinimalPair]) -> None:
    for pair in pairs:
        if pair.paradigm == "order":
            good, bad = (sorted(t.lower().rstrip(".").split()) for t in (pair.good, pair.bad))
            assert good == bad


@pytest.mark.parametrize("name", ["entailment", "order", "topic"])
def test_tables_have_every_class_in_both_splits(corpus_folder: CorpusFolder, name: str) -> None:
    pair = None if name == "topic" else "pair"
    task = table_task(name, Columns("text", pair, "label"))
    train, dev = (
        task.read_examples(find_split_file(corpus_folder.task(name), split))
        for split in ("train", "dev")
    )
    assert {e.label for e in dev} == {e.label for e in train}  # type: ignore[union-attr]
    assert (len(train), len(dev)) == (story_tasks.TRAINING, story_tasks.DEVELOPMENT)
    assert not {e.text for e in train} & {e.text for e in dev} or name == "order"  # type: ignore[union-attr]


def test_names_are_tagged(corpus_folder: CorpusFolder) -> None:
    file = find_split_file(corpus_folder.task("names"), "dev")
    examples = tagging_task("names").read_examples(file)
    tags = {tag for example in examples for tag in example.tags or ()}  # type: ignore[union-attr]
    assert {"B-PER", "I-PER", "B-ORG", "B-LOC", "O"} <= tags
