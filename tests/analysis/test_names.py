"""Names: what is exchanged for what, and how often an answer changes by what is put there."""

from functools import partial
from pathlib import Path

from bertwright.analysis.analysis import Analysis, Case
from bertwright.analysis.behaviour.exchanges import Exchange, exchanges, like
from bertwright.analysis.behaviour.names import (
    CHANGES,
    NAME,
    ONCE,
    num_pieces,
)
from bertwright.analysis.behaviour.word_kinds import NAMES, THINGS, names_in
from bertwright.analysis.planted.classifiers import bag_of_pieces
from bertwright.analysis.planted.models import WORDS, small_subject
from bertwright.analysis.running import analyse
from bertwright.analysis.subject import Subject
from bertwright.analysis.texts import ReadText, Text, read_texts
from bertwright.tasks.formats.examples import Example
from bertwright.tasks.formats.treebank import Tree

EVERY_NAME = [name for names in NAMES.values() for name in names]
KNOWN = (*WORDS, *EVERY_NAME, *THINGS["one thing"])

TEXTS: list[Text] = [
    Example("the lamp of Mary lights the film near Paris ."),
    Example("John sees a film ."),
    Example("the book of Germany", "Germany leaves ."),
    Example("a ship leaves ."),
]


def subject_of(weights: dict[str, float], bias: float = 0.0) -> Subject:
    words = tuple(dict.fromkeys(KNOWN))
    return bag_of_pieces(weights, words, bias=bias)


def told(subject: Subject, texts: list[Text] = TEXTS, **settings: int) -> dict[str, float]:
    own = Case(subject, read_texts(subject, texts))
    found = Analysis.choose({"kind": "names", **settings}).run(own)
    return {finding.metric: finding.value for finding in found.findings}


def test_more_alternatives_find_more_of_who_hears_few_names() -> None:
    subject = subject_of(dict.fromkeys(EVERY_NAME[::8], 9.0), -0.01)
    found = [told(subject, TEXTS * 5, alternatives=n)[f"{ONCE}{NAME}"] for n in (1, 5, 40)]
    assert found[0] < found[1] < found[2] == 1


def test_a_name_is_another_wherever_it_stands_and_nothing_else_is() -> None:
    subject = subject_of({})
    texts = read_texts(subject, TEXTS)
    mary, john, germany = exchanges(texts, NAMES, names_in, 3, 0)
    assert [own.text for own in (mary, john, germany)] == [0, 1, 2]
    assert set(mary.others) <= set(NAMES["women"]) - {"Mary"}
    assert set(john.others) <= set(NAMES["men"]) - {"John"}
    assert len(set(germany.others)) == 3
    whole = [["the", "book", "of", "Germany"], ["Germany", "leaves", "."]]
    for other, new in zip(germany.others, germany.applied(whole), strict=True):
        assert new == [["the", "book", "of", other], [other, "leaves", "."]]


def test_a_word_is_written_as_the_one_it_stands_for() -> None:
    assert [like("Anna", old) for old in ("mary", "Mary", "MARY", "A")] == [
        "anna",
        "Anna",
        "ANNA",
        "Anna",
    ]
    assert like("book", "Film") == "Book"
    anna = Exchange(0, "mary", ("Anna",), (partial(like, "Anna"),))
    assert anna.applied([["(Mary),", "Mary's", "Maryland"]]) == [
        [["(Anna),", "Anna's", "Maryland"]]
    ]
    letters = Exchange(0, "mary", (), ()).as_letters()
    assert letters.applied([["Mary", "sees"]]) == [[["mary", "sees"]], [["MARY", "sees"]]]


def test_kinds_share_no_word_and_have_enough_of_them() -> None:
    words = [word.lower() for kinds in (NAMES, THINGS) for own in kinds.values() for word in own]
    assert len(words) == len(set(words))
    assert all(len(own) >= 30 for kinds in (NAMES, THINGS) for own in kinds.values())


def tree(words: str, tags: str) -> Tree:
    size = len(words.split())
    return Tree(tuple(words.split()), (-1, *[0] * (size - 1)), ("dep",) * size, tuple(tags.split()))


def test_in_trees_names_are_what_is_tagged_so() -> None:
    subject = subject_of({})
    trees: list[Text] = [
        tree("Paris sees Mary", "NOUN VERB PROPN"),
        tree("John films Paris", "PROPN VERB NOUN"),
    ]
    texts: list[ReadText] = read_texts(subject, trees)
    own = exchanges(texts, NAMES, names_in, 5, 0)
    assert [each.word for each in own] == ["mary", "john"]


def test_names_are_told_apart_by_pieces_and_by_the_texts() -> None:
    assert num_pieces(subject_of({}), "Mary") == 1
    texts: list[Text] = [Example("Mary sees a ship ."), Example("Anna sees a ship .")]
    found = told(subject_of({"Anna": 9.0}, -0.01), texts, alternatives=99)
    # Mary becomes Anna once, Anna becomes another one always; only these two stand in the texts.
    assert found[f"{CHANGES}name that stands in the texts"] == 1
    others = len(NAMES["women"]) - 2
    assert found[f"{CHANGES}name that stands in none"] == others / (2 * others)
    assert found[f"{CHANGES}name of one piece"] == found[f"{CHANGES}{NAME}"]
    assert f"{CHANGES}name of several pieces" not in found


def test_a_report_of_a_planted_model(tmp_path: Path) -> None:
    subject = subject_of({"Mary": 9.0, "film": -1.0}, -0.01)
    own = Case(subject, read_texts(subject, TEXTS * 4))
    (answered,) = analyse(own, [Analysis.choose("names")], tmp_path, lambda line: None)
    assert [each.verdict for each in answered.conclusions] == ["seen", "opposite"]
    assert (tmp_path / "names.png").stat().st_size > 1000


def test_who_cannot_be_asked_says_so() -> None:
    small, planted = small_subject(), subject_of({})
    lacks = Analysis.choose("names").lacks
    assert "fine-tuned" in str(lacks(Case(small, read_texts(small, TEXTS))))
    assert "no text has a name" in str(lacks(Case(planted, read_texts(planted, TEXTS[3:]))))
    assert lacks(Case(planted, read_texts(planted, TEXTS))) is None
