"""Encoding of examples: exact token ids; only long texts are truncated."""

from itertools import product

import pytest

from bertwright.recipes.loading import recipe_names
from bertwright.tasks.example_encoder import ExampleEncoder, num_truncated_tokens
from bertwright.tasks.formats.examples import Example, ExtractiveQuestion, TaggedSentence
from toy_recipes import toy


def spell(encoder: ExampleEncoder, token_ids: list[int]) -> str:
    return " ".join(encoder.tokenizer.id_to_token(token) for token in token_ids)


def test_xlnet_has_relative_segments_and_its_start_token_last(wordpiece) -> None:
    encoder = ExampleEncoder.from_recipe(toy("xlnet"), wordpiece, 16)
    (sequence,) = encoder.encode([Example("the red bird", "the tree")])
    assert spell(encoder, sequence.token_ids) == "the red bird [SEP] the tree [SEP] [CLS]"
    assert sequence.segment_ids == [0, 0, 0, 0, 1, 1, 1, 1]
    (words,) = encoder.encode([TaggedSentence(("the", "red", "bird"))])
    assert spell(encoder, words.token_ids) == "the red bird [SEP] [CLS]"
    assert words.positions == (0, 1, 2)
    (window,) = encoder.encode_questions([ExtractiveQuestion("the tree", "the red bird")], 4, 8)
    assert spell(encoder, window.token_ids) == "the tree [SEP] the red bird [SEP] [CLS]"
    # The start token, which means no answer, then the text.
    assert window.positions == (7, 3, 4, 5)


def test_a_text_begins_with_the_token_before_documents_in_training(wordpiece) -> None:
    encoder = ExampleEncoder.from_recipe(toy("transformer-xl"), wordpiece, 16)
    (sequence,) = encoder.encode([Example("the red bird")])
    assert spell(encoder, sequence.token_ids) == "[SEP] the red bird [SEP]"
    recipe = toy("transformer-xl", "assembly.isolated=true")
    (sequence,) = ExampleEncoder.from_recipe(recipe, wordpiece, 16).encode([Example("the")])
    assert spell(encoder, sequence.token_ids) == "[CLS] the [SEP]"


@pytest.mark.parametrize("name", recipe_names())
def test_one_text_has_the_same_special_tokens_everywhere(name: str, wordpiece) -> None:
    recipe, ids = toy(name), wordpiece.encode("the red bird")
    encoder = ExampleEncoder.from_recipe(recipe, wordpiece, 16)
    joined = encoder.join_texts([ids])[0]
    assert joined == recipe.assembly.add_special_tokens(ids, wordpiece.special_tokens)
    assert joined[encoder.text_start :][: len(ids)] == ids
    if encoder.text_start:
        assert joined[0] == recipe.assembly.start_token(wordpiece.special_tokens)


def test_pairs_of_bert_have_one_separator_and_segments(wordpiece) -> None:
    encoder = ExampleEncoder.from_recipe(toy("bert"), wordpiece, 16)
    sequence, single = encoder.encode([Example("the red bird", "the tree"), Example("the tree")])
    assert spell(encoder, sequence.token_ids) == "[CLS] the red bird [SEP] the tree [SEP]"
    assert sequence.segment_ids == [0, 0, 0, 0, 0, 1, 1, 1]
    assert spell(encoder, single.token_ids) == "[CLS] the tree [SEP]"
    assert single.segment_ids == [0, 0, 0, 0]


def test_pairs_of_roberta_have_two_separators_and_no_segments(byte_bpe) -> None:
    encoder = ExampleEncoder.from_recipe(toy("roberta"), byte_bpe, 32)
    (sequence,) = encoder.encode([Example("red", "red")])
    red = byte_bpe.encode("red")
    start, end = byte_bpe.special_tokens.start, byte_bpe.special_tokens.end
    assert sequence.token_ids == [start, *red, end, end, *red, end]
    assert sequence.segment_ids is None


def test_pair_assembly_sets_the_separators(byte_bpe) -> None:
    recipe = toy("roberta", "assembly={kind: sentence-pair, separators: 1, length: 24}")
    assert ExampleEncoder.from_recipe(recipe, byte_bpe, 24).num_separators == 1


def test_longer_text_of_a_pair_is_truncated_first(wordpiece) -> None:
    encoder = ExampleEncoder.from_recipe(toy("bert"), wordpiece, 9)
    (sequence,) = encoder.encode([Example("red red red red red red", "the the")])
    assert spell(encoder, sequence.token_ids) == "[CLS] red red red red [SEP] the the [SEP]"


def test_output_position_of_a_word_is_its_first_token(wordpiece) -> None:
    encoder = ExampleEncoder.from_recipe(toy("bert"), wordpiece, 24)
    words = ("the", "birdhouse", "red", "bird")
    (sequence,) = encoder.encode([TaggedSentence(words)])
    word_tokens = [wordpiece.encode(word) for word in words]
    assert len(word_tokens[1]) > 1
    second = 2 + len(word_tokens[1])
    assert sequence.positions == (1, 2, second, second + 1)
    assert sequence.token_ids[1:-1] == [token for word in word_tokens for token in word]


@pytest.mark.parametrize("length", [10, 13])
def test_windows_of_a_pair_truncate_no_more_than_without_windows(wordpiece, length: int) -> None:
    encoder = ExampleEncoder.from_recipe(toy("bert"), wordpiece, length)
    for first, second in product((1, 4, 5, 6, 30), repeat=2):
        example = Example("the " * first, "bird " * second)
        (truncated,), windows = encoder.encode([example]), encoder.encode([example], 2)
        assert all(len(sequence.token_ids) <= length for sequence in windows)
        assert {sequence.num_truncated for sequence in windows} <= set(
            range(truncated.num_truncated + 1)
        )
        num_seen = max(sequence.token_ids.count(wordpiece.encode("the")[0]) for sequence in windows)
        assert num_seen == first - windows[0].num_truncated
        assert sum(len(sequence.token_ids) for sequence in windows) >= len(truncated.token_ids)


def test_word_without_tokens_has_an_output_position(wordpiece) -> None:
    encoder = ExampleEncoder.from_recipe(toy("bert"), wordpiece, 24)
    (sequence,) = encoder.encode([TaggedSentence(("the", "\u0000", "bird"))])
    assert sequence.positions == (1, 2, 3)


def test_long_sentence_is_split_into_sequences(wordpiece) -> None:
    encoder = ExampleEncoder.from_recipe(toy("bert"), wordpiece, 6)
    short, *sequences = encoder.encode(
        [TaggedSentence(("the",)), TaggedSentence(("red", "bird", "the") * 3)]
    )
    assert [sequence.first_word for sequence in sequences] == [0, 4, 8]
    assert [sequence.example_index for sequence in (short, *sequences)] == [0, 1, 1, 1]
    assert [len(sequence.positions) for sequence in sequences] == [4, 4, 1]
    assert all(len(sequence.token_ids) <= 6 for sequence in sequences)


def test_word_longer_than_a_sequence_is_truncated(wordpiece) -> None:
    encoder = ExampleEncoder.from_recipe(toy("bert"), wordpiece, 6)
    sequences = encoder.encode([TaggedSentence(("the", "birdhousebirdhousebirdhouse", "bird"))])
    assert [sequence.positions for sequence in sequences] == [(1,), (1,), (1,)]
    assert len(sequences[1].token_ids) == 6


@pytest.mark.parametrize("length", [8, 9, 16])
def test_long_question_leaves_half_of_the_sequence_to_the_text(wordpiece, length: int) -> None:
    encoder = ExampleEncoder.from_recipe(toy("bert"), wordpiece, length)
    text, question = "the red bird in the tree", "red " * 40
    sequences = encoder.encode_questions([ExtractiveQuestion(question, text)], 128, 64)
    assert all(len(sequence.token_ids) <= length for sequence in sequences)
    available = length - 3
    assert num_truncated_tokens(sequences) == {0: 40 - available // 2}
    spans = {span for sequence in sequences for span in sequence.offsets}
    _, offsets = wordpiece.encode_with_offsets(text)
    assert spans == set(offsets)


def test_truncated_tokens_of_all_texts_of_an_example_count_once(wordpiece) -> None:
    encoder = ExampleEncoder.from_recipe(toy("bert"), wordpiece, 8)
    long, short = "red " * 20, "red " * 3
    for texts in ((long, short), (short, long), (long, long)):
        examples = [Example(text) for text in texts]
        sequences = encoder.encode(examples, example_indices=[0, 0])
        expected = sum(max(len(text.split()) - 6, 0) for text in texts)
        assert num_truncated_tokens(sequences) == {0: expected}
    pair = encoder.encode([Example(long, long)], stride=1)
    assert len(pair) > 3
    # Of 5 tokens, the second text has 2 at least: 17 of the first are in no window.
    assert num_truncated_tokens(pair) == {0: 17}
