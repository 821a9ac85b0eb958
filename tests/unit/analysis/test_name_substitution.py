"""Name substitution: replacements, and how often predictions change."""

from functools import partial
from pathlib import Path

from bertwright.analysis.behaviour.name_substitution import (
    CHANGED_AT_LEAST_ONCE,
    CHANGED_FRACTION,
    OTHER_NAME,
    num_word_tokens,
)
from bertwright.analysis.behaviour.word_substitution import (
    COMMON_NOUNS,
    PROPER_NAMES,
    WordSubstitution,
    find_substitutions,
    match_case,
    proper_nouns,
)
from bertwright.analysis.core.analysis import Analysis, AnalysisInput
from bertwright.analysis.core.model import AnalysedModel
from bertwright.analysis.core.runner import run_analyses
from bertwright.analysis.core.texts import AnalysedText, SourceText, encode_texts
from bertwright.tasks.formats.dependency_trees import DependencyTree
from bertwright.tasks.formats.examples import Example
from experiments.analyses.classifiers import bag_of_tokens_model
from experiments.analyses.models import WORDS, small_model

EVERY_NAME = [name for names in PROPER_NAMES.values() for name in names]
KNOWN = (*WORDS, *EVERY_NAME, *COMMON_NOUNS["one thing"])

TEXTS: list[SourceText] = [
    Example("the lamp of Mary lights the film near Paris ."),
    Example("John sees a film ."),
    Example("the book of Germany", "Germany leaves ."),
    Example("a ship leaves ."),
]


def planted_model(weights: dict[str, float], bias: float = 0.0) -> AnalysedModel:
    words = tuple(dict.fromkeys(KNOWN))
    return bag_of_tokens_model(weights, words, bias=bias)


def run_names(
    model: AnalysedModel, texts: list[SourceText] = TEXTS, **settings: int
) -> dict[str, float]:
    inputs = AnalysisInput(model, encode_texts(model, texts))
    result = Analysis.parse({"kind": "names", **settings}).run(inputs)
    return {finding.metric: finding.value for finding in result.findings}


def test_more_alternatives_find_more_changes() -> None:
    model = planted_model(dict.fromkeys(EVERY_NAME[::8], 9.0), -0.01)
    fractions = [
        run_names(model, TEXTS * 5, num_alternatives=n)[f"{CHANGED_AT_LEAST_ONCE}{OTHER_NAME}"]
        for n in (1, 5, 40)
    ]
    assert fractions[0] < fractions[1] < fractions[2] == 1


def test_a_name_is_replaced_everywhere_and_nothing_else_is() -> None:
    model = planted_model({})
    texts = encode_texts(model, TEXTS)
    mary, john, germany = find_substitutions(texts, PROPER_NAMES, proper_nouns, 3, 0)
    assert [substitution.text_index for substitution in (mary, john, germany)] == [0, 1, 2]
    assert set(mary.replacements) <= set(PROPER_NAMES["women"]) - {"Mary"}
    assert set(john.replacements) <= set(PROPER_NAMES["men"]) - {"John"}
    assert len(set(germany.replacements)) == 3
    parts = [["the", "book", "of", "Germany"], ["Germany", "leaves", "."]]
    for other, new in zip(germany.replacements, germany.apply(parts), strict=True):
        assert new == [["the", "book", "of", other], [other, "leaves", "."]]


def test_replacements_keep_the_case_of_the_word() -> None:
    assert [match_case("Anna", old) for old in ("mary", "Mary", "MARY", "A")] == [
        "anna",
        "Anna",
        "ANNA",
        "Anna",
    ]
    assert match_case("book", "Film") == "Book"
    anna = WordSubstitution(0, "mary", ("Anna",), (partial(match_case, "Anna"),))
    assert anna.apply([["(Mary),", "Mary's", "Maryland"]]) == [[["(Anna),", "Anna's", "Maryland"]]]
    letters = WordSubstitution(0, "mary", (), ()).with_case_variants()
    assert letters.apply([["Mary", "sees"]]) == [[["mary", "sees"]], [["MARY", "sees"]]]


def test_word_classes_are_disjoint_and_large_enough() -> None:
    words = [
        word.lower()
        for classes in (PROPER_NAMES, COMMON_NOUNS)
        for members in classes.values()
        for word in members
    ]
    assert len(words) == len(set(words))
    assert all(
        len(members) >= 30
        for classes in (PROPER_NAMES, COMMON_NOUNS)
        for members in classes.values()
    )


def tree(words: str, tags: str) -> DependencyTree:
    size = len(words.split())
    return DependencyTree(
        tuple(words.split()), (-1, *[0] * (size - 1)), ("dep",) * size, tuple(tags.split())
    )


def test_names_in_trees_are_tagged_as_such() -> None:
    model = planted_model({})
    trees: list[SourceText] = [
        tree("Paris sees Mary", "NOUN VERB PROPN"),
        tree("John films Paris", "PROPN VERB NOUN"),
    ]
    texts: list[AnalysedText] = encode_texts(model, trees)
    substitutions = find_substitutions(texts, PROPER_NAMES, proper_nouns, 5, 0)
    assert [substitution.word for substitution in substitutions] == ["mary", "john"]


def test_names_are_reported_by_tokens_and_by_occurrence() -> None:
    assert num_word_tokens(planted_model({}), "Mary") == 1
    texts: list[SourceText] = [Example("Mary sees a ship ."), Example("Anna sees a ship .")]
    fractions = run_names(planted_model({"Anna": 9.0}, -0.01), texts, num_alternatives=99)
    # Mary becomes Anna once, Anna always another name; only these two occur in the texts.
    assert fractions[f"{CHANGED_FRACTION}name that occurs in the texts"] == 1
    others = len(PROPER_NAMES["women"]) - 2
    assert fractions[f"{CHANGED_FRACTION}name that occurs in none"] == others / (2 * others)
    assert (
        fractions[f"{CHANGED_FRACTION}name of one token"]
        == fractions[f"{CHANGED_FRACTION}{OTHER_NAME}"]
    )
    assert f"{CHANGED_FRACTION}name of several tokens" not in fractions


def test_claims_of_a_planted_model(tmp_path: Path) -> None:
    model = planted_model({"Mary": 9.0, "film": -1.0}, -0.01)
    inputs = AnalysisInput(model, encode_texts(model, TEXTS * 4))
    (report,) = run_analyses(inputs, [Analysis.parse("names")], tmp_path, lambda line: None)
    assert [claim.verdict for claim in report.claim_results] == ["seen", "opposite"]
    assert (tmp_path / "names.png").stat().st_size > 1000


def test_models_and_texts_that_are_not_analysed() -> None:
    small, planted = small_model(), planted_model({})
    not_applicable = Analysis.parse("names").not_applicable
    assert "fine-tuned" in str(not_applicable(AnalysisInput(small, encode_texts(small, TEXTS))))
    without_names = AnalysisInput(planted, encode_texts(planted, TEXTS[3:]))
    assert "no text has a known name" in str(not_applicable(without_names))
    assert not_applicable(AnalysisInput(planted, encode_texts(planted, TEXTS))) is None
