"""Baselines: exact answers on a few words."""

from bertwright.tasks.baselines import majority_tag, tag_of_word
from bertwright.tasks.formats.examples import TaggedWords

TRAINING = [
    TaggedWords(("the", "run", "ended"), ("DET", "NOUN", "VERB")),
    TaggedWords(("they", "run", "the", "run"), ("PRON", "VERB", "DET", "NOUN")),
]
ASKED = [TaggedWords(("they", "run")), TaggedWords(("fast",))]


def test_the_majority_answers_the_same_everywhere() -> None:
    # DET, NOUN and VERB stand twice each: the first in the alphabet is taken.
    assert majority_tag(TRAINING, ASKED) == [("DET", "DET"), ("DET",)]


def test_each_word_answers_for_itself_and_the_majority_for_new_ones() -> None:
    assert tag_of_word(TRAINING, ASKED) == [("PRON", "NOUN"), ("DET",)]


def test_baselines_do_not_look_at_the_tags_they_are_asked_for() -> None:
    hidden = [TaggedWords(s.words, ("X",) * len(s.words)) for s in ASKED]
    assert tag_of_word(TRAINING, hidden) == tag_of_word(TRAINING, ASKED)
