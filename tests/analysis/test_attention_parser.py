"""A parser made of attention: what nobody can know is not parsed, a chain is."""

from bertwright.analysis.analysis import Analysis, Case
from bertwright.analysis.listening import listen
from bertwright.analysis.planted.models import WORDS, small_subject
from bertwright.analysis.planted.trees import random_trees
from bertwright.analysis.syntax.attention_parser import AttentionParser, by_distance, learned
from bertwright.analysis.texts import read_texts
from bertwright.tasks.formats.examples import Example
from bertwright.tasks.formats.treebank import Tree


def test_trees_that_were_drawn_are_not_parsed() -> None:
    subject = small_subject()
    found = Analysis.choose("attention-parser").run(
        Case(subject, read_texts(subject, random_trees(60, 7)))
    )
    assert max(own.value for own in found.findings) < 0.5


def test_distances_alone_know_a_chain() -> None:
    chain = Tree(WORDS[:9], (-1, *range(8)), ("dep",) * 9, ("X",) * 9)
    subject = small_subject()
    heard = Analysis.choose("attention-parser").listener(
        Case(subject, read_texts(subject, [chain]))
    )
    listen(subject, heard.case.texts, [heard])
    own = by_distance(heard.seen[0])
    weights = learned([own], AttentionParser(epochs=100), 0)
    said = own.scores(weights)
    assert said.shape == (9, 10)
    assert (said[1:].argmax(1) == own.target[1:]).all()


def test_plain_texts_have_no_trees() -> None:
    subject, text = small_subject(), Example("the keeper sees a ship")
    lacks = Analysis.choose("attention-parser").lacks(Case(subject, read_texts(subject, [text])))
    assert lacks is not None
    assert "CoNLL-U" in lacks
