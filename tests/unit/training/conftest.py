"""Small prepared data sets, made once per session."""

import pytest

from bertwright.data.preparation import prepare
from bertwright.data.shards.dataset import Dataset
from bertwright.data.tokenization.tokenizer import (
    ItemTokenizerConfig,
    WordPieceConfig,
)
from bertwright.data.vocabulary_training import train_tokenizer
from bertwright.studies.corpora import CorpusFolder, ItemHistoryCorpus
from short_runs import short_runs
from toy_stories import prepare_stories, stories

__all__ = ["short_runs"]


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return prepare_stories(tmp_path_factory.mktemp("stories"))


@pytest.fixture(scope="session")
def byte_data(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """The same documents with another tokenizer."""
    return prepare_stories(tmp_path_factory.mktemp("bytes"), "byte-bpe")


@pytest.fixture(scope="session")
def spoken_data(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Stories in one language, fewer in another, and translated sentences."""
    folder = tmp_path_factory.mktemp("spoken")
    (folder / "en.txt").write_text("\n\n".join(stories(80)))
    (folder / "de.txt").write_text("\n\n".join(stories(20, seed=1)).upper())
    lines = [story.partition(".")[0] for story in stories(90, seed=2)]
    (folder / "p.en").write_text("".join(f"{line}\n" for line in lines))
    (folder / "p.de").write_text("".join(f"{line.upper()}\n" for line in lines))
    tokenizer = train_tokenizer(stories(100), WordPieceConfig(vocab_size=120))
    inputs = [f"en={folder / 'en.txt'}", f"de={folder / 'de.txt'}"]
    inputs.append(f"en,de={folder / 'p.en'},{folder / 'p.de'}")
    return prepare(inputs, folder / "data", tokenizer, heldout=0.2, num_workers=1)


@pytest.fixture(scope="session")
def rich_data(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Languages, translations, phrases, names, dialogues, and a connective in every story."""
    folder = tmp_path_factory.mktemp("rich")
    texts = [text.replace(". ", ". But ", 1) for text in stories(60)]
    (folder / "en.txt").write_text("\n\n".join(texts))
    (folder / "de.txt").write_text("\n\n".join(stories(20, seed=1)).upper())
    lines = [story.partition(".")[0] for story in stories(60, seed=2)]
    (folder / "p.en").write_text("".join(f"{line}\n" for line in lines))
    (folder / "p.de").write_text("".join(f"{line.upper()}\n" for line in lines))
    (folder / "talk.txt").write_text(
        "\n\n".join(t.replace(". ", ".\n") for t in stories(40, seed=3))
    )
    words = [text.split() for text in texts[:20]]
    phrases = [" ".join(w[1:3]) for w in words] + [f"{w[4]} {w[5]}\tPER" for w in words]
    (folder / "phrases.txt").write_text("\n".join(phrases))
    tokenizer = train_tokenizer(stories(100), WordPieceConfig(vocab_size=120))
    inputs = [f"en={folder / 'en.txt'}", f"de={folder / 'de.txt'}"]
    inputs.append(f"en,de={folder / 'p.en'},{folder / 'p.de'}")
    return prepare(
        inputs,
        folder / "data",
        tokenizer,
        heldout=0.2,
        phrases=folder / "phrases.txt",
        dialogues=[f"en={folder / 'talk.txt'}"],
        capitals=True,
        num_workers=1,
    )


@pytest.fixture(scope="session")
def items(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    folder = tmp_path_factory.mktemp("items")
    corpus_folder = CorpusFolder(folder / "corpus")
    corpus = ItemHistoryCorpus(users=60)
    corpus.write(corpus_folder)
    corpus.prepare(corpus_folder, ItemTokenizerConfig(), folder / "vocabulary", folder / "data")
    return Dataset.open(folder / "data")
