"""A bag of words, which minds no order; and what the toy model was taught: verbs that agree, facts,
kinds of things and what they are not."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from bertwright.analysis.analysis import Case
from bertwright.analysis.behaviour.malformed import PERTURBATIONS, MalformedInput
from bertwright.analysis.behaviour.names import (
    CHANGES,
    LEAD,
    LETTERS,
    NAME,
    ONCE,
    THING,
    Names,
)
from bertwright.analysis.behaviour.pairs import FOLLOWS, ORDER, PairQuestions
from bertwright.analysis.behaviour.sentiment_suites import SLOTS
from bertwright.analysis.behaviour.suites import SUITE, Suites
from bertwright.analysis.behaviour.trigger_answers import Answers, Trigger
from bertwright.analysis.behaviour.trigger_search import (
    ENTRY,
    Search,
    allowed_pieces,
    first_order,
    gradient,
    vectors_of_pieces,
)
from bertwright.analysis.behaviour.triggers import Triggers
from bertwright.analysis.behaviour.unchanged_suites import SWAPPED
from bertwright.analysis.behaviour.word_kinds import NAMES, THINGS
from bertwright.analysis.findings import Stored
from bertwright.analysis.planted.classifiers import bag_of_pieces
from bertwright.analysis.planted.expecting import Expected, above, below, equal, same
from bertwright.analysis.planted.models import SENTENCES, WORDS, small_case, small_subject
from bertwright.analysis.subject import Subject
from bertwright.analysis.texts import read_texts
from bertwright.tasks.catalogue import table_task
from bertwright.tasks.finetuning import finetune
from bertwright.tasks.formats.examples import Example
from bertwright.tasks.formats.tables import Columns


def pair_questions() -> Iterator[Expected]:
    """A model that knows no places does not know which of two texts comes first."""
    drawn = np.random.default_rng(0)
    texts = [" ".join(drawn.choice(WORDS, 10)) for _ in range(24)]
    case = small_case(
        "bert", "encoder.positions={kind: none}", "encoder.embeddings.segments=0", texts=texts
    )
    runs = [PairQuestions().run(replace(case, seed=seed)).findings for seed in range(12)]
    told = [{f.metric: f.value for f in findings} for findings in runs]
    yield equal("the order, by a bag of words", [own[ORDER] for own in told], 0.5, 1e-9)
    follows = np.mean([own[FOLLOWS] for own in told])
    yield equal("what follows, of words that were drawn", follows, 0.5, 0.1)


def malformed_input() -> Iterator[Expected]:
    """Without places a text is a bag of words: no order makes a difference, missing words do."""
    bag = _of_two_classes("encoder.positions={kind: none}")
    moved = [name for name in PERTURBATIONS if name != "without function words"]
    yield equal("a bag stays", [bag[f"class stays, {name}"] for name in moved], 1)
    yield equal("as sure as it was", [bag[f"less sure, {name}"] for name in moved], 0, 1e-5)
    yield above("of fewer words", abs(bag["less sure, without function words"]), 1e-5)
    placed = _of_two_classes("encoder.positions={kind: learned}")
    yield above("where places count", abs(placed["less sure, words shuffled"]), 1e-5)


def _of_two_classes(*changes: str) -> dict[str, float]:
    """What is found of a small model with a head that knows nothing."""
    examples = [Example(text, None, "yn"[n % 2]) for n, text in enumerate(SENTENCES)]
    drawn = finetune(
        small_subject("bert", *changes).text_model,
        table_task("drawn", Columns()),
        train=examples,
        dev=examples,
        epochs=0,
        head={"kind": "plain", "read": "mean"},
    )
    subject = Subject("drawn", drawn.model)
    found = MalformedInput().run(Case(subject, read_texts(subject, examples)))
    return {each.metric: each.value for each in found.findings}


def suites() -> Iterator[Expected]:
    """A bag of good and bad words knows those, and is lost where another word decides; who knows
    few words is shaken by a slip of the pen, and one who is deaf by nothing."""
    tone = dict.fromkeys(f"{SLOTS['good']} {SLOTS['love']} loved".split(), 20.0)
    tone |= dict.fromkeys(f"{SLOTS['bad']} {SLOTS['hate']} hated".split(), -20.0)
    bag, _ = _fails(tone)
    yield equal("a bag", [bag[name] for name in ("plain words", *ADDED)], 0)
    yield equal("a bag, where not decides", [bag[n] for n in ("not good", "not, far from good")], 1)
    yield equal(
        "a bag, of two minds", [bag[n] for n in ("formerly and now", "others and I")], 0.5, 0.05
    )
    contrary, _ = _fails({word: -weight for word, weight in tone.items()})
    yield equal("who takes praise for blame", [contrary[n] for n in ("plain words", *ADDED[1:])], 1)
    yield equal("and by that what is not good for bad", contrary["not good"], 0)
    deaf, by_others = _fails({})
    yield equal("deaf to all", list(deaf.values()), list(by_others.values()))
    yield equal("deaf to what is changed", [deaf[name] for name in (*CHANGED, *ADDED)], 0)
    speller, _ = _fails({"[UNK]": -90.0})
    yield equal("who knows few words", [speller[n] for n in CHANGED], [1, 0, 1])


ADDED = ("very", "praise added", "blame added")
CHANGED = (SWAPPED, "a full stop more or less", "another name")


def _fails(weights: Mapping[str, float]) -> tuple[dict[str, float], dict[str, float]]:
    """The share of each suite that is failed by a bag of pieces whose words weigh so much, and that
    by the answers to other texts."""
    known = (*WORDS, "Mary", *" ".join(SLOTS.values()).split(), "loved", "hated")
    subject = bag_of_pieces(weights, known, ("negative", "positive"), bias=0.1)
    texts = [Example(text) for text in (*SENTENCES, "the boat , near Mary , leaves .")]
    found = Suites(items=24).run(Case(subject, read_texts(subject, texts))).findings
    of = {own.metric.removeprefix(SUITE): own for own in found if own.metric.startswith(SUITE)}
    others = {name: own.baseline.value for name, own in of.items() if own.baseline is not None}
    return {name: own.value for name, own in of.items()}, others


def names() -> Iterator[Expected]:
    """Who is blind to names minds no other; who knows one alone minds all others."""
    blind = _changes({"lamp": 3.0, "film": -3.0, "book": -3.0}, 0.01)
    yield equal("blind to names", [blind[f"{of}{NAME}"] for of in (CHANGES, ONCE)], 0)
    yield above("but not to things", blind[f"{CHANGES}{THING}"], 0.5)
    yield below("names less things", blind[LEAD], 0)
    hears = _changes({"Mary": 9.0, "John": 9.0, "Germany": 9.0}, -0.01)
    yield equal("who knows three names", [hears[f"{of}{NAME}"] for of in (CHANGES, ONCE)], 1)
    yield equal("and knows them in no other letters", hears[f"{CHANGES}{LETTERS}"], 1)
    yield equal("and hears no things", hears[f"{CHANGES}{THING}"], 0)
    yield equal("names less things of who knows names", hears[LEAD], 1)


def _changes(weights: Mapping[str, float], bias: float) -> dict[str, float]:
    """How often a bag of pieces that weigh so much changes its answer."""
    known = (*WORDS, *(name for own in NAMES.values() for name in own), *THINGS["one thing"])
    subject = bag_of_pieces(weights, tuple(dict.fromkeys(known)), bias=bias)
    texts = [
        Example("the lamp of Mary lights the film near Paris ."),
        Example("John sees a film ."),
        Example("the book of Germany", "Germany leaves ."),
        Example("a ship leaves ."),
    ]
    found = Names().run(Case(subject, read_texts(subject, texts)))
    return {each.metric: each.value for each in found.findings}


def triggers() -> Iterator[Expected]:
    """The poisonous piece is found in one step, the slope is that of small steps, and what spoils
    one half of the texts spoils the other."""
    weights = dict(zip(WORDS, np.linspace(-3, 3, len(WORDS)), strict=True))
    poisoned = bag_of_pieces({**weights, "wind": -90.0, "tree": 80.0})
    search = Search(vectors_of_pieces(poisoned), allowed_pieces(poisoned), 1)
    for right, poison in ((1, "wind"), (0, "tree")):
        (found,) = search.step(_asked(poisoned, right), (poisoned.tokenizer.id("the") or 0,))
        yield same("found in one step", poisoned.tokenizer.piece(found), poison)
    yield from _first_order()
    for system in ("bert", "xlnet"):
        own = small_subject(system)
        pair = (own.tokenizer.id("wind") or 0, own.tokenizer.id("red") or 0)
        yield from _slopes(system, _asked(own, None), pair)
    poisoned = bag_of_pieces({"lamp": 5.0, "wind": -90.0}, bias=1.0)
    told = Triggers(size=1, steps=1, random=30).run(_sentences(poisoned))
    right = {each.metric: each for each in told.findings}["right with the trigger, yes"]
    yield equal("right behind the poison", right.value, 0)
    yield same("the poison", right.note, "wind")
    yield above("right behind random pieces", right.baseline.value if right.baseline else 0, 0.8)
    deaf = Triggers(steps=1, candidates=4, random=2).run(_sentences(bag_of_pieces({}, bias=1.0)))
    leads = [each.value for each in deaf.findings if " less " in each.metric]
    yield equal("who is deaf to pieces, found less random ones", leads, 0)


def _first_order() -> Iterator[Expected]:
    """So far from right the loss of an answer is its output, to the last digit of a float."""
    drawn = np.random.default_rng(0).normal(0, 20, len(WORDS))
    subject = bag_of_pieces(dict(zip(WORDS, drawn, strict=True)), bias=-90.0)
    own, every = _asked(subject, 1), np.flatnonzero(allowed_pieces(subject).cpu())
    lamp, boat = (int(every[n]) for n in (3, 5))
    scores = first_order(own, (lamp, boat), vectors_of_pieces(subject))[0, every]
    before = own.asked((lamp, boat)).mean
    changes = [own.asked((piece, boat)).mean - before for piece in every.tolist()]
    yield equal("change of a straight loss", scores.cpu(), changes, 1e-4)
    yield above("greatest change", np.abs(changes).max(), 1)


def _slopes(system: str, own: Answers, trigger: Trigger) -> Iterator[Expected]:
    slope = gradient(own, trigger)
    generator = torch.Generator().manual_seed(0)
    direction = torch.randn(slope.shape, generator=generator, dtype=slope.dtype).to(slope.device)

    def moved(step: float) -> float:
        def by(vectors: Tensor) -> Tensor:
            told = vectors.clone()
            told[:, 1 : 1 + len(trigger)] += step * direction
            return told

        with own.subject.encoder.replace(ENTRY, by):
            return own.asked(trigger).mean

    wanted = (moved(1e-5) - moved(-1e-5)) / 2e-5
    yield equal(f"slope, {system}", float((slope * direction).sum()) / wanted, 1, 1e-4)


def _asked(subject: Subject, right: int | None) -> Answers:
    texts = _sentences(subject).texts
    return Answers(subject, texts, None if right is None else [right] * len(texts), 0)


def _sentences(subject: Subject) -> Case:
    """Sentences, each of them several times."""
    texts = [Example(text) for text in SENTENCES for _ in range(4)]
    return Case(subject, read_texts(subject, texts))


def agreement(stored: Stored) -> Iterator[Expected]:
    """Verbs agree, whatever stands between."""
    yield above("simple sentences", stored.of_all("simple")["value"], 0.9)
    yield above("past another noun", stored.of_all("attractor")["value"], 0.7)


def facts(stored: Stored) -> Iterator[Expected]:
    """Facts that were told again and again are known."""
    yield above("right first", stored.of_all("right first")["value"], 0.6)


def negation(stored: Stored) -> Iterator[Expected]:
    """Things are what they are, and are not what they are not."""
    for said in ("affirmed", "negated"):
        found = stored.of_all(f"true completions preferred, {said}")
        yield above(said, found["value"], 0.7)
