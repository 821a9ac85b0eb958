"""Fixtures of the tests of compression."""

import pytest

from bertwright.data.preparation import prepare
from bertwright.data.shards.dataset import Dataset
from bertwright.data.tokenization.tokenizer import WordPieceConfig
from bertwright.data.vocabulary_training import train_tokenizer
from short_runs import short_runs
from small_encoders import byte_bpe, one_thread, pretrained, wordpiece
from toy_stories import stories

__all__ = ["byte_bpe", "one_thread", "pretrained", "short_runs", "wordpiece"]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Stories in 120 tokens, a fifth of them held out."""
    folder, texts = tmp_path_factory.mktemp("stories"), stories(60)
    (folder / "text.txt").write_text("\n\n".join(texts))
    tokenizer = train_tokenizer(texts, WordPieceConfig(vocab_size=120))
    return prepare(folder / "text.txt", folder / "data", tokenizer, heldout=0.2, num_workers=1)
