"""Of little data nothing is concluded: it is answered, or refused in words."""

import json
from pathlib import Path

import numpy as np
import pytest

from bertwright.analysis.analysis import Analysis, Case
from bertwright.analysis.conclusions import FEWEST, FEWEST_ALONE, Conclusion, concluded
from bertwright.analysis.findings import Finding, Found, read_found, write_found
from bertwright.analysis.planted.models import SENTENCES, small_subject
from bertwright.analysis.reports import write_report
from bertwright.analysis.running import analyse, chosen
from bertwright.analysis.texts import read_texts, worded
from bertwright.errors import UserError
from bertwright.significance import of_difference, of_ratio, of_ratios
from bertwright.tasks.formats.examples import Example
from bertwright.tasks.formats.treebank import Tree


def tree(said: str) -> Tree:
    """Of ``word/TAG`` each; all words depend on the first."""
    words, tags = zip(*(own.split("/") for own in said.split()), strict=True)
    others = len(words) - 1
    return Tree(words, (-1,) + (0,) * others, ("root",) + ("obj",) * others, tags)


ONE = [tree("sees/VERB the/DET keeper/NOUN a/DET ship/NOUN ./PUNCT")]
WORDS = [tree(f"{word}/NOUN") for word in ("ship", "lamp", "boat", "tree")]
STOPS = [tree("./PUNCT")] * 4
ONE_TAG = [tree("ship/NOUN lamp/NOUN"), tree("boat/NOUN tree/NOUN")] * 3
STARRED = [tree("sees/VERB" + " ship/NOUN" * 30), *ONE * 3]

ALONE = (
    "agreement",
    "coreference",
    "facts",
    "main-auxiliary",
    "negation",
    "numbers",
    "word-senses",
)
"""What asks sentences of its own, whatever the texts are."""


def strictly(line: str) -> object:
    """Of JSON that has no NaN."""

    def refuse(name: str) -> None:
        raise ValueError(name)

    return json.loads(line, parse_constant=refuse)


@pytest.mark.parametrize(
    ("trees", "names"),
    [
        (ONE, ("all",)),
        (WORDS, ("attention", "attribution", "identifiability", "probing", "syntax")),
        (STOPS, ("syntax", "probing", "geometry", "dynamics")),
        (ONE_TAG, ("probing",)),
        (STARRED, ("syntax",)),
    ],
)
def test_little_is_answered_or_refused_in_words(
    trees: list[Tree], names: tuple[str, ...], tmp_path: Path
) -> None:
    subject = small_subject()
    case = Case(subject, read_texts(subject, trees), other=subject.untrained(1))
    asked = [own for own in chosen(names) if own.own_kind() not in ALONE]
    answered = analyse(case, asked, tmp_path, lambda line: None)
    write_report(case, answered, tmp_path, "now")
    # What all parameters of a model say hangs on no text.
    of_texts = [own for own in answered if own.analysis.own_kind() != "change"]
    verdicts = {each.verdict for own in of_texts for each in own.conclusions}
    assert verdicts <= ({"not testable"} if len(trees) == 1 else {"not testable", "not seen"})
    for own in answered:
        json.dumps(own.as_dict(), allow_nan=False)
        if own.lacks is None:
            for line in (tmp_path / f"{own.analysis.own_kind()}.jsonl").read_text().splitlines():
                strictly(line)


@pytest.mark.parametrize(
    ("name", "trees", "why"),
    [
        ("attention-parser", ONE, "four sentences"),
        ("attention-parser", STOPS, "punctuation alone"),
        ("edge-probe", WORDS, "no word depends on another"),
        ("structural-probe", WORDS, "four sentences of two words"),
        ("structural-probe", [tree("ship/NOUN ./PUNCT")] * 4, "no word depends on another"),
        ("linear-probe", ONE_TAG, "one part of speech"),
        ("feature-layers", ONE_TAG, "one part of speech"),
        ("description-length", ONE_TAG, "one part of speech"),
        ("seeds", ONE_TAG * 2, "one part of speech"),
        ("one-head", ONE, "four texts"),
        ("answer-attribution", WORDS, "three pieces"),
        ("attention-explains", WORDS, "three pieces"),
        ("learned-masks", WORDS * 2, "three pieces"),
    ],
)
def test_what_needs_more_says_so(name: str, trees: list[Tree], why: str) -> None:
    subject = small_subject()
    lacks = Analysis.choose(name).lacks(Case(subject, read_texts(subject, trees)))
    assert lacks is not None
    assert why in lacks


def verdict(interval: tuple[float, float] | None, number: int | None, **told: float) -> str:
    return Conclusion("c", "p", 0.6, interval, 0.5, "b", num_units=number, **told).verdict


def test_too_few_decide_nothing() -> None:
    assert verdict((0.55, 0.7), FEWEST) == "seen"
    assert verdict((0.55, 0.7), FEWEST - 1) == "not testable"
    assert verdict((0.4, 0.7), FEWEST - 1) == "not seen"
    assert verdict(None, FEWEST_ALONE) == "seen"
    assert verdict(None, FEWEST_ALONE - 1) == "not testable"
    assert verdict(None, FEWEST, chance=0.01) == "seen"
    assert verdict(None, FEWEST - 1, chance=0.5) == "not testable"
    assert verdict(None, None) == "seen"
    few = Conclusion("c", "p", 0.6, None, 0.5, "b", num_units=1)
    assert few.told == f"not testable: it is of 1, without an interval: {FEWEST_ALONE} are needed"
    assert few.as_dict()["lacks"] == few.lacks


def test_a_figure_of_nothing_is_none() -> None:
    nothing, some = np.zeros(3), np.ones(3)
    ratios = [of_ratio(nothing, nothing), *of_ratios(nothing[:, None], nothing[:, None])]
    for found in (*ratios, of_difference((some, some), (nothing, nothing))):
        assert np.isnan([found.value, found.low, found.high]).all()
        finding = Finding.over_texts("m", found)
        assert finding.interval is None
        said = concluded("c", "p", finding.as_dict(), 0.0)
        assert said.verdict == "not testable"
        assert said.as_dict()["value"] is None


def test_what_is_no_number_is_null_and_read_as_none(tmp_path: Path) -> None:
    found = Found([Finding("m", float("nan")), Finding("n", float("inf"), interval=(0.0, 1.0))])
    write_found(tmp_path, "a", {"texts": 3}, found)
    _, first, second = map(strictly, (tmp_path / "a.jsonl").read_text().splitlines())
    assert (first["value"], second["value"]) == (None, None)
    stored = read_found(tmp_path, "a")
    assert np.isnan([each["value"] for each in stored.findings]).all()
    assert (stored.about, stored.num_texts) == ({"texts": 3}, 3)


def test_texts_without_words_are_passed_by() -> None:
    subject = small_subject()
    said = [Example("\u200b"), Example(SENTENCES[0]), Example("\u200b", "the lamp")]
    assert [text.words for text in read_texts(subject, said[:1])] == [()]
    assert [text.source for text in worded(subject, said)] == said[1:]
    with pytest.raises(UserError, match="no text has a word that bert reads in 128 places"):
        worded(subject, said[:1])
