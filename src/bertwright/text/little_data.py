"""A data set of a few texts that are at hand, for as long as it is looked at."""

import json
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from bertwright.text.preparation import prepare
from bertwright.text.shards import Data
from bertwright.text.tokenizers import Tokenizer


@contextmanager
def little_data(
    texts: Sequence[str], tokenizer: Tokenizer, language: str = "en"
) -> Generator[Data]:
    """The texts, a document each in one language, prepared as files would be, none held out; no
    phrase in them is known.

    Errors: UserError where they hold no text.
    """
    with TemporaryDirectory() as folder:
        file = Path(folder) / "texts.jsonl"
        rows = ({"text": text, "language": language, "known": []} for text in texts)
        lines = map(json.dumps, rows)
        file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        yield prepare(
            file,
            Path(folder) / "data",
            tokenizer,
            heldout=0.0,
            language_column="language",
            annotations="known",
            num_workers=1,
        )
