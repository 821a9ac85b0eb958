"""Worker process that prepares text: bertwright, or the script of Transformers for masked LMs.

That script (run_mlm.py) tokenizes the lines, then joins and splits the tokens into sequences, both
by ``datasets.map`` in parallel. Its time excludes reading the text; that of bertwright includes
reading, removing duplicates, marking words and sentences, and writing.
"""

import json
import shutil
import sys
from itertools import chain, count
from pathlib import Path
from typing import Any

from bertwright.batches.formats.pairs import SegmentPair
from bertwright.core.optional_dependencies import require_library
from bertwright.data.preparation import prepare
from bertwright.data.tokenization.tokenizer import Tokenizer
from bertwright.timing.interleaved import StepTimer

SEQUENCE_LENGTH = 128
"""Tokens per sequence."""

NO_MAX_LENGTH = 1 << 30
"""Maximum length of the stock tokenizer, which then does not warn."""

ExampleColumns = dict[str, list[Any]]


def prepare_with_bertwright(
    timer: StepTimer, text: Path, tokenizer: Path, folder: Path, num_processes: int
) -> None:
    """Prepare the text in every step, until the process is stopped."""
    for number in count():
        timer.before_step()
        prepare(text, folder / str(number), tokenizer, num_workers=num_processes)
        shutil.rmtree(folder / str(number))


def prepare_with_datasets(
    timer: StepTimer, text: Path, tokenizer: Path, folder: Path, num_processes: int
) -> None:
    """Run the steps of run_mlm.py in every step, until the process is stopped."""
    require_library("datasets", "huggingface")
    require_library("transformers", "huggingface")
    import datasets
    from transformers import AutoTokenizer

    from bertwright.interop.huggingface.tokenizer.writer import write_tokenizer

    datasets.disable_progress_bars()
    (folder / "tokenizer").mkdir()
    trained = Tokenizer.load(tokenizer)
    write_tokenizer(folder / "tokenizer", trained, SegmentPair(), True, NO_MAX_LENGTH)
    stock_tokenizer: Any = AutoTokenizer.from_pretrained(folder / "tokenizer")
    lines: Any = datasets.load_dataset("text", data_files=str(text), cache_dir=str(folder / "c"))

    def tokenize(examples: ExampleColumns) -> Any:
        return stock_tokenizer(examples["text"], return_special_tokens_mask=True)

    while True:
        timer.before_step()
        settings = {"batched": True, "num_proc": num_processes, "load_from_cache_file": False}
        tokenized = lines.map(tokenize, remove_columns=["text"], **settings)
        tokenized.map(_group_texts, **settings)


def _group_texts(examples: ExampleColumns) -> ExampleColumns:
    joined = {name: list(chain(*columns)) for name, columns in examples.items()}
    total = len(next(iter(joined.values()))) // SEQUENCE_LENGTH * SEQUENCE_LENGTH
    return {
        name: [
            values[start : start + SEQUENCE_LENGTH] for start in range(0, total, SEQUENCE_LENGTH)
        ]
        for name, values in joined.items()
    }


PROGRAMS = {"ours": prepare_with_bertwright, "datasets": prepare_with_datasets}


def main() -> None:
    """Run a worker: ``python -m benchmarks.preparation.worker '{"program": "ours", ...}'``."""
    settings = json.loads(sys.argv[1])
    program = PROGRAMS[settings.pop("program")]
    num_processes = settings.pop("num_processes")
    paths = {name: Path(path) for name, path in settings.items()}
    paths["folder"].mkdir()
    program(StepTimer.from_standard_streams("cpu"), num_processes=num_processes, **paths)


if __name__ == "__main__":
    main()
