"""A parser from attention: random trees are not parsed, a chain is."""

from bertwright.analysis.core.analysis import Analysis, AnalysisInput
from bertwright.analysis.core.texts import encode_texts
from bertwright.analysis.syntax.attention_parser import (
    AttentionParser,
    distance_example,
    train_parser,
)
from bertwright.tasks.formats.dependency_trees import DependencyTree
from bertwright.tasks.formats.examples import Example
from experiments.analyses.models import WORDS, small_model
from experiments.analyses.trees import random_trees


def test_random_trees_are_not_parsed() -> None:
    model = small_model()
    result = Analysis.parse("attention-parser").run(
        AnalysisInput(model, encode_texts(model, random_trees(60, 7)))
    )
    assert max(finding.value for finding in result.findings) < 0.5


def test_distances_predict_a_chain() -> None:
    chain = DependencyTree(WORDS[:9], (-1, *range(8)), ("dep",) * 9, ("X",) * 9)
    model = small_model()
    inputs = AnalysisInput(model, encode_texts(model, [chain]))
    example = distance_example(AttentionParser().read_examples(inputs)[0])
    scores = example.scores(train_parser([example], AttentionParser(epochs=100), 0))
    assert scores.shape == (9, 10)
    assert (scores[1:].argmax(1) == example.target[1:]).all()


def test_plain_texts_have_no_trees() -> None:
    model, text = small_model(), Example("the keeper sees a ship")
    reason = Analysis.parse("attention-parser").not_applicable(
        AnalysisInput(model, encode_texts(model, [text]))
    )
    assert reason is not None
    assert "CoNLL-U" in reason
