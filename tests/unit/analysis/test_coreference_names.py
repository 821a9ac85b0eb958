"""Names in stories with coreference: which are replaced, and when an antecedent changes."""

from functools import partial

import numpy as np
import pytest
import torch

from bertwright.analysis.behaviour.coreference_names import (
    CoreferenceNames,
    antecedent_changes,
    has_single_names,
    predicted_antecedents,
    replaced_words,
)
from bertwright.analysis.behaviour.word_substitution import WordSubstitution, match_case
from bertwright.analysis.core.analysis import AnalysisInput
from bertwright.analysis.core.model import AnalysedModel
from bertwright.analysis.core.texts import encode_sentences
from bertwright.analysis.probing.coreference_probe import CoreferenceProbe
from bertwright.analysis.syntax.coreference import Coreference
from bertwright.analysis.syntax.stories import CoreferenceStory, Mention
from experiments.analyses.models import small_model

WORDS = ("the", "keeper", "sees", "Mary", "near", "John", ".", "she", "leaves", ".")
MENTIONS = (
    Mention(1, "keeper", "one", 0),
    Mention(3, "Mary", "woman", 1),
    Mention(5, "John", "man", 2),
    Mention(7, "she", "woman", 1),
)
STORY = CoreferenceStory(WORDS, MENTIONS, "pronoun")


def test_stories_with_two_names_for_a_person_are_left_out() -> None:
    assert has_single_names(STORY)
    again = (*MENTIONS[:3], Mention(7, "Mary", "woman", 1))
    assert has_single_names(CoreferenceStory(WORDS, again, "name"))
    nickname = (*MENTIONS[:3], Mention(7, "Molly", "woman", 1))
    assert not has_single_names(CoreferenceStory(WORDS, nickname, "name"))


def replace_mary(*names: str) -> WordSubstitution:
    functions = tuple(partial(match_case, name) for name in names)
    return WordSubstitution(0, "mary", names, functions)


def test_the_antecedent_is_the_mention_with_most_attention() -> None:
    model = small_model(words=[*WORDS, "Anna", "Emma"])
    words = [WORDS, *replaced_words([STORY], replace_mary("Anna", "Emma"))]
    assert [sentence[3] for sentence in words] == ["Mary", "Anna", "Emma"]
    before_and_after = []
    for layer in range(2):
        for head in range(4):
            antecedents = predicted_antecedents(model, words, [STORY] * 3, (layer, head))
            for sentence, index in zip(words, antecedents.tolist(), strict=True):
                assert index == most_attended(model, sentence, layer, head)
            changes = antecedent_changes(
                model, [STORY], (layer, head), [replace_mary("Anna", "Emma")]
            )
            expected = [antecedents[n] != antecedents[0] for n in (1, 2)]
            assert [c.tolist() for c in changes] == [expected]
            before_and_after += expected
    assert set(before_and_after) == {True, False}, "some names change the antecedent"


def most_attended(model: AnalysedModel, sentence: tuple[str, ...], layer: int, head: int) -> int:
    (text,) = encode_sentences(model, [sentence])
    name = f"blocks.{layer}.attention.weights"
    with torch.inference_mode(), model.encoder.record(name) as values:
        model.encoder(torch.tensor([text.token_ids]))
    # One token per word, after the opening token.
    row = values[name][0, head, 1 + 7].numpy()
    return int(np.argmax([row[1 + mention.word_index] for mention in MENTIONS[:3]]))


@pytest.mark.parametrize(
    "analysis", [CoreferenceNames(num_stories=23), Coreference(), CoreferenceProbe()]
)
def test_half_of_the_stories_are_enough(
    analysis: Coreference | CoreferenceNames | CoreferenceProbe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stories of all kinds are counted, except those with two names for a person."""
    inputs = AnalysisInput(small_model(), [])
    number = len(analysis.sample_stories(inputs)[0])
    assert 0.8 * 3 * analysis.num_stories < number <= 3 * analysis.num_stories
    assert number % 2 == 0
    for num_complete, is_enough in ((number // 2, True), (number // 2 - 1, False)):
        stories = [STORY] * num_complete, [None] * num_complete
        monkeypatch.setattr(type(analysis), "sample_stories", lambda *_, s=stories: s)
        assert (analysis.not_applicable(inputs) is None) == is_enough


def test_short_sequences_are_not_analysed() -> None:
    changes = ("encoder.positions.size=16", "phases=[{length: 16, fraction: 1}]")
    short = AnalysisInput(small_model("bert", *changes), [])
    analysis = CoreferenceNames(num_stories=20)
    assert "too short" in str(analysis.not_applicable(short))
    assert analysis.not_applicable(AnalysisInput(small_model(), [])) is None
