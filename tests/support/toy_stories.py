"""A made-up language."""

from pathlib import Path

import numpy as np

from bertwright.data.preparation import prepare
from bertwright.data.shards.dataset import Dataset
from bertwright.data.tokenization.tokenizer import ByteBpeConfig, WordPieceConfig
from bertwright.data.vocabulary_training import train_tokenizer

TEXT = """the a old young small great red blue house river mountain farmer teacher horse bird song
walks sings sees builds carries remembers slowly quickly often never under over beside and"""
WORDS = TEXT.split()


def stories(number: int, seed: int = 0) -> list[str]:
    """Return documents of made-up sentences; words repeat more within a document."""
    rng = np.random.default_rng(seed)
    texts: list[str] = []
    for _ in range(number):
        favourites = rng.choice(WORDS, 8)
        sentences = [
            " ".join(rng.choice(favourites if rng.random() < 0.7 else WORDS, 9)).capitalize()
            for _ in range(rng.integers(4, 12))
        ]
        texts.append(". ".join(sentences) + ".")
    return texts


def prepare_stories(folder: Path, kind: str = "wordpiece") -> Dataset:
    """Prepare the stories as a data set."""
    texts = stories(120)
    configs = {
        "wordpiece": WordPieceConfig(vocab_size=120),
        "byte-bpe": ByteBpeConfig(vocab_size=320),
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "stories.txt").write_text("\n\n".join(texts))
    tokenizer = train_tokenizer(texts, configs[kind])
    return prepare(folder / "stories.txt", folder / "data", tokenizer, heldout=0.2, num_workers=1)
