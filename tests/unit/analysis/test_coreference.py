"""Stories with coreference: their mentions, and how rules resolve them."""

from typing import get_args

import numpy as np

from bertwright.analysis.core.analysis import Analysis, AnalysisInput
from bertwright.analysis.core.model import AnalysedModel
from bertwright.analysis.syntax.coreference import RESOLUTION_RULES, resolve
from bertwright.analysis.syntax.stories import (
    MENTION_KINDS,
    CoreferenceStory,
    Mention,
    PersonForm,
    sample_stories,
)
from bertwright.models.model import Model
from bertwright.models.text_model import TextModel
from experiments.analyses.models import small_model
from toy_recipes import toy


def test_every_anaphor_has_an_antecedent() -> None:
    stories = sample_stories(100, np.random.default_rng(0))
    assert [story.kind for story in stories] == [kind for kind in MENTION_KINDS for _ in range(100)]
    for story in stories:
        assert story.is_coreferent.any()
        assert not story.is_coreferent.all()
        assert all(story.words[mention.word_index] == mention.word for mention in story.mentions)
        indices = [mention.word_index for mention in story.mentions]
        assert indices == sorted(set(indices))
        # No word is used for two people.
        assert len({(m.word, m.person_index) for m in story.mentions}) == len(
            {m.word for m in story.mentions}
        )


def test_pronouns_and_nouns_agree_with_their_person() -> None:
    pronouns = {"he": "man", "she": "woman", "they": "several"}
    stories = sample_stories(100, np.random.default_rng(0))
    forms = {mention.form for story in stories for mention in story.mentions}
    assert forms == set(get_args(PersonForm))
    for story in stories:
        of_person: dict[int, set[str]] = {}
        for mention in story.mentions:
            assert mention.form == pronouns.get(mention.word, mention.form)
            of_person.setdefault(mention.person_index, set()).add(mention.form)
        # "one" is any person; otherwise a person has one form.
        assert all(len(forms - {"one"}) <= 1 for forms in of_person.values())


def test_the_position_of_the_antecedent_is_random() -> None:
    """The nearest mention is correct no more often than any other one."""
    stories = sample_stories(1000, np.random.default_rng(0))
    nearest = np.mean([story.is_coreferent[-1] for story in stories])
    assert abs(nearest - np.mean([story.is_coreferent.mean() for story in stories])) < 0.05


def make_story(*mentions: tuple[str, PersonForm, int]) -> CoreferenceStory:
    story = tuple(Mention(index, *mention) for index, mention in enumerate(mentions))
    return CoreferenceStory(tuple(mention.word for mention in story), story, "name")


def test_rules_resolve_by_word_then_form_then_distance() -> None:
    king, queen, doctor = ("king", "man", 0), ("queen", "woman", 1), ("doctor", "one", 2)
    crew, he = ("crew", "several", 3), ("he", "man", 0)
    expected = {
        make_story(king, queen, king): {"nearest mention": 1, "same word": 0, "rule-based": 0},
        make_story(king, queen, he): {"nearest mention": 1, "same word": 1, "rule-based": 0},
        make_story(king, doctor, queen, he): {"rule-based": 1},
        make_story(doctor, crew, ("she", "woman", 2)): {"rule-based": 0},
        make_story(king, queen, ("they", "several", 3)): {"rule-based": 1},
    }
    for story, indices in expected.items():
        assert {name: resolve(story, RESOLUTION_RULES[name]) for name in indices} == indices


def test_a_sieve_reads_the_antecedent_and_then_the_anaphor() -> None:
    story = make_story(("king", "man", 1), ("queen", "woman", 1), ("he", "man", 1))
    first = story.antecedents[0]
    assert resolve(story, [lambda mention, _: mention == first]) == 0
    assert resolve(story, [lambda _, anaphor: anaphor == story.anaphor]) == 1


def test_short_sequences_and_models_without_attention_are_not_analysed() -> None:
    analysis = Analysis.parse({"kind": "coreference", "num_stories": 20})
    changes = ("encoder.positions.size=16", "phases=[{length: 16, fraction: 1}]")
    short = AnalysisInput(small_model("bert", *changes), [])
    assert "too short" in str(analysis.not_applicable(short))
    small = small_model()
    assert analysis.not_applicable(AnalysisInput(small, [])) is None
    model = Model.build(toy("elmo"), small.tokenizer.vocab_size, small.tokenizer)
    elmo = AnalysedModel("elmo", TextModel(model, small.tokenizer, "float32"))
    assert "attention.weights" in str(analysis.not_applicable(AnalysisInput(elmo, [])))
