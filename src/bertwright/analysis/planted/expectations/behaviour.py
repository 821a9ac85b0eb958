"""A bag of words, which minds no order; and what the toy model was taught: verbs that agree, facts,
kinds of things and what they are not."""

from collections.abc import Iterator

from bertwright.analysis.analysis import Case
from bertwright.analysis.behaviour.malformed import PERTURBATIONS, MalformedInput
from bertwright.analysis.findings import Stored
from bertwright.analysis.planted.expecting import Expected, above, equal
from bertwright.analysis.planted.models import SENTENCES, small_subject
from bertwright.analysis.subject import Subject
from bertwright.analysis.texts import read_texts
from bertwright.tasks.catalogue import table_task
from bertwright.tasks.finetuning import finetune
from bertwright.tasks.formats.examples import Example
from bertwright.tasks.formats.tables import Columns


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
