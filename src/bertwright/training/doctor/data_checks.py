"""Checks of a prepared text: what it repeats, what it lacks, whether there is enough of it.

Each check is a function of numbers, so that it can be shown a fault.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertwright.recipes import Recipe
from bertwright.text.shards import Data, unigram_entropy
from bertwright.text.splitting import HELDOUT, TRAIN, heldout_warning
from bertwright.text.tokenizers import Tokenizer
from bertwright.training.doctor.findings import Finding, Verdict, graded
from bertwright.training.doctor.repetition import (
    NearDuplicates,
    RepeatedSentences,
    near_duplicates,
    repeated_sentences,
)

EVALUATED_SHARE = 0.15
"""Of the held-out pieces that an evaluation asks for."""

DEVIATION_NATS = 3.0
"""Of the loss of single pieces: what makes a small held-out split imprecise."""

FEW_UNSEEN = 256
"""Rows of the table that do no harm."""


def check_data(data: Data, recipe: Recipe) -> list[Finding]:
    """Everything about a data set that can be seen without a model."""
    train = data.split(TRAIN)
    num_heldout = data.split(HELDOUT).num_pieces if HELDOUT in data.manifest.splits else 0
    return [
        exact_duplicates(data.report),
        similar_documents(near_duplicates(train, data.tokenizer), train.num_documents),
        said_again(repeated_sentences(train, data.tokenizer)),
        damaged_characters(data.report),
        unknown_pieces(data.report["unknown_rate"], data.tokenizer.kind),
        special_pieces(int(data.piece_counts[list(data.tokenizer.reserved)].sum())),
        unseen_pieces(data.piece_counts, letters(data.tokenizer)),
        enough_text(train.num_pieces, recipe),
        *([heldout_fraction(data.report)] if "heldout_asked" in data.report else []),
        enough_heldout(num_heldout, recipe),
        plateau(data.piece_counts),
    ]


def exact_duplicates(report: Mapping[str, Any]) -> Finding:
    """Documents that preparation met before."""
    dropped = report.get("duplicates", 0)  # histories are kept, however alike
    share = dropped / max(dropped + report["documents"], 1)
    return Finding(
        "data.duplicates",
        graded(share, note=0.05),
        f"{dropped:,} exact copies of documents ({share:.1%}) were dropped by prepare",
        "the sources overlap: look for near duplicates and for repeated lines too"
        if share >= 0.05
        else "",
        {"dropped_documents": dropped, "share": share},
    )


def similar_documents(found: NearDuplicates, num_documents: int) -> Finding:
    """Documents that differ from another in little more than a date."""
    share = found.num_similar / max(found.num_sampled, 1)
    verdict = graded(share, note=0.01, warning=0.05)
    return Finding(
        "data.near-duplicates",
        verdict,
        f"{found.num_similar:,} of {found.num_sampled:,} sampled documents ({share:.1%}) are "
        f"nearly another of the sample; there are {num_documents:,}",
        "" if verdict == "ok" else "prepare the text again with --near-duplicates",
        {"similar": found.num_similar, "sampled": found.num_sampled, "share": share},
    )


def said_again(found: RepeatedSentences) -> Finding:
    """Sentences that stand in the text many times: headers, licences, templates."""
    verdict = graded(found.share, note=0.03, warning=0.15)
    example = f"; {found.times:,} times: {_shortened(found.most_frequent)!r}"
    return Finding(
        "data.repeated-sentences",
        verdict,
        f"{found.share:.1%} of the pieces stand in sentences seen before"
        + (example if found.times > 1 else ""),
        "" if verdict == "ok" else "remove what repeats (menus, licences, templates) and prepare",
        {"share": found.share, "most_times": found.times},
    )


def damaged_characters(report: Mapping[str, Any]) -> Finding:
    """Bytes that were not UTF-8, or none of any text."""
    wrong = report.get("invalid_utf8", 0) + report.get("nul_bytes", 0)
    share = wrong / max(report["bytes"], 1)
    verdict: Verdict = "note" if wrong else "ok"
    return Finding(
        "data.encoding",
        "warning" if share >= 1e-4 else verdict,
        f"{wrong:,} invalid or NUL bytes in {report['bytes']:,}",
        "convert the sources to UTF-8 and prepare them again" if wrong else "",
        {"wrong_bytes": wrong, "share": share},
    )


def unknown_pieces(rate: float, kind: str) -> Finding:
    """Words that the tokenizer could not cut."""
    verdict = graded(rate, note=0.002, warning=0.01)
    other = "" if kind == "byte-bpe" else ", or choose --kind byte-bpe"
    return Finding(
        "data.unknown",
        verdict,
        f"{rate:.2%} of the pieces are unknown",
        "" if verdict == "ok" else f"train the tokenizer on this text{other}",
        {"rate": rate},
    )


def special_pieces(number: int) -> Finding:
    """Report special tokens that the text spells: they are read, and never masked or predicted."""
    return Finding(
        "data.special-tokens",
        "note" if number else "ok",
        f"{number:,} special tokens stand in the training text itself",
        "remove them from the text unless they are meant: none is ever masked" if number else "",
        {"number": number},
    )


def letters(tokenizer: Tokenizer) -> NDArray[np.bool_]:
    """Return (V,) which ids are special, a single character (or byte), or no token: those that
    every vocabulary has."""
    found = np.ones(tokenizer.size, np.bool_)
    for index in set(tokenizer.ids.tolist()) - tokenizer.specials.all:
        token = tokenizer.piece(index).removeprefix("##").lstrip("\u2581\u0120")
        found[index] = len(token) <= 1
    return found


def unseen_pieces(counts: NDArray[np.int64], excluded: NDArray[np.bool_]) -> Finding:
    """Rows of the table that no step trains."""
    counted = counts[~excluded]
    unseen = int((counted == 0).sum())
    share = unseen / max(len(counted), 1)
    # Small vocabularies hold many pieces that were only steps on the way to whole words.
    verdict = graded(share if unseen >= FEW_UNSEEN else 0.0, note=0.1, warning=0.3)
    return Finding(
        "data.unseen-pieces",
        verdict,
        f"{unseen:,} of {len(counted):,} pieces ({share:.1%}, letters not counted) never stand in "
        f"the training split; {int((counted < 10).sum()):,} stand there fewer than 10 times",
        "" if verdict == "ok" else "train a smaller tokenizer on this text (--vocab-size)",
        {"unseen": unseen, "share": share},
    )


def enough_text(num_pieces: int, recipe: Recipe) -> Finding:
    """How often the recipe reads the text, were its rows full: more than 40 times (as BERT) gains
    little."""
    places = sum(recipe.tokens_of(phase) for phase in range(len(recipe.phases)))
    epochs = places / max(num_pieces, 1)
    verdict = graded(epochs, note=40, warning=400)
    times = f"{epochs:,.0f}" if epochs >= 10 else f"{epochs:.1f}"
    fewer = max(1, int(recipe.steps * 40 / epochs)) if epochs else recipe.steps
    return Finding(
        "data.epochs",
        verdict,
        f"{recipe.steps:,} steps read {places:,.0f} places: in full rows the {num_pieces:,} "
        f"training pieces {times} times",
        ""
        if verdict == "ok"
        else f"gather more text, or set steps={fewer} (40 epochs) or give a --budget",
        {"places": places, "epochs": epochs},
    )


def heldout_fraction(report: Mapping[str, Any]) -> Finding:
    """Compare the fraction that is held out with the one that prepare was asked for."""
    asked, achieved = (report.get(f"heldout_{name}", 0.0) for name in ("asked", "achieved"))
    advice = heldout_warning(asked, achieved)
    return Finding(
        "data.heldout-fraction",
        "warning" if advice else "ok",
        f"{achieved:.1%} of the tokens are held out; {asked:.1%} were asked",
        advice,
        {"asked": asked, "achieved": achieved},
    )


def enough_heldout(num_pieces: int, recipe: Recipe) -> Finding:
    """Whether the held-out loss is a number one can compare."""
    length = recipe.assembly_of(len(recipe.phases) - 1).length
    asked = EVALUATED_SHARE * num_pieces
    error = DEVIATION_NATS / max(asked, 1.0) ** 0.5
    verdict: Verdict = "warning" if num_pieces < length else graded(error, note=0.05)
    return Finding(
        "data.heldout",
        verdict,
        f"{num_pieces:,} held-out pieces"
        + (
            f" are fewer than one row of {length}: nothing can be evaluated"
            if verdict == "warning"
            else f": their masked loss is known to about {error:.2g} nats"
        ),
        "" if verdict == "ok" else "prepare with a larger --heldout share",
        {"pieces": num_pieces, "standard_error": error},
    )


def plateau(counts: NDArray[np.int64]) -> Finding:
    """The loss of a model that knows no more than how frequent pieces are."""
    entropy, size = unigram_entropy(counts), len(counts)
    return Finding(
        "data.unigram-entropy",
        "ok",
        f"{entropy:.3f} nats: a masked loss that stays near it has learned frequencies only; it "
        f"starts near {np.log(size):.2f}",
        figures={"unigram_entropy": entropy, "uniform": float(np.log(size))},
    )


def _shortened(text: str, most: int = 60) -> str:
    return text if len(text) <= most else text[: most - 3] + "..."
