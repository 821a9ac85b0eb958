"""Continued training with an extended vocabulary, against the same minutes without it.

New tokens are chosen from the training part of a text only. Tokens per word and bits per byte are
measured on its held-out part, which is the same for both vocabularies.
"""

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.learning.compare import run_module
from benchmarks.result_store import ResultStore
from bertwright.compression.vocabulary.extension import extend_vocabulary
from bertwright.core.files import atomic_folder
from bertwright.core.statistics import Estimate, estimate, paired_difference
from bertwright.data.deduplication import drop_duplicates
from bertwright.data.document import ReadCounts
from bertwright.data.holdout import HELDOUT, TRAIN, assign_splits
from bertwright.data.preparation import prepare
from bertwright.data.readers.sources import find_sources
from bertwright.data.readers.tables import read_documents
from bertwright.data.tokenization.extension.extend import count_tokens_of_words
from bertwright.data.tokenization.extension.word_counts import count_words
from bertwright.data.tokenization.tokenizer import Tokenizer
from bertwright.interop.loading import load
from bertwright.models.saving import TRAINING_FILE
from bertwright.runtime.markdown_report import markdown_table

ARMS = ("original", "extended")

COLUMNS = {
    "vocabulary": "vocabulary",
    "size": "tokens in it",
    "tokens_per_word": "tokens per word",
    "bits_per_byte": "bits per byte",
    "steps": "steps",
}
"""Columns of the table, by key."""

Log = Callable[[str], None]


@dataclass(frozen=True)
class VocabularyPlan:
    """A model, a text, and how both vocabularies are compared.

    ``init`` is how the rows of new tokens are made; ``heldout`` is the held-out fraction of the
    text.
    """

    model: Path
    texts: Sequence[str]
    num_tokens: int
    minutes: float
    seeds: int
    init: str = "mean"
    heldout: float = 0.05

    def run_name(self, arm: str, seed: int) -> str:
        """Return the name of a run, which states everything that it depends on."""
        added = f" by {self.num_tokens} ({self.init})" if arm == "extended" else ""
        return f"{self.model.resolve()} {arm}{added}, {self.minutes:g} minutes, seed {seed}"


@dataclass(frozen=True)
class VocabularyComparison:
    """The results of a plan: a row per vocabulary, and the differences.

    - ``fewer_tokens``: fraction by which the tokens per held-out word fall
    - ``fewer_bits``: by how much the bits per byte fall, over paired seeds
    """

    plan: VocabularyPlan
    rows: list[dict[str, Any]]
    fewer_tokens: float
    fewer_bits: Estimate

    def as_dict(self) -> dict[str, Any]:
        """Return the comparison for ``--json``."""
        return {
            "results": self.rows,
            "fewer_tokens": self.fewer_tokens,
            "fewer_bits": self.fewer_bits.mean,
            "interval": self.fewer_bits.interval,
        }

    def lines(self) -> list[str]:
        """Return the comparison in Markdown."""
        plan, added = self.plan, self.rows[1]["size"] - self.rows[0]["size"]
        return [
            f"`{plan.model.name}`, trained on for {plan.minutes:g} minutes, on {plan.seeds} seeds, "
            f"with its vocabulary and with {added:,} more tokens (rows: {plan.init}). "
            f"The tokens are chosen from the training text; both columns are measured on "
            f"held-out text. Tokens per word fall by {100 * self.fewer_tokens:.1f} %, bits per "
            f"byte by {self.fewer_bits} (mean and 95 % interval over paired seeds).",
            "",
            *markdown_table(COLUMNS, self.rows),
        ]


def compare(plan: VocabularyPlan, output: Path, log: Log) -> VocabularyComparison:
    """Return the comparison; runs with results in ``output`` are not repeated."""
    folders = {arm: output / arm for arm in ARMS}
    _write_models(plan, folders, log)
    tokenizers = {arm: Tokenizer.load(folder) for arm, folder in folders.items()}
    data = {arm: output / f"data-{arm}" for arm in ARMS}
    for arm, folder in data.items():
        if not folder.exists():
            prepare(plan.texts, folder, tokenizers[arm], heldout=plan.heldout)
    runs = ResultStore(output / "runs.json")
    for seed in range(plan.seeds):
        for arm in ARMS:
            name = plan.run_name(arm, seed)
            if name not in runs.results:
                trained = output / "trained" / f"{arm}-{seed}"
                shutil.rmtree(trained, ignore_errors=True)
                train_arm(folders[arm], data[arm], trained, seed, plan.minutes)
                runs.add(name, json.loads((trained / TRAINING_FILE).read_text("utf-8")))
                log(f"{arm}, seed {seed}: {_bits(runs.results[name]):.3f} bits per byte")
    results = {
        arm: [runs.results[plan.run_name(arm, seed)] for seed in range(plan.seeds)] for arm in ARMS
    }
    rows = [_row(arm, tokenizers[arm], plan, results[arm]) for arm in ARMS]
    before, after = ([_bits(run) for run in results[arm]] for arm in ARMS)
    fewer_tokens = 1 - rows[1]["tokens_per_word"] / rows[0]["tokens_per_word"]
    return VocabularyComparison(plan, rows, fewer_tokens, paired_difference(before, after))


def train_arm(model: Path, data: Path, output: Path, seed: int, minutes: float) -> None:
    """Train a model on in its own process."""
    run_module(
        *("bertwright", "pretrain", f"seed={seed}", "--from", str(model), "--data", str(data)),
        *("-o", str(output), "--budget", f"{minutes:g}m"),
    )


def _write_models(plan: VocabularyPlan, folders: Mapping[str, Path], log: Log) -> None:
    """Write the model and the extended one into their folders, unless they are there."""
    if all(folder.exists() for folder in folders.values()):
        return
    original = load(plan.model, "float32")
    extended = extend_vocabulary(original, split_texts(plan, TRAIN), plan.num_tokens, plan.init)
    log(f"{len(extended.extension.parts):,} tokens added")
    for arm, model in zip(ARMS, (original, extended.model), strict=True):
        shutil.rmtree(folders[arm], ignore_errors=True)
        with atomic_folder(folders[arm]) as folder:
            model.save(folder)


def split_texts(plan: VocabularyPlan, split: str) -> Iterator[str]:
    """Yield the texts of a split, the same as ``prepare`` makes."""
    counts = ReadCounts()
    sources = find_sources(list(plan.texts), "text", None, counts)
    documents = drop_duplicates(read_documents(sources, counts), counts)
    for name, document in assign_splits(documents, plan.heldout):
        if name == split:
            yield document.text


def _row(
    arm: str, tokenizer: Tokenizer, plan: VocabularyPlan, runs: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    words = count_words(tokenizer, split_texts(plan, HELDOUT))
    return {
        "vocabulary": arm,
        "size": tokenizer.vocab_size,
        "tokens_per_word": count_tokens_of_words(tokenizer, words) / words.num_words,
        "bits_per_byte": str(estimate([_bits(run) for run in runs])),
        "steps": ", ".join(str(run["steps"]) for run in runs),
    }


def _bits(run: Mapping[str, Any]) -> float:
    return run["result"]["bits_per_byte"]
