"""Token embeddings with character n-grams: hashes, n-grams and means."""

import torch

from bertwright.data.tokenization.character_ids import character_ids, token_character_ids
from bertwright.data.tokenization.tokenizer import WordLevelConfig
from bertwright.data.vocabulary_training import train_tokenizer
from bertwright.modules.embeddings.ngrams import NgramEmbedding, NgramEmbeddingsConfig, ngram_hashes


def fnv_1a(text: str) -> int:
    value = 2166136261
    for byte in text.encode():
        signed = byte - 256 if byte >= 128 else byte
        value = ((value ^ (signed & 0xFFFFFFFF)) * 16777619) % 2**32
    return value


def ngrams_of(word: str, shortest: int = 3, longest: int = 6) -> list[str]:
    framed = f"<{word}>"
    lengths = range(shortest, longest + 1)
    return [framed[i : i + n] for n in lengths for i in range(len(framed) - n + 1)]


def test_hash_has_the_published_value():
    # http://www.isthe.com/chongo/tech/comp/fnv: the 32-bit FNV-1a hash of "foobar".
    assert fnv_1a("foobar") == 0xBF9CF968


def test_ngrams_are_those_of_the_characters():
    words = ["where", "naïve", "日本語テキスト", "a", ""]
    owners, hashes = ngram_hashes(torch.from_numpy(character_ids(words, 30)).long(), range(3, 7))
    for index, word in enumerate(words):
        expected = sorted(fnv_1a(ngram) for ngram in ngrams_of(word))
        assert sorted(hashes[owners == index].tolist()) == expected


def test_an_embedding_is_the_mean_of_a_token_and_its_ngrams():
    tokenizer = train_tokenizer(["the cat sat where it was"], WordLevelConfig(vocab_size=20))
    config = NgramEmbeddingsConfig(buckets=11, longest=12)
    table = NgramEmbedding(config, tokenizer.vocab_size, 4).double()
    for parameter in table.parameters():
        torch.nn.init.normal_(parameter)
    table.set_spelling(token_character_ids(tokenizer, tokenizer.vocab_size, 12))
    where = tokenizer.token_to_id("where")
    vectors = [table.tokens.weight[where]]
    vectors += [table.ngrams.weight[fnv_1a(ngram) % 11] for ngram in ngrams_of("where")]
    special = [tokenizer.special_tokens.pad, tokenizer.special_tokens.start]
    embedded = table(torch.tensor([[where, *special], [*special, where]]))
    expected = torch.stack(vectors).mean(0)
    torch.testing.assert_close(embedded[0, 0], expected)
    torch.testing.assert_close(embedded[1, 2], expected)
    torch.testing.assert_close(embedded[0, 1:], table.tokens.weight[special])
