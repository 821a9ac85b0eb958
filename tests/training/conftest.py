"""A small prepared data set, made once."""

from pathlib import Path

import pytest
from toy_stories import stories

from bertwright.text.preparation import prepare
from bertwright.text.shards import Data
from bertwright.text.tokenizers import ByteBpeChoice, WordPieceChoice
from bertwright.text.vocabularies import train_tokenizer
from short_runs import short_runs

__all__ = ["short_runs"]


def prepared(folder: Path, kind: str = "wordpiece") -> Data:
    """The stories as a data set."""
    texts = stories(120)
    choices = {"wordpiece": WordPieceChoice(size=120), "byte-bpe": ByteBpeChoice(size=320)}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "stories.txt").write_text("\n\n".join(texts))
    tokenizer = train_tokenizer(texts, choices[kind])
    return prepare(folder / "stories.txt", folder / "data", tokenizer, heldout=0.2, num_workers=1)


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Data:
    return prepared(tmp_path_factory.mktemp("stories"))


@pytest.fixture(scope="session")
def byte_data(tmp_path_factory: pytest.TempPathFactory) -> Data:
    """The same documents in other pieces."""
    return prepared(tmp_path_factory.mktemp("bytes"), "byte-bpe")


@pytest.fixture(scope="session")
def spoken_data(tmp_path_factory: pytest.TempPathFactory) -> Data:
    """Stories in one language, fewer in another, and translations from line to line."""
    folder = tmp_path_factory.mktemp("spoken")
    (folder / "en.txt").write_text("\n\n".join(stories(80)))
    (folder / "de.txt").write_text("\n\n".join(stories(20, seed=1)).upper())
    lines = [story.partition(".")[0] for story in stories(90, seed=2)]
    (folder / "p.en").write_text("".join(f"{line}\n" for line in lines))
    (folder / "p.de").write_text("".join(f"{line.upper()}\n" for line in lines))
    tokenizer = train_tokenizer(stories(100), WordPieceChoice(size=120))
    inputs = [f"en={folder / 'en.txt'}", f"de={folder / 'de.txt'}"]
    inputs.append(f"en,de={folder / 'p.en'},{folder / 'p.de'}")
    return prepare(inputs, folder / "data", tokenizer, heldout=0.2, num_workers=1)


@pytest.fixture(scope="session")
def rich_data(tmp_path_factory: pytest.TempPathFactory) -> Data:
    """All that a data set may hold beside text: languages, translations, phrases and names,
    dialogues; and in every story a sentence that begins with a connective."""
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
    listed = [" ".join(w[1:3]) for w in words] + [f"{w[4]} {w[5]}\tPER" for w in words]
    (folder / "phrases.txt").write_text("\n".join(listed))
    tokenizer = train_tokenizer(stories(100), WordPieceChoice(size=120))
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
