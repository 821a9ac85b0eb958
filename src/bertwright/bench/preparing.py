"""Text to pieces as a contestant: ours, and Transformers' own script for masked language models.

That script (run_mlm.py) maps its tokenizer over the lines of the text, then joins and cuts the
pieces into rows, both by ``datasets.map`` in batches over some processes. Reading the text is left
out of its time; ours reads, drops duplicates, marks words and sentences, and writes as always.
"""

import json
import shutil
import sys
from itertools import chain, count
from pathlib import Path
from typing import Any

from bertwright.bench.turns import Turns
from bertwright.extras import require
from bertwright.text.preparation import prepare
from bertwright.text.tokenizers import Tokenizer

LENGTH = 128
"""Pieces of a row."""

NO_LIMIT = 1 << 30
"""Pieces of a text that the peer's tokenizer does not warn of."""

Examples = dict[str, list[Any]]


def ours(turns: Turns, text: Path, tokenizer: Path, folder: Path, processes: int) -> None:
    """Prepare the text at the pace of the turns, without end."""
    for number in count():
        turns.before_step()
        prepare(text, folder / str(number), tokenizer, num_workers=processes)
        shutil.rmtree(folder / str(number))


def datasets_map(turns: Turns, text: Path, tokenizer: Path, folder: Path, processes: int) -> None:
    """Do what run_mlm.py does, at the pace of the turns, without end."""
    require("datasets", "huggingface")
    require("transformers", "huggingface")
    import datasets
    from transformers import AutoTokenizer

    from bertwright.interop.huggingface.tokenizer_writing import write_tokenizer

    datasets.disable_progress_bars()
    (folder / "tokenizer").mkdir()
    write_tokenizer(folder / "tokenizer", Tokenizer.load(tokenizer), True, NO_LIMIT)
    pieces_of: Any = AutoTokenizer.from_pretrained(folder / "tokenizer")
    lines: Any = datasets.load_dataset("text", data_files=str(text), cache_dir=str(folder / "c"))

    def tokenize(examples: Examples) -> Any:
        return pieces_of(examples["text"], return_special_tokens_mask=True)

    while True:
        turns.before_step()
        settings = {"batched": True, "num_proc": processes, "load_from_cache_file": False}
        tokenized = lines.map(tokenize, remove_columns=["text"], **settings)
        tokenized.map(_group, **settings)


def _group(examples: Examples) -> Examples:
    joined = {name: list(chain(*rows)) for name, rows in examples.items()}
    total = len(next(iter(joined.values()))) // LENGTH * LENGTH
    return {
        name: [values[start : start + LENGTH] for start in range(0, total, LENGTH)]
        for name, values in joined.items()
    }


CONTESTANTS = {"ours": ours, "datasets": datasets_map}


def main() -> None:
    """Be a contestant: ``python -m bertwright.bench.preparing '{"contestant": "ours", ...}'``."""
    settings = json.loads(sys.argv[1])
    contestant = CONTESTANTS[settings.pop("contestant")]
    processes = settings.pop("processes")
    paths = {name: Path(path) for name, path in settings.items()}
    paths["folder"].mkdir()
    contestant(Turns.over_standard_streams("cpu"), processes=processes, **paths)


if __name__ == "__main__":
    main()
