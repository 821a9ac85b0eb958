"""Checks of prepared text: repetition, encoding, vocabulary and size.

Each check takes plain numbers, so that tests can pass faulty ones.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertwright.data.holdout import HELDOUT, TRAIN, heldout_warning
from bertwright.data.shards.dataset import Dataset, unigram_entropy
from bertwright.data.tokenization.tokenizer import Tokenizer
from bertwright.objectives.masked import EVALUATION_MASKING_RATE
from bertwright.recipes import Recipe
from bertwright.training.diagnostics.doctor.diagnostic import Diagnostic, Severity, grade
from bertwright.training.diagnostics.doctor.repetition import (
    NearDuplicateCounts,
    RepeatedSentences,
    count_near_duplicates,
    count_repeated_sentences,
)

TOKEN_LOSS_DEVIATION = 3.0
"""Standard deviation of the loss of single tokens, in nats."""

MAX_HARMLESS_UNSEEN = 256
"""Maximum number of unused embeddings that is harmless."""


def check_data(data: Dataset, recipe: Recipe) -> list[Diagnostic]:
    """Run all checks of a data set that need no model."""
    train = data.split(TRAIN)
    num_heldout = data.split(HELDOUT).num_tokens if HELDOUT in data.manifest.splits else 0
    return [
        check_exact_duplicates(data.report),
        check_near_duplicates(count_near_duplicates(train, data.tokenizer), train.num_documents),
        check_repeated_sentences(count_repeated_sentences(train, data.tokenizer)),
        check_encoding(data.report),
        check_unknown_tokens(data.report["unknown_rate"], data.tokenizer.kind),
        check_special_tokens(int(data.token_counts[list(data.tokenizer.reserved_ids)].sum())),
        check_unseen_tokens(data.token_counts, is_single_character(data.tokenizer)),
        check_epochs(train.num_tokens, recipe),
        *([check_heldout_fraction(data.report)] if "heldout_requested" in data.report else []),
        check_heldout_size(num_heldout, recipe),
        check_unigram_entropy(data.token_counts),
    ]


def check_exact_duplicates(report: Mapping[str, Any]) -> Diagnostic:
    """Check the fraction of documents that prepare dropped as exact copies."""
    num_dropped = report.get("duplicates", 0)  # missing for histories, which are not deduplicated
    fraction = num_dropped / max(num_dropped + report["documents"], 1)
    return Diagnostic(
        "data.duplicates",
        grade(fraction, note=0.05),
        f"prepare dropped {num_dropped:,} exact copies of documents ({fraction:.1%})",
        "the sources overlap: look for near duplicates and repeated lines too",
        {"dropped_documents": num_dropped, "fraction": fraction},
    )


def check_near_duplicates(counts: NearDuplicateCounts, num_documents: int) -> Diagnostic:
    """Check for documents that differ from another in little more than a date."""
    fraction = counts.num_similar / max(counts.num_sampled, 1)
    return Diagnostic(
        "data.near-duplicates",
        grade(fraction, note=0.01, warning=0.05),
        f"{counts.num_similar:,} of {counts.num_sampled:,} sampled documents ({fraction:.1%}) are "
        f"near duplicates; the data set has {num_documents:,} documents",
        "prepare the text again with --near-duplicates",
        {"similar": counts.num_similar, "sampled": counts.num_sampled, "fraction": fraction},
    )


def check_repeated_sentences(repeated: RepeatedSentences) -> Diagnostic:
    """Check for sentences that occur many times: headers, licences, templates."""
    example = f"; {repeated.count:,} times: {_shorten(repeated.most_frequent)!r}"
    return Diagnostic(
        "data.repeated-sentences",
        grade(repeated.fraction, note=0.03, warning=0.15),
        f"{repeated.fraction:.1%} of the tokens belong to repeated sentences"
        + (example if repeated.count > 1 else ""),
        "remove repeated text (menus, licences, templates) and prepare again",
        {"fraction": repeated.fraction, "max_repeats": repeated.count},
    )


def check_encoding(report: Mapping[str, Any]) -> Diagnostic:
    """Check for invalid UTF-8 and NUL bytes."""
    num_invalid = report.get("invalid_utf8", 0) + report.get("nul_bytes", 0)
    fraction = num_invalid / max(report["bytes"], 1)
    return Diagnostic(
        "data.encoding",
        "warning" if fraction >= 1e-4 else "note" if num_invalid else "ok",
        f"{num_invalid:,} invalid or NUL bytes in {report['bytes']:,}",
        "convert the sources to UTF-8 and prepare them again",
        {"invalid_bytes": num_invalid, "fraction": fraction},
    )


def check_unknown_tokens(unknown_fraction: float, kind: str) -> Diagnostic:
    """Check the fraction of unknown tokens."""
    alternative = "" if kind == "byte-bpe" else ", or choose --kind byte-bpe"
    return Diagnostic(
        "data.unknown-tokens",
        grade(unknown_fraction, note=0.002, warning=0.01),
        f"{unknown_fraction:.2%} of the tokens are unknown",
        f"train the tokenizer on this text{alternative}",
        {"unknown_fraction": unknown_fraction},
    )


def check_special_tokens(num_special_tokens: int) -> Diagnostic:
    """Check for special tokens in the text, which are never masked or predicted."""
    return Diagnostic(
        "data.special-tokens",
        "note" if num_special_tokens else "ok",
        f"the training text itself contains {num_special_tokens:,} special tokens",
        "remove them from the text unless intended: they are never masked",
        {"num_special_tokens": num_special_tokens},
    )


def is_single_character(tokenizer: Tokenizer) -> NDArray[np.bool_]:
    """Return (V,) bool: special tokens, single characters or bytes, and unused ids."""
    excluded = np.ones(tokenizer.vocab_size, np.bool_)
    for index in set(tokenizer.ids.tolist()) - tokenizer.special_tokens.all:
        token = tokenizer.id_to_token(index).removeprefix("##").lstrip("\u2581\u0120")
        excluded[index] = len(token) <= 1
    return excluded


def check_unseen_tokens(token_counts: NDArray[np.int64], excluded: NDArray[np.bool_]) -> Diagnostic:
    """Check for embeddings that are never trained."""
    counts = token_counts[~excluded]
    num_unseen = int((counts == 0).sum())
    fraction = num_unseen / max(len(counts), 1)
    # Small vocabularies hold many tokens that were only intermediate merges.
    return Diagnostic(
        "data.unseen-tokens",
        grade(fraction if num_unseen >= MAX_HARMLESS_UNSEEN else 0.0, note=0.1, warning=0.3),
        f"{num_unseen:,} of {len(counts):,} tokens ({fraction:.1%}, without single characters) "
        f"never occur in the training split; {int((counts < 10).sum()):,} occur less than 10 times",
        "train a smaller tokenizer on this text (--vocab-size)",
        {"unseen": num_unseen, "fraction": fraction},
    )


def check_epochs(num_tokens: int, recipe: Recipe) -> Diagnostic:
    """Check the number of epochs, assuming full sequences: beyond 40 (as BERT) gains are small."""
    num_positions = sum(recipe.num_tokens_of(phase) for phase in range(len(recipe.phases)))
    epochs = num_positions / max(num_tokens, 1)
    times = f"{epochs:,.0f}" if epochs >= 10 else f"{epochs:.1f}"
    fewer = max(1, int(recipe.steps * 40 / epochs)) if epochs else recipe.steps
    return Diagnostic(
        "data.epochs",
        grade(epochs, note=40, warning=400),
        f"{recipe.steps:,} steps read {num_positions:,.0f} positions: the {num_tokens:,} training "
        f"tokens {times} times, if sequences are full",
        f"gather more text, or set steps={fewer} (40 epochs) or a --budget",
        {"num_positions": num_positions, "epochs": epochs},
    )


def check_heldout_fraction(report: Mapping[str, Any]) -> Diagnostic:
    """Compare the held-out fraction with the requested one."""
    requested, achieved = (report.get(f"heldout_{name}", 0.0) for name in ("requested", "achieved"))
    advice = heldout_warning(requested, achieved)
    return Diagnostic(
        "data.heldout-fraction",
        "warning" if advice else "ok",
        f"{achieved:.1%} of the tokens are held out; {requested:.1%} were requested",
        advice,
        {"requested": requested, "achieved": achieved},
    )


def check_heldout_size(num_tokens: int, recipe: Recipe) -> Diagnostic:
    """Check that the held-out loss is precise enough to compare."""
    length = recipe.input_format_of(len(recipe.phases) - 1).length
    error = TOKEN_LOSS_DEVIATION / max(EVALUATION_MASKING_RATE * num_tokens, 1.0) ** 0.5
    severity: Severity = "warning" if num_tokens < length else grade(error, note=0.05)
    return Diagnostic(
        "data.heldout",
        severity,
        f"{num_tokens:,} held-out tokens"
        + (
            f" are fewer than one sequence of {length}: evaluation is impossible"
            if severity == "warning"
            else f": the standard error of their masked loss is about {error:.2g} nats"
        ),
        "prepare with a larger --heldout fraction",
        {"tokens": num_tokens, "standard_error": error},
    )


def check_unigram_entropy(token_counts: NDArray[np.int64]) -> Diagnostic:
    """Report the unigram entropy, the loss of a model that knows only token frequencies."""
    entropy, initial = unigram_entropy(token_counts), float(np.log(len(token_counts)))
    return Diagnostic(
        "data.unigram-entropy",
        "ok",
        f"{entropy:.3f} nats: a masked loss that stays near it has learned only token frequencies; "
        f"it starts near {initial:.2f}",
        metrics={"unigram_entropy": entropy, "uniform": initial},
    )


def _shorten(text: str, max_length: int = 60) -> str:
    return text if len(text) <= max_length else text[: max_length - 3] + "..."
