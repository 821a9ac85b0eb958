"""Checks of real batches: what is hidden, what is asked, and whether it is the right answer.

A batch is compared with the rows that it was made of, so that a wrong selection, corruption or
question shows whatever code made it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertwright.examples.batches import Batch
from bertwright.examples.coordinates import Rows
from bertwright.examples.corruption import Replace
from bertwright.objectives.causal import Causal
from bertwright.objectives.denoising import Denoising
from bertwright.objectives.hiding import Hiding
from bertwright.objectives.masked import Masked
from bertwright.objectives.objective import Objective
from bertwright.objectives.permutation import Permutation
from bertwright.objectives.sentence_relation import NextSentence
from bertwright.text.tokenizers import Specials, Tokenizer
from bertwright.training.doctor.drawing import Drawn
from bertwright.training.doctor.findings import Finding, Verdict, graded

DEVIATIONS = 5.0
"""From the expected share that chance does not explain."""


@dataclass(frozen=True)
class Subject:
    """One question of one phase: the rows it was asked of, and how it was asked.

    ``where`` (K,) are the flat places that count, ``target`` (K,) the answers, ``beside`` what else
    these depend on.
    """

    name: str
    drawn: Drawn
    specials: Specials
    vocabulary_size: int
    reserved: frozenset[int]

    @property
    def originals(self) -> Rows:
        return self.drawn.originals

    @property
    def where(self) -> NDArray[np.int64]:
        question = self.drawn.batch.questions[self.name]
        return question.where[question.weight > 0]

    @property
    def target(self) -> NDArray[np.int64]:
        question = self.drawn.batch.questions[self.name]
        return question.target[question.weight > 0]

    @property
    def beside(self) -> dict[str, NDArray[np.int64]]:
        question = self.drawn.batch.questions[self.name]
        return {name: values[question.weight > 0] for name, values in question.beside.items()}

    def finding(
        self, check: str, verdict: Verdict, seen: str, advice: str = "", **figures: float
    ) -> Finding:
        """A finding that says in which phase it was seen."""
        where = f"phase {self.drawn.phase}, {self.name}: "
        return Finding(f"masks.{check}", verdict, where + seen, advice, figures)


WRONG = (
    "the model is trained on wrong questions: mend objectives.{} (or the plugin that defines it)"
)


def check_questions(
    drawn: Drawn, objectives: Mapping[str, Objective], tokenizer: Tokenizer
) -> list[Finding]:
    """Every check of every question that a phase asks."""
    findings: list[Finding] = []
    rearranged = any(objective.rearranges for objective in objectives.values())
    for name, objective in objectives.items():
        subject = Subject(name, drawn, tokenizer.specials, tokenizer.size, tokenizer.reserved)
        if not len(subject.where):
            findings.append(no_targets(subject))
            continue
        for kind, check in CHECKS if rearranged else CHECKS_BY_PLACE + CHECKS:
            if isinstance(objective, kind):
                findings.append(check(subject, objective))
        if not objective.decodes:  # a decoder is asked in turn
            findings.append(asked_once(subject))
    return findings


def no_targets(subject: Subject) -> Finding:
    """Report an objective that has nothing to predict."""
    return subject.finding(
        "targets",
        "error",
        f"there is no target in {len(subject.originals.pieces):,} sequences",
        f"nothing is learned from it: prepare other text, or remove objectives.{subject.name}",
        asked=0,
    )


def asked_share(subject: Subject, objective: Hiding | Permutation) -> Finding:
    """The share of real places that is asked, against the rate; a row is asked whole places."""
    rate = objective.selection.rate.at(0.5)
    num_real = subject.originals.real.sum(axis=1)
    expected = np.maximum(np.rint(rate * num_real), 1).sum() / num_real.sum()
    achieved = len(subject.where) / num_real.sum()
    return _judged_rate(subject, float(achieved), rate, float(achieved / expected))


def masked_share(subject: Subject, objective: Denoising) -> Finding:
    """The fraction of the tokens that the encoder does not see, against the rate: of those of the
    text, or of special ones too."""
    rate = objective.noising.masking_rate
    masked, num_real = subject.drawn.batch.hidden(subject.name)
    achieved = masked / num_real
    if rate is None:
        return subject.finding("rate", "ok", f"{achieved:.1%} of the tokens are predicted")
    text = float((~subject.originals.special).sum() / subject.originals.real.sum())
    expected = min(max(achieved, rate * text), rate)
    return _judged_rate(subject, achieved, rate, achieved / expected)


def _judged_rate(subject: Subject, achieved: float, rate: float, ratio: float) -> Finding:
    verdict = graded(abs(1 - ratio), note=0.1, warning=0.25)
    return subject.finding(
        "rate",
        verdict,
        f"{achieved:.1%} of the tokens are masked; the rate is {rate:.1%}",
        ""
        if verdict == "ok"
        else "sequences hold too few words to choose from, or the selection errs",
        achieved=achieved,
        asked=rate,
    )


def hidden_targets(subject: Subject, objective: Masked) -> Finding:
    """The answers are the pieces that stood at the asked places."""
    return _right_answers(subject, subject.originals.pieces.ravel()[subject.where])


def next_targets(subject: Subject, objective: Causal) -> Finding:
    """The answers are the pieces that follow the asked places, or those before them."""
    return _right_answers(
        subject, subject.originals.pieces.take(_asked(subject, objective), mode="wrap")
    )


def _asked(subject: Subject, objective: Causal) -> NDArray[np.int64]:
    """The flat places (K,) of the pieces that a causal question asks for."""
    forward = np.full_like(subject.where, objective.direction != "backward")
    behind = subject.beside.get("behind", forward)
    return subject.where + np.where(behind == 1, 1, -1)


def _right_answers(subject: Subject, expected: NDArray[np.int32]) -> Finding:
    wrong = int((expected != subject.target).sum())
    return subject.finding(
        "targets",
        "error" if wrong else "ok",
        f"{wrong:,} of {len(expected):,} answers are not the piece that stood there",
        WRONG.format(subject.name) if wrong else "",
        wrong=wrong,
        asked=len(expected),
    )


def specials_spared(subject: Subject, objective: Masked) -> Finding:
    """Special tokens and padding are never masked, those that a text spells included."""
    reserved = np.isin(subject.originals.pieces, list(subject.reserved))
    special = subject.originals.special | reserved
    asked = int(special.ravel()[subject.where].sum())
    return subject.finding(
        "specials",
        "error" if asked else "ok",
        f"{asked:,} special tokens or padding are asked",
        WRONG.format(subject.name) if asked else "",
        asked=asked,
    )


def within_document(subject: Subject, objective: Causal) -> Finding:
    """A target belongs to the document that is read; it is no padding, nor spelled by the text."""
    originals, target = subject.originals, _asked(subject, objective)
    document = originals.coordinates.document
    reserved = np.isin(originals.pieces, list(subject.reserved)) & ~originals.special
    odd = reserved.take(target, mode="wrap")
    if document is not None:
        there, here = document.take(target, mode="wrap"), document.ravel()[subject.where]
        odd |= (there != here) | (there < 0)
    number = int(odd.sum())
    return subject.finding(
        "specials",
        "error" if number else "ok",
        f"{number:,} targets are padding, of another document, or special tokens in the text",
        WRONG.format(subject.name) if number else "",
        asked=number,
    )


def asked_once(subject: Subject) -> Finding:
    """No place is asked the same twice in a batch."""
    asked = np.stack((subject.where, *subject.beside.values()))
    twice = asked.shape[1] - np.unique(asked, axis=1).shape[1]
    return subject.finding(
        "asked-once",
        "error" if twice else "ok",
        f"{twice:,} questions are asked twice",
        WRONG.format(subject.name) if twice else "",
        twice=twice,
    )


def elsewhere_untouched(subject: Subject, objective: Objective) -> Finding:
    """What no question hides is shown as it is."""
    pieces, originals = subject.drawn.batch.pieces, subject.originals.pieces
    altered = np.zeros(pieces.shape, np.bool_)  # some objectives lay places behind the text
    altered[:, : originals.shape[1]] = pieces[:, : originals.shape[1]] != originals
    altered = altered.ravel()
    for question in subject.drawn.batch.questions.values():
        altered[question.where[question.weight > 0]] = False
    number = int(altered.sum())
    return subject.finding(
        "untouched",
        "error" if number else "ok",
        f"{number:,} pieces that are not asked are altered",
        WRONG.format(subject.name) if number else "",
        altered=number,
    )


def shown_shares(subject: Subject, objective: Masked) -> Finding:
    """Of the asked places: the shares that show a mask, another piece, the piece itself."""
    shown = subject.drawn.batch.pieces.ravel()[subject.where]
    masked = shown == subject.specials.mask
    kept = ~masked & (shown == subject.target)
    found = {
        "mask": float(masked.mean()),
        "random": float((~masked & ~kept).mean()),
        "keep": float(kept.mean()),
    }
    seen = ", ".join(f"{share:.1%} {name}" for name, share in found.items())
    corruption = objective.corruption
    if not isinstance(corruption, Replace):
        verdict = graded(found["keep"], warning=0.5)
        advice = "most answers stand in the text: the model copies" if verdict != "ok" else ""
        return subject.finding("shares", verdict, seen, advice, **found)
    # A word of several pieces is one cast of the die, so the deviation is that of fewer casts.
    casts = len(shown) / (4 if corruption.unit == "selected" else 1)
    wanted = {"mask": corruption.mask, "random": corruption.random, "keep": corruption.keep}
    # A random piece may be the mask or the piece itself.
    slack = 0.005 + 2 * corruption.random / subject.vocabulary_size
    odd = [
        name
        for name, share in found.items()
        if abs(share - wanted[name])
        > slack + DEVIATIONS * (wanted[name] * (1 - wanted[name]) / casts) ** 0.5
    ]
    asked = "/".join(f"{100 * share:.4g}" for share in wanted.values())
    return subject.finding(
        "shares",
        "error" if odd else "ok",
        f"{seen} (asked: {asked})",
        WRONG.format(f"{subject.name}.corruption") if odd else "",
        **found,
    )


def drawn_anew(subject: Subject, objective: Masked) -> Finding:
    """Dynamic masks differ from epoch to epoch, static ones come back after their copies."""
    drawn, corruption = subject.drawn, objective.corruption
    same = float(_same_places(drawn.batch, drawn.later, subject.name).mean())
    verdict: Verdict = "ok"
    seen = (
        f"{same:.0%} of the rows are asked at the same places in the next epoch ({corruption.when})"
    )
    if corruption.when == "dynamic" or corruption.copies > 1:
        verdict = graded(same, note=0.2, error=0.5)
    if drawn.repeated is not None:
        alike = _same_places(drawn.batch, drawn.repeated, subject.name)
        alike &= (drawn.batch.pieces == drawn.repeated.pieces).all(axis=1)
        again = float(alike.mean())
        seen += f", {again:.0%} after {corruption.copies} epochs"
        verdict = verdict if again == 1.0 else "error"
    return subject.finding(
        "repetition",
        verdict,
        seen,
        "" if verdict == "ok" else WRONG.format(f"{subject.name}.corruption.when"),
        same=same,
    )


def _same_places(one: Batch, other: Batch, name: str) -> NDArray[np.bool_]:
    """(B,) which rows are asked at the same places."""
    first, second = one.questions[name], other.questions[name]
    same = (first.where == second.where) & (first.weight == second.weight)
    return same.reshape(len(one.pieces), -1).all(axis=1)


def balanced_labels(subject: Subject, objective: NextSentence) -> Finding:
    """Half of the pairs belong together; a document of one sentence cannot give such a pair."""
    share = float(subject.target.mean())
    number = len(subject.target)
    verdict = graded(abs(share - 0.5) - DEVIATIONS * 0.5 / number**0.5, note=1e-9, warning=0.15)
    relation, row = subject.originals.relation, subject.where // subject.originals.pieces.shape[1]
    if relation is None or not np.array_equal(relation[row], subject.target):
        verdict = "error"
    return subject.finding(
        "labels",
        verdict,
        f"{share:.1%} of {number:,} pairs are random ones",
        "" if verdict == "ok" else "prepare documents of several sentences, or drop next-sentence",
        random=share,
    )


Checks = tuple[tuple[type[Objective], Callable[[Subject, Any], Finding]], ...]

CHECKS_BY_PLACE: Checks = (
    (Masked, hidden_targets),
    (Causal, next_targets),
    (Objective, elsewhere_untouched),
)
"""These compare a batch with its text place by place."""

CHECKS: Checks = (
    (Hiding, asked_share),
    (Permutation, asked_share),
    (Denoising, masked_share),
    (Masked, specials_spared),
    (Causal, within_document),
    (Masked, shown_shares),
    (Masked, drawn_anew),
    (NextSentence, balanced_labels),
)
