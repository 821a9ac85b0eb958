"""What is shared by the tests of this room."""

import pytest
from toy_stories import stories

from bertwright.text.preparation import prepare
from bertwright.text.shards import Data
from bertwright.text.tokenizers import WordPieceChoice
from bertwright.text.vocabularies import train_tokenizer
from short_runs import short_runs
from small_encoders import byte_bpe, one_thread, pretrained, wordpiece

__all__ = ["byte_bpe", "one_thread", "pretrained", "short_runs", "wordpiece"]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Data:
    """Stories in 120 pieces, a fifth of them held out."""
    folder, texts = tmp_path_factory.mktemp("stories"), stories(60)
    (folder / "text.txt").write_text("\n\n".join(texts))
    tokenizer = train_tokenizer(texts, WordPieceChoice(size=120))
    return prepare(folder / "text.txt", folder / "data", tokenizer, heldout=0.2, num_workers=1)
